// NativeFeed: plays the requests of one device to a NativeModel while it is open.
//
//   threads --Allocated, Freed--> events, in order --when they are many, and at each iteration--> model
//
// Closed it costs a relaxed load a request, and has no memory. Open, a request appends an event; each 4096th plays all
// of them. Thread-safe; Open and Close come from one thread at a time. Not for a forked child: a lock may be held there
// for ever. Bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "allocator/base/mutex.h"
#include "allocator/base/spin_mutex.h"
#include "allocator/runtime/block_observer.h"
#include "allocator/runtime/native_model.h"
#include "proto/model/trace.h"
#include "proto/model/units.h"

namespace stalloc {

class NativeFeed final : public BlockObserver {
 public:
  NativeFeed() : BlockObserver(/*listens=*/false) {}

  struct LiveBlock {
    std::uint64_t address = 0;
    Bytes bytes = 0;
    StreamHandle stream = 0;
  };

  [[nodiscard]] bool open() const noexcept { return listens(); }

  // The three below: nothing while it is closed. A block is reported before its caller can free it, ...
  void Allocated(const void* pointer, Bytes bytes, StreamHandle stream) noexcept {
    if (open()) Push({KeyOf(pointer), BlockBytes(bytes), stream});
  }
  // ... and its end before its address can be given out again.
  void Freed(const void* pointer) noexcept {
    if (open()) Push({KeyOf(pointer), 0, 0});
  }
  void EmptiedCache() noexcept {
    if (open()) Push({0, 0, 0});
  }
  // What is kept apart is no part of the model.
  void Began(const BlockBegin& block) override {
    if (!block.apart) Allocated(block.pointer, block.requested, block.stream);
  }
  void Ends(const BlockEnd& block) noexcept override { Freed(block.pointer); }

  // A new model begins with the blocks that collect() returns: those that live, any that come or end meanwhile among
  // them or not.
  template <typename Collect>
  void Open(Collect&& collect) {
    const LockGuard lock(playing_);
    Begin();
    Seed(collect());
  }
  void Close() noexcept;

  struct Figures {
    Bytes peak = 0;  // the most that the model held since the last call
    bool known = false;
  };
  // Plays what has come so far. Not known where it is closed, or too much lives.
  Figures Play() noexcept;

 private:
  struct Event {
    std::uint64_t address = 0;  // 0: the cache was emptied
    Bytes bytes = 0;            // 0: a free
    StreamHandle stream = 0;
  };
  static constexpr std::size_t kMostEvents = 4096;

  static std::uint64_t KeyOf(const void* pointer) noexcept { return reinterpret_cast<std::uint64_t>(pointer); }
  [[gnu::noinline]] void Push(const Event& event) noexcept;
  // REQUIRE: playing_ is held.
  void Begin() STALLOC_REQUIRES(playing_);
  void Seed(std::vector<LiveBlock> blocks) STALLOC_REQUIRES(playing_);
  void PlayAll() noexcept STALLOC_REQUIRES(playing_);

  SpinMutex appending_;                                       // taken under playing_, or alone
  std::vector<Event> events_ STALLOC_GUARDED_BY(appending_);  // guarded by appending_
  Mutex playing_;                                             // guards what follows
  std::vector<Event> played_ STALLOC_GUARDED_BY(playing_);
  std::unique_ptr<NativeModel> model_ STALLOC_GUARDED_BY(playing_);
};

}  // namespace stalloc
