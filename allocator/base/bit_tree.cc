#include "allocator/base/bit_tree.h"

#include <algorithm>
#include <bit>

namespace stalloc {
namespace {

constexpr std::uint64_t Bit(std::uint64_t index) { return std::uint64_t{1} << (index & 63); }

}  // namespace

BitTree::BitTree(std::uint64_t limit) : limit_(limit) {
  std::uint64_t bits = std::max<std::uint64_t>(limit, 1);
  do {
    const std::uint64_t words = (bits + 63) / 64;
    levels_[depth_] = MappedArray<std::uint64_t>(words);
    ++depth_;
    bits = words;
  } while (bits > 1);
}

void BitTree::Populate(std::uint64_t bound) noexcept {
  for (std::size_t level = 0; level < depth_; ++level) {
    bound = (bound + 63) / 64;
    levels_[level].Populate(bound);
  }
}

void BitTree::Insert(std::uint64_t member) noexcept {
  for (std::size_t level = 0; level < depth_; ++level) {
    std::uint64_t& word = levels_[level][member >> 6];
    const bool summary_is_right = word != 0;
    word |= Bit(member);
    if (summary_is_right) return;
    member >>= 6;
  }
}

void BitTree::Erase(std::uint64_t member) noexcept {
  for (std::size_t level = 0; level < depth_; ++level) {
    std::uint64_t& word = levels_[level][member >> 6];
    word &= ~Bit(member);
    if (word != 0) return;
    member >>= 6;
  }
}

std::uint64_t BitTree::LastBefore(std::uint64_t bound) const noexcept {
  if (bound == 0 || limit_ == 0) return kNone;
  std::uint64_t position = std::min(bound, limit_) - 1;  // the first candidate, at the level looked at
  for (std::size_t level = 0; level < depth_; ++level) {
    const std::uint64_t up_to = ~std::uint64_t{0} >> (63 - (position & 63));
    const std::uint64_t found = levels_[level][position >> 6] & up_to;
    if (found != 0) {
      position = (position & ~std::uint64_t{63}) | static_cast<std::uint64_t>(63 - std::countl_zero(found));
      while (level-- > 0) {  // down again, to the last member below it
        position = position << 6 | static_cast<std::uint64_t>(63 - std::countl_zero(levels_[level][position]));
      }
      return position;
    }
    if (position >> 6 == 0) return kNone;
    position = (position >> 6) - 1;
  }
  return kNone;
}

bool BitTree::Consistent() const noexcept {
  for (std::size_t level = 0; level + 1 < depth_; ++level) {
    for (std::size_t word = 0; word < levels_[level].size(); ++word) {
      const bool summary = (levels_[level + 1][word >> 6] >> (word & 63) & 1) != 0;
      if (summary != (levels_[level][word] != 0)) return false;
    }
  }
  return true;
}

}  // namespace stalloc
