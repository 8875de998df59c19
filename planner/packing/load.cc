#include "planner/packing/load.h"

#include <cstddef>
#include <numeric>

namespace stalloc::planner {

std::vector<Bytes> LoadByTick(const Problem& problem, Tick end) {
  std::vector<Bytes> load(static_cast<std::size_t>(end));
  const auto add = [&](const Lifetime& life, Bytes bytes) {
    load[static_cast<std::size_t>(life.begin)] += bytes;
    if (life.end < end) load[static_cast<std::size_t>(life.end)] -= bytes;  // wraps, and back in the sum
  };
  for (const Block& block : problem.blocks) {
    add(block.life, block.bytes);
    if (block.second_life.has_value()) add(*block.second_life, block.bytes);
  }
  std::partial_sum(load.begin(), load.end(), load.begin());
  return load;
}

}  // namespace stalloc::planner
