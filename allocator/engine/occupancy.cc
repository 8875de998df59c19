#include "allocator/engine/occupancy.h"

namespace stalloc {

Occupancy::Occupancy(std::uint32_t arena_granules, std::size_t max_blocks)
    : arena_granules_(arena_granules), starts_(arena_granules), table_(max_blocks) {}

const LiveRecord* Occupancy::LastIn(std::uint32_t lo, std::uint32_t hi) const noexcept {
  const std::uint64_t start = starts_.LastBefore(hi);
  if (start == StartBits::kNone) return nullptr;
  const LiveRecord* record = table_.Find(start);
  return record->end() > lo ? record : nullptr;
}

void Occupancy::Insert(const LiveRecord& record) noexcept {
  starts_.Insert(record.granule);
  table_.Insert(record.granule, record);
}

void Occupancy::Erase(std::uint32_t granule) noexcept {
  starts_.Erase(granule);
  table_.Erase(granule);
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
