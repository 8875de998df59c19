#include "allocator/engine/occupancy.h"

#include <algorithm>
#include <bit>

namespace stalloc {
namespace {

constexpr std::uint64_t Bit(std::uint64_t index) { return std::uint64_t{1} << (index & 63); }

}  // namespace

StartBits::StartBits(std::uint64_t limit) : limit_(limit) {
  std::uint64_t bits = std::max<std::uint64_t>(limit, 1);
  do {
    const std::uint64_t words = (bits + 63) / 64;
    levels_[depth_] = MappedArray<std::uint64_t>(words);
    ++depth_;
    bits = words;
  } while (bits > 1);
}

void StartBits::Insert(std::uint64_t granule) noexcept {
  for (std::size_t level = 0; level < depth_; ++level) {
    std::uint64_t& word = levels_[level][granule >> 6];
    const bool summary_is_right = word != 0;
    word |= Bit(granule);
    if (summary_is_right) return;
    granule >>= 6;
  }
}

void StartBits::Erase(std::uint64_t granule) noexcept {
  for (std::size_t level = 0; level < depth_; ++level) {
    std::uint64_t& word = levels_[level][granule >> 6];
    word &= ~Bit(granule);
    if (word != 0) return;
    granule >>= 6;
  }
}

std::uint64_t StartBits::LastBefore(std::uint64_t bound) const noexcept {
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

std::uint64_t StartBits::FirstFrom(std::uint64_t from) const noexcept {
  if (from >= limit_) return kNone;
  std::uint64_t position = from;
  for (std::size_t level = 0; level < depth_; ++level) {
    if (position >> 6 >= levels_[level].size()) return kNone;
    const std::uint64_t found = levels_[level][position >> 6] & (~std::uint64_t{0} << (position & 63));
    if (found != 0) {
      position = (position & ~std::uint64_t{63}) | static_cast<std::uint64_t>(std::countr_zero(found));
      while (level-- > 0) {
        position = position << 6 | static_cast<std::uint64_t>(std::countr_zero(levels_[level][position]));
      }
      return position;
    }
    position = (position >> 6) + 1;
  }
  return kNone;
}

bool StartBits::Consistent() const noexcept {
  for (std::size_t level = 0; level + 1 < depth_; ++level) {
    for (std::size_t word = 0; word < levels_[level].size(); ++word) {
      const bool summary = (levels_[level + 1][word >> 6] >> (word & 63) & 1) != 0;
      if (summary != (levels_[level][word] != 0)) return false;
    }
  }
  return true;
}

// Occupancy -----------------------------------------------------------------------------------------------------------

const LiveRecord* Occupancy::LastIn(std::uint32_t lo, std::uint32_t hi) const noexcept {
  const std::uint64_t start = starts_.LastBefore(hi);
  if (start == StartBits::kNone) return nullptr;
  const LiveRecord* record = table_.Find(start);
  return record->end() > lo ? record : nullptr;
}

std::string Occupancy::CheckInvariants() const {
  if (!starts_.Consistent()) return "occupancy: a summary bit contradicts its word";
  bool all_have_bits = true;
  table_.ForEach([&](std::uint64_t granule, const LiveRecord& record) {
    all_have_bits = all_have_bits && starts_.Contains(granule) && record.granule == granule;
  });
  if (!all_have_bits) return "occupancy: a block of the table has no start bit, or another's place";

  std::size_t in_bits = 0;
  std::uint64_t end_before = 0;
  for (std::uint64_t start = starts_.FirstFrom(0); start != StartBits::kNone; start = starts_.FirstFrom(start + 1)) {
    const LiveRecord* record = table_.Find(start);
    if (record == nullptr) return "occupancy: a start bit without a block, granule=" + std::to_string(start);
    if (start < end_before) return "occupancy: two live blocks overlap at granule=" + std::to_string(start);
    if (record->granules == 0 || std::uint64_t{record->granule} + record->granules > arena_granules_) {
      return "occupancy: a block leaves the arena, granule=" + std::to_string(start);
    }
    end_before = record->end();
    ++in_bits;
  }
  if (in_bits != table_.size()) return "occupancy: more blocks in the table than start bits";
  return {};
}

}  // namespace stalloc
