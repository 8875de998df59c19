// StreamBinding: which stream of the run stands for one stream of the plan.
//
// A plan knows streams by ordinals; the first request that matches an entry of an ordinal binds it to the request's
// stream, its *home*. Blocks of the home in private slots (slot_streams.h) leave no trace when they are freed: the
// stream's own order is enough. Any other stream that is given such bytes has to run behind all that the home did.
//
//              first match                 a new iteration begins on another stream
//    unbound -------------> settled(home) ------------------------------------------> moving(home, until)
//                              ^  requests of the home: nothing to do                     |
//                              |  others: behind the home's work up to now                | behind the home's up to
//                              then
//                              +----------------------------------------------------------+
//                                        the stream that was made to wait is the home
//
// It moves only in an iteration in which the home has not asked for anything of this ordinal yet, so that a request
// that diverges does not take the binding away from the stream that the loop uses; a loop that takes another stream
// each time pays one event and one wait an iteration. The per-thread default stream is nobody's home.
//
// Not thread-safe; noexcept.
#pragma once

#include <cstdint>

#include "allocator/engine/stream_clocks.h"

namespace stalloc {

class StreamBinding {
 public:
  // The home's handle while settled, else no stream's. All that the usual request looks at.
  [[nodiscard]] StreamHandle handle() const noexcept { return handle_; }
  [[nodiscard]] StreamIndex home() const noexcept { return home_; }
  void Used(std::uint64_t iteration) noexcept { iteration_ = iteration; }

  [[nodiscard]] bool unbound() const noexcept { return home_ == kNoStream; }
  [[nodiscard]] bool settled() const noexcept { return handle_ != kNone; }
  // The home's work before this stamp is what its traceless frees can belong to; 0 while it goes on making such.
  [[nodiscard]] std::uint64_t until() const noexcept { return until_; }

  [[nodiscard]] bool MayMove(std::uint64_t iteration) const noexcept { return settled() && iteration_ != iteration; }
  // REQUIRES: settled; from now on no block of the home is private (the caller sees to the live ones).
  void BeginMove(std::uint64_t stamp) noexcept {
    handle_ = kNone;
    until_ = stamp;
  }
  // REQUIRES: unbound, or `home` runs behind the former home.
  void Settle(StreamIndex home, StreamHandle handle) noexcept {
    handle_ = handle;
    home_ = home;
    until_ = 0;
  }

 private:
  static constexpr StreamHandle kNone = ~StreamHandle{0};

  StreamHandle handle_ = kNone;
  StreamIndex home_ = kNoStream;
  std::uint64_t until_ = 0;
  std::uint64_t iteration_ = 0;  // of the last request of the home
};

}  // namespace stalloc
