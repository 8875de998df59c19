#include "planner/packing/problem/problem.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace stalloc::planner {

Bytes LoadBound(const Problem& problem) {
  // By tick; what ends there, with its bytes below 0, comes before what begins.
  std::vector<std::pair<Tick, std::int64_t>> changes;
  changes.reserve(2 * problem.blocks.size());
  const auto add = [&](const Lifetime& life, Bytes bytes) {
    changes.emplace_back(life.begin, static_cast<std::int64_t>(bytes));
    changes.emplace_back(life.end, -static_cast<std::int64_t>(bytes));
  };
  for (const Block& block : problem.blocks) {
    add(block.life, block.bytes);
    if (block.second_life) add(*block.second_life, block.bytes);
  }
  std::sort(changes.begin(), changes.end());
  std::int64_t load = 0;
  std::int64_t greatest = 0;
  for (const auto& [tick, bytes] : changes) greatest = std::max(greatest, load += bytes);
  return static_cast<Bytes>(greatest);
}

}  // namespace stalloc::planner
