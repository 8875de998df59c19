// RecentEvents: the last few thousand things that happened on one device, for the report of an out-of-memory error.
//
//   writers: take the next number, write the event into slot number % kCapacity, publish the number
//   reader:  takes a slot whose number is the expected one before and after it was read, else leaves that event out
//
// Add costs about 30 ns, most of it the clock; so it is kept only where STALLOC_OOM_REPORT is set. Thread-safe,
// lock-free, no heap memory after construction. Bytes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "allocator/base/mapped_array.h"
#include "proto/model/units.h"

namespace stalloc {

struct RecentEvent {
  enum class Kind : std::uint32_t { kAllocated, kFreed, kStreamRecorded, kMark, kOutOfMemory };

  std::int64_t time_ns = 0;  // MonotonicNanoseconds
  std::uint64_t address = 0;
  Bytes bytes = 0;  // as requested; of a free: rounded, 0 where nobody knows
  StreamHandle stream = 0;
  Kind kind = Kind::kAllocated;
  std::uint32_t detail = 0;  // kAllocated: BlockSource << 8 | MissReason; kMark: MarkKind << 8 | MarkEdge
};

class RecentEvents {
 public:
  static constexpr std::size_t kCapacity = 4096;

  void Add(const RecentEvent& event) noexcept;
  // The last events, oldest first, into `events`; returns how many. Events being written at this moment are left out.
  [[nodiscard]] std::size_t Copy(std::span<RecentEvent, kCapacity> events) const noexcept;

 private:
  static constexpr std::size_t kWords = 5;
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> number;  // of the event that it holds, plus one; 0: none, or one is being written
    std::array<std::atomic<std::uint64_t>, kWords> words;
  };

  std::atomic<std::uint64_t> next_{0};
  MappedArray<Slot> slots_{kCapacity};
};

}  // namespace stalloc
