#include "planner/packing/problem/problem.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
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

Lifetime AxisOf(const Problem& problem) {
  Lifetime axis = problem.blocks.front().life;
  for (const Block& block : problem.blocks) {
    for (const Lifetime& life : {block.life, block.second_life.value_or(block.life)}) {
      axis.begin = std::min(axis.begin, life.begin);
      axis.end = std::max(axis.end, life.end);
    }
  }
  return axis;
}

std::vector<Bytes> LoadByTick(const Problem& problem, Tick end) {
  std::vector<Bytes> load(static_cast<std::size_t>(end));
  const auto add = [&](const Lifetime& life, Bytes bytes) {
    load[static_cast<std::size_t>(life.begin)] += bytes;
    if (life.end < end) load[static_cast<std::size_t>(life.end)] -= bytes;  // wraps, and back in the sum
  };
  for (const Block& block : problem.blocks) {
    add(block.life, block.bytes);
    if (block.second_life) add(*block.second_life, block.bytes);
  }
  std::partial_sum(load.begin(), load.end(), load.begin());
  return load;
}

}  // namespace stalloc::planner
