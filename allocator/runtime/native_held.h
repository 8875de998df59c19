// NativeHeld: what PyTorch's native allocator would hold for this run, as far as its requests were watched; and when
// they are watched.
//
//   open --twelve iterations fit, or 64 are over--> closed --one holds too much, and more than then--> open
//
// That allocator never holds less than it did, unless the program empties its caches: so what it held while it was
// watched holds for later, too. Watched anew, it begins with what lives, as closely as that can lie. Where more lived
// meanwhile, it would hold as much more; what lived since caches were emptied, at least. Each time it is closed for
// twice as long at least.
//
// Thread-safe; Play, Decide and known() come from one thread at a time. Bytes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "allocator/base/mutex.h"
#include "allocator/runtime/native_feed.h"
#include "proto/model/units.h"

namespace stalloc {

class NativeHeld {
 public:
  [[nodiscard]] NativeFeed& feed() noexcept { return feed_; }
  // `apart`: what lives in upstream's pools that the model does not see (graphs'). Plays what has come so far.
  void EmptiedCache(Bytes apart) noexcept;

  // An iteration is over: what would be held now, 0: not known. `live`: the most that lived in it, `run_live`: in the
  // run, of what the model sees.
  [[nodiscard]] Bytes Play(Bytes live, Bytes run_live, Bytes apart) noexcept;
  // Then: closes where enough is known. True where it is closed, and is to be opened: the next iterations are worth
  // watching. `held`: by us. `fits`: about what lives.
  [[nodiscard]] bool Decide(bool fits, Bytes held) noexcept;

  struct Known {
    Bytes held = 0;           // most
    Bytes with_apart = 0;     // most, with what was held apart at the time
    Bytes live = 0;           // the most that lived at a time meanwhile
    bool overflowed = false;  // more than the model keeps: nothing is known from then on
  };
  // While it was watched, over all times.
  [[nodiscard]] Known known() const noexcept { return known_; }
  // The most that lived in an iteration since caches were emptied: it would hold that, watched or not.
  [[nodiscard]] Bytes at_least() const noexcept { return since_emptied_; }

 private:
  static constexpr int kFit = 12;  // iterations
  static constexpr int kLongest = 64;
  static constexpr std::uint64_t kMostPause = 4096;

  void Close(Bytes held) noexcept;
  [[nodiscard]] Bytes Estimate(Bytes present, Bytes run_live) const noexcept;

  NativeFeed feed_;
  std::atomic<bool> emptied_{false};      // at some time
  std::atomic<bool> emptied_now_{false};  // in this iteration
  Bytes since_emptied_ = 0;               // the most that lived, or was held, in an iteration after that
  Mutex emptying_;                        // guards the next two, and the order of the feed's figures
  Bytes before_emptied_ STALLOC_GUARDED_BY(emptying_) = 0;  // most, in this iteration before caches were emptied
  Bytes with_apart_ STALLOC_GUARDED_BY(emptying_) = 0;
  Known known_;
  int watched_ = 0;      // iterations since it was opened
  int fitting_ = 0;      // the last of them, in a row
  Bytes held_then_ = 0;  // by us, when it was closed
  std::uint64_t pause_ = kFit;
  std::uint64_t closed_for_ = 0;  // iterations
};

}  // namespace stalloc
