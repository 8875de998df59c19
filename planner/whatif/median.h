// The median of times; of an even number, the lower of the two in the middle.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace stalloc::planner {

// 0: there are none.
[[nodiscard]] inline std::int64_t MedianOf(std::vector<std::int64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace stalloc::planner
