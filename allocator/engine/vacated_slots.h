// VacatedSlots: slots whose owners live elsewhere, because another block was still there when they came: idle until
// the owner's block is freed, which the plan does not know.
//
// Note [Vacated slots]
// Where frees come late (of a communication library's threads, of Python's garbage collector) a long-lived block that
// finds its slot taken for a moment leaves it empty for long. Were that room not used, the arena would grow by the
// block for good: in a recorded pipeline with 1 % of its frees up to 16 requests late by 3 % of the arena.
//
// Remembers the last kMost of them. Time is counted in requests of the run. Not thread-safe; noexcept, no heap.
// Offsets in granules of kBlockAlignment bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace stalloc {

class VacatedSlots {
 public:
  // The owner of [lo, hi) is elsewhere, and would have been there until `end`.
  void Add(std::uint32_t lo, std::uint32_t hi, std::uint64_t end) noexcept { slots_[next_++ % kMost] = {lo, hi, end}; }

  // Calls visit(lo, hi) for each that is idle until `end`, and longer than `granules`.
  template <typename Visit>
  void ForEachUntil(std::uint64_t end, std::uint32_t granules, Visit&& visit) const noexcept {
    for (const Slot& slot : slots_) {
      if (slot.end >= end && slot.hi - slot.lo >= granules) visit(slot.lo, slot.hi);
    }
  }

 private:
  static constexpr std::size_t kMost = 256;
  struct Slot {
    std::uint32_t lo = 0;
    std::uint32_t hi = 0;
    std::uint64_t end = 0;
  };
  std::array<Slot, kMost> slots_{};
  std::size_t next_ = 0;
};

}  // namespace stalloc
