// EventRing: a bounded queue from many threads to one writer, in memory that is taken once.
//
//            head (writer)                     tail (next ticket)
//              v                                 v
//   | free | ready | ready | being filled | ready |  free  |  free  |
//
// A caller takes a ticket, which fixes its event's place in the order, fills the cell of that ticket and publishes it.
// No event is dropped: when the ring is full, the caller waits for the writer. The usual path is one atomic add and one
// cache line written; it makes no system call, except that every half ring one caller wakes the writer, which otherwise
// looks by itself.
//
// Any number of producers, one consumer. Neither side takes heap memory. Waiting is on futex words, so a forked child
// may drop its copy at any moment.
//
// Source: after D. Vyukov's bounded queue (per-cell sequence numbers); here the writer publishes its position instead
// of touching the cells again, so that a producer's first access to a cell is its own store and not a cache miss.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "allocator/base/futex.h"
#include "allocator/base/mapped_array.h"
#include "proto/model/trace.h"
#include "proto/model/units.h"

namespace stalloc {

// Those that become rows (EventKind), and other notices to the writer, in their order.
enum class RecordedKind : std::uint8_t { kAlloc, kFree, kRecordStream, kMark, kHeld, kTensor, kUse, kBegin };

// What a caller hands over. Which fields mean something depends on `kind`.
struct RecordedEvent {
  std::uint64_t subject;  // address; kMark: id in the mark table; kHeld, kBegin: unused
  std::uint64_t value;    // bytes; kUse: when the operation began, CLOCK_MONOTONIC
  StreamHandle stream;    // kTensor: offset in the block
  std::int64_t time_ns;   // CLOCK_MONOTONIC
  std::uint32_t thread;   // token of the thread, see recorder.cc; kTensor, kUse: number of the name
  std::uint32_t flags;    // kTensor: role; kUse: UseKind
  DeviceIndex device;
  std::uint32_t stack;  // kAlloc: see PythonStacks::Capture
  RecordedKind kind;
};

class EventRing {
 public:
  // `capacity` is rounded up to a power of two.
  explicit EventRing(std::size_t capacity)
      : cells_(std::bit_ceil(std::max<std::size_t>(capacity, 2))), mask_(cells_.size() - 1) {
    cells_.Populate();
  }
  EventRing(const EventRing&) = delete;
  EventRing& operator=(const EventRing&) = delete;

  // Producers ---------------------------------------------------------------------------------------------------------
  void Push(const RecordedEvent& event) noexcept {
    const std::uint64_t ticket = tail_.fetch_add(1, std::memory_order_relaxed);
    if (ticket - head_.load(std::memory_order_acquire) > mask_) AwaitRoom(ticket);
    Cell& cell = cells_[ticket & mask_];
    cell.event = event;
    cell.published.store(ticket + 1, std::memory_order_release);
    if ((ticket & (mask_ >> 1)) == 0) WakeConsumer();
  }
  // Tickets handed out so far: every event that this thread has pushed lies below.
  [[nodiscard]] std::uint64_t tail() const noexcept { return tail_.load(std::memory_order_relaxed); }
  // Times that a producer found the ring full.
  [[nodiscard]] std::uint64_t blocked() const noexcept { return blocked_.load(std::memory_order_relaxed); }
  // Ends a WaitForEvents early.
  void WakeConsumer() noexcept {
    wake_.fetch_add(1, std::memory_order_seq_cst);
    if (consumer_sleeps_.load(std::memory_order_seq_cst)) FutexWakeOne(wake_);
  }

  // The consumer ------------------------------------------------------------------------------------------------------
  // Hands up to `limit` published events to take(event), in order of their tickets. Returns their number.
  template <typename Take>
  std::size_t Consume(std::size_t limit, Take&& take) {
    const std::uint64_t start = head_.load(std::memory_order_relaxed);
    std::uint64_t at = start;
    for (; at - start < limit; ++at) {
      const Cell& cell = cells_[at & mask_];
      if (cell.published.load(std::memory_order_acquire) != at + 1) break;
      take(cell.event);
    }
    if (at != start) Release(at);
    return static_cast<std::size_t>(at - start);
  }
  // Events consumed so far.
  [[nodiscard]] std::uint64_t head() const noexcept { return head_.load(std::memory_order_relaxed); }
  // The word that the wake-ups advance: read it, look for work, then wait with what was read.
  [[nodiscard]] std::uint32_t wake_word() const noexcept { return wake_.load(std::memory_order_seq_cst); }
  void WaitForEvents(std::uint32_t wake_word, std::int64_t nanoseconds) noexcept {
    consumer_sleeps_.store(true, std::memory_order_seq_cst);
    FutexWaitFor(wake_, wake_word, nanoseconds);
    consumer_sleeps_.store(false, std::memory_order_relaxed);
  }

 private:
  struct alignas(64) Cell {
    std::atomic<std::uint64_t> published;  // ticket + 1 of the event inside
    RecordedEvent event;
  };
  static_assert(sizeof(Cell) == 64, "one cache line an event");

  // Waits until the writer has read the cell's old event. Both sides use sequentially consistent operations on waiters_
  // and head_: either the producer sees the new head, or the consumer sees the waiter and advances space_.
  [[gnu::noinline, gnu::cold]] void AwaitRoom(std::uint64_t ticket) noexcept;
  void Release(std::uint64_t head) noexcept;

  MappedArray<Cell> cells_;
  const std::uint64_t mask_;
  alignas(64) std::atomic<std::uint64_t> tail_{0};
  alignas(64) std::atomic<std::uint64_t> head_{0};
  alignas(64) std::atomic<std::uint32_t> wake_{0};
  std::atomic<bool> consumer_sleeps_{false};
  std::atomic<std::uint32_t> space_{0};
  std::atomic<std::uint32_t> waiters_{0};
  std::atomic<std::uint64_t> blocked_{0};
};

}  // namespace stalloc
