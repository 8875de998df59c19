#include "allocator/engine/bytes/occupancy.h"

namespace stalloc {

const LiveRecord* Occupancy::LastIn(std::uint32_t lo, std::uint32_t hi) const noexcept {
  const std::uint64_t start = starts_.LastBefore(hi);
  if (start == BitTree::kNone) return nullptr;
  const LiveRecord* record = table_.Find(start);
  return record->end() > lo ? record : nullptr;
}

std::string Occupancy::CheckInvariants() const {
  if (!starts_.Consistent()) return "occupancy: a summary bit contradicts its word";
  std::size_t in_bits = 0;
  std::uint64_t begin_above = arena_granules_;
  for (std::uint64_t start = starts_.LastBefore(arena_granules_); start != BitTree::kNone;
       start = starts_.LastBefore(start)) {
    const LiveRecord* record = table_.Find(start);
    if (record == nullptr || record->granule != start)
      return "occupancy: a start bit without a block, granule=" + std::to_string(start);
    const std::uint64_t end = start + record->granules;
    if (record->granules == 0 || end > arena_granules_) {
      return "occupancy: a block leaves the arena, granule=" + std::to_string(start);
    }
    if (end > begin_above) return "occupancy: two live blocks overlap at granule=" + std::to_string(begin_above);
    begin_above = start;
    ++in_bits;
  }
  if (in_bits != table_.size()) return "occupancy: more blocks in the table than start bits";
  return {};
}

}  // namespace stalloc
