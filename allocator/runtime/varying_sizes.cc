#include "allocator/runtime/varying_sizes.h"

#include <algorithm>
#include <iterator>

#include "proto/model/plan_walk.h"

namespace stalloc {

VaryingSizes::VaryingSizes(const DevicePlan& plan) {
  std::vector<Range> ranges;
  for (const Script& script : plan.cycle) {
    for (const Entry& entry : script.entries) {
      if (IsVaryingEntry(entry)) ranges.push_back({entry.min_bytes / 2, entry.max_bytes * 2});
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.least < b.least; });
  for (const Range& range : ranges) {
    if (!ranges_.empty() && range.least <= ranges_.back().most) {
      ranges_.back().most = std::max(ranges_.back().most, range.most);
    } else {
      ranges_.push_back(range);
    }
  }
}

bool VaryingSizes::Contain(Bytes requested) const noexcept {
  const auto above = std::partition_point(ranges_.begin(), ranges_.end(),
                                          [requested](const Range& range) { return range.least <= requested; });
  return above != ranges_.begin() && requested <= std::prev(above)->most;
}

}  // namespace stalloc
