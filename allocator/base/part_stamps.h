// PartStamps: when something last happened in each part of a line, of which there are some thousand.
//
// The line ends at 2^32 - 2. Not thread-safe; noexcept; memory from mmap, 32 to 64 KB.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "allocator/base/mapped_array.h"

namespace stalloc {

class PartStamps {
 public:
  explicit PartStamps(std::uint32_t end)
      : shift_(static_cast<std::uint32_t>(std::bit_width(end / kParts | 1)) - 1), stamps_((end >> shift_) + 1) {
    stamps_.Populate();
  }

  // It happens in [lo, hi), at a stamp; stamps ascend. REQUIRES: lo < hi, on the line.
  void Set(std::uint32_t lo, std::uint32_t hi, std::uint64_t stamp) noexcept {
    for (std::uint32_t part = lo >> shift_; part <= (hi - 1) >> shift_; ++part) stamps_[part] = stamp;
  }
  // It did not in [lo, hi) after this one. REQUIRES: lo < hi.
  [[nodiscard]] std::uint64_t LastIn(std::uint32_t lo, std::uint32_t hi) const noexcept {
    return *std::max_element(&stamps_[lo >> shift_], &stamps_[(hi - 1) >> shift_] + 1);
  }

 private:
  // Or up to twice as many: 32 MiB each of the addresses that an arena has on a device of 140 GiB.
  static constexpr std::uint32_t kParts = 4096;

  const std::uint32_t shift_;
  MappedArray<std::uint64_t> stamps_;
};

}  // namespace stalloc
