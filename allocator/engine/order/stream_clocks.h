// StreamClocks: which stream is known to run after which, and the events that make it so (details.md, Stamps).
//
// One counter for the engine: a free draws a stamp, an event draws one before it is recorded. Waits point from work
// that is given later to work that was given earlier: they close no circle. A handle that is given to a new stream does
// no harm: the driver keeps a stream until its work is done.
//
// Thread-safety: the engine's lock guards everything. Methods without a Lock& are called with it held; those with one
// are entered and left so, and release it while they call the fence. noexcept; memory from mmap.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "allocator/base/mapped_array.h"
#include "allocator/base/mutex.h"
#include "allocator/base/spin_mutex.h"
#include "allocator/driver/fence_events.h"
#include "allocator/driver/stream_fence.h"
#include "proto/model/units.h"

namespace stalloc {

using StreamIndex = std::uint16_t;  // of a stream that the engine has met
inline constexpr StreamIndex kNoStream = 0xffff;

// What a request must be ordered after: of each stream, its work up to a stamp.
class StreamNeeds {
 public:
  static constexpr std::size_t kMost = 16;  // more than any training run has
  struct Need {
    StreamIndex stream = kNoStream;
    std::uint64_t stamp = 0;
  };

  // False if there is no space.
  [[nodiscard]] bool Add(StreamIndex stream, std::uint64_t stamp) noexcept {
    for (std::size_t i = 0; i < size_; ++i) {
      if (needs_[i].stream != stream) continue;
      if (needs_[i].stamp < stamp) needs_[i].stamp = stamp;
      return true;
    }
    if (size_ == kMost) return false;
    needs_[size_++] = {stream, stamp};
    return true;
  }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] const Need* begin() const noexcept { return needs_.data(); }
  [[nodiscard]] const Need* end() const noexcept { return needs_.data() + size_; }

 private:
  std::array<Need, kMost> needs_;
  std::size_t size_ = 0;
};

class StreamClocks {
 public:
  using Lock = OpenableLock<SpinMutex>;
  static constexpr std::size_t kMaxStreams = 128;  // torch has 65 a device; LiveRecord has a byte for each index

  // `fence` may be null: then no stream can be ordered after another.
  explicit StreamClocks(StreamFence* fence) noexcept : fence_(fence), streams_(kMaxStreams) {}

  // The stream's index, given at the first meeting; kNoStream if there are too many.
  [[nodiscard]] StreamIndex IndexOf(StreamHandle handle) noexcept;
  [[nodiscard]] StreamHandle HandleOf(StreamIndex stream) const noexcept { return streams_[stream].handle; }
  // Equal handles name equal streams, and work on it is in order.
  [[nodiscard]] bool IsOneStream(StreamIndex stream) const noexcept {
    return streams_[stream].handle != kPerThreadDefaultStream;
  }

  [[nodiscard]] std::uint64_t NewStamp() noexcept { return ++last_stamp_; }

  // Whatever `waiter` is given from now on runs after `stream`'s work up to `stamp`.
  [[nodiscard]] bool IsOrdered(StreamIndex waiter, StreamIndex stream, std::uint64_t stamp) const noexcept {
    if (IsDone(stream, stamp)) return true;
    return IsOneStream(waiter) && (waiter == stream || streams_[waiter].ordered[stream] >= stamp);
  }
  // Some stream of another device was met, if only by its name.
  [[nodiscard]] bool has_other_devices() const noexcept { return has_other_devices_; }
  // To wait for this device says nothing of the stream.
  [[nodiscard]] bool IsOfOtherDevice(StreamIndex stream) const noexcept {
    return stalloc::IsOfOtherDevice(streams_[stream].handle);
  }

  // `stream`'s work up to `stamp` is known to be done.
  [[nodiscard]] bool IsDone(StreamIndex stream, std::uint64_t stamp) const noexcept {
    return streams_[stream].done >= stamp;
  }

  // Some event is after `stream`'s work up to `stamp`, or was and is done.
  [[nodiscard]] bool HasEvent(StreamIndex stream, std::uint64_t stamp) noexcept {
    return IsDone(stream, stamp) || streams_[stream].events.FirstFrom(stamp) != nullptr;
  }

  // details.md, Debts: `own` took bytes that `other` may use up to `stamp`.
  void Owe(StreamIndex own, StreamIndex other, std::uint64_t stamp) noexcept {
    std::uint64_t& owed = streams_[own].owed[other];
    owed = std::max(owed, stamp);
    streams_[own].owes = true;
  }
  // True if visit(other, stamp) is for each debt of `own`.
  template <typename Visit>
  [[nodiscard]] bool AllDebts(StreamIndex own, Visit&& visit) const noexcept {
    if (!streams_[own].owes) return true;
    for (std::size_t other = 0; other < stream_count_; ++other) {
      const std::uint64_t stamp = streams_[own].owed[other];
      if (stamp != 0 && !visit(static_cast<StreamIndex>(other), stamp)) return false;
    }
    return true;
  }

  [[nodiscard]] bool can_order() const noexcept { return fence_ != nullptr; }

  // Makes `waiter` wait for all of it. False when one of them cannot be waited for now; others may have been.
  [[nodiscard]] bool Order(StreamIndex waiter, const StreamNeeds& needs, Lock& lock) noexcept;
  // Records an event after the stream's work, for a later wait. It may fail without harm.
  void RecordEvent(StreamIndex stream, Lock& lock) noexcept {
    if (fence_ != nullptr) Record(stream, kNoStream, lock);
  }
  // Returns when `stream`'s work up to `stamp` is known to be done, or cannot be waited for.
  void Await(StreamIndex stream, std::uint64_t stamp, Lock& lock) noexcept;
  // Finds out what is done, by a few queries, and recycles those events. One thread at a time; a second returns at
  // once.
  void Poll(Lock& lock) noexcept;

  [[nodiscard]] std::uint64_t events_recorded() const noexcept { return events_recorded_; }
  [[nodiscard]] std::uint64_t waits() const noexcept { return waits_; }

 private:
  using Events = FenceEvents<256>;                      // of more the oldest are forgotten
  static constexpr std::uint32_t kQueriesOfStream = 8;  // in one poll, besides the newest event
  struct Stream {
    StreamHandle handle = 0;
    std::uint64_t done = 0;  // stamp
    bool owes = false;
    Events events;
    std::array<std::uint64_t, kMaxStreams> ordered{};  // stamps: after which work of which stream it runs
    std::array<std::uint64_t, kMaxStreams> owed{};     // stamps: details.md, Debts
  };

  bool OrderBehind(StreamIndex waiter, const StreamNeeds::Need& need, Lock& lock) noexcept;
  // After the stream's work up to now; a `waiter`, if there is one, is made to wait for it.
  bool Record(StreamIndex stream, StreamIndex waiter, Lock& lock) noexcept;
  void NoteOrdered(StreamIndex waiter, StreamIndex stream, std::uint64_t stamp) noexcept;
  [[nodiscard]] bool Query(Stream& stream, Events::Entry& entry, Lock& lock) noexcept;
  // call(event) without the lock.
  template <typename Call>
  [[nodiscard]] static bool QueryPinned(Stream& stream, Events::Entry& entry, Lock& lock, Call&& call) noexcept;
  void PollStream(Stream& stream, Lock& lock) noexcept;
  void DropDone(Stream& stream, Lock& lock) noexcept;
  void Recycle(StreamFence::Event event, Lock& lock) noexcept;

  StreamFence* const fence_;
  MappedArray<Stream> streams_;
  std::size_t stream_count_ = 0;
  std::uint64_t last_stamp_ = 0;
  std::uint64_t events_recorded_ = 0;
  std::uint64_t waits_ = 0;
  bool polling_ = false;
  bool has_other_devices_ = false;
};

}  // namespace stalloc
