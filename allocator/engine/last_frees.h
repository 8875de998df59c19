// LastFrees: when something was last freed in each part of the arena, so that nobody has to wait for a device that is
// done with it. One store for each part that a freed block has bytes in. Stamps: stream_clocks.h. Offsets in granules.
// Not thread-safe; noexcept; memory from mmap, of which untouched parts cost nothing.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "allocator/base/mapped_array.h"

namespace stalloc {

class LastFrees {
 public:
  explicit LastFrees(std::uint32_t arena_granules)
      : shift_(static_cast<std::uint32_t>(std::bit_width(arena_granules / kParts | 1)) - 1),
        stamps_((arena_granules >> shift_) + 1) {}

  // Blocks of [lo, hi) were freed at `stamp`; stamps ascend. REQUIRES: lo < hi, inside the arena.
  void Note(std::uint32_t lo, std::uint32_t hi, std::uint64_t stamp) noexcept {
    for (std::uint32_t part = lo >> shift_; part <= (hi - 1) >> shift_; ++part) stamps_[part] = stamp;
  }
  // Nothing was freed in [lo, hi) after this stamp.
  [[nodiscard]] std::uint64_t In(std::uint32_t lo, std::uint32_t hi) const noexcept {
    std::uint64_t last = 0;
    for (std::uint32_t part = lo >> shift_; part <= (hi - 1) >> shift_; ++part) last = std::max(last, stamps_[part]);
    return last;
  }

 private:
  // Or up to twice as many: 32 MiB each of the addresses that an arena has on a device of 140 GiB. More cost the usual
  // free more than a move saves.
  static constexpr std::uint32_t kParts = 4096;

  const std::uint32_t shift_;  // of a part's granules
  MappedArray<std::uint64_t> stamps_;
};

}  // namespace stalloc
