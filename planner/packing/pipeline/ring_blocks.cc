#include "planner/packing/pipeline/ring_blocks.h"

#include <algorithm>

namespace stalloc::planner {
namespace {

std::uint32_t Steps(const Item& item) { return item.end_step - item.start_step; }

double Area(const Item& item) { return static_cast<double>(item.bytes) * Steps(item); }

bool IsRingResident(const Instance& instance, const Item& item) {
  return item.persistent || std::uint64_t{item.span.length() + item.second.length()} * 3 >= instance.positions();
}

template <typename Key>
void SortBy(std::vector<BlockIndex>& blocks, Key key) {
  std::stable_sort(blocks.begin(), blocks.end(), [&](BlockIndex a, BlockIndex b) { return key(a) < key(b); });
}

}  // namespace

RingRole RoleInRing(const Instance& instance, BlockIndex block, std::uint32_t least_steps) {
  const Item& item = instance[block];
  if (IsRingResident(instance, item)) return RingRole::kResident;
  return Steps(item) >= least_steps && item.second.empty() ? RingRole::kLong : RingRole::kShort;
}

RingBlocks::RingBlocks(const Instance& instance, std::uint32_t least_steps) {
  for (BlockIndex block = 0; block < instance.size(); ++block) {
    const RingRole role = RoleInRing(instance, block, least_steps);
    (role == RingRole::kResident ? residents : role == RingRole::kLong ? longs : shorts).push_back(block);
  }
  SortBy(residents, [&](BlockIndex block) { return -static_cast<double>(instance[block].bytes); });
  SortBy(longs, [&](BlockIndex block) { return instance[block].end_step; });
  SortBy(shorts, [&](BlockIndex block) { return -Area(instance[block]); });
}

}  // namespace stalloc::planner
