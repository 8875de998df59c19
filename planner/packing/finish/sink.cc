#include "planner/packing/finish/sink.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace stalloc::planner {
namespace {

Bytes CommonAlignment(const Problem& problem) {
  Bytes alignment = 1;
  for (const Block& block : problem.blocks) alignment = std::lcm(alignment, block.alignment);
  return alignment;
}

}  // namespace

void SinkResidents(const Problem& problem, Packing* packing) {
  if (problem.blocks.empty()) return;
  const Lifetime axis = AxisOf(problem);
  const Bytes alignment = CommonAlignment(problem);
  const auto is_resident = [&](std::size_t i) { return problem.blocks[i].life == axis; };
  std::vector<std::size_t> order(problem.blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t left, std::size_t right) { return packing->offsets[left] < packing->offsets[right]; });
  Bytes above = 0;  // sum of the residents that lie higher
  for (const std::size_t i : order) {
    if (!is_resident(i)) continue;
    if (problem.blocks[i].bytes % alignment != 0) return;
    above += problem.blocks[i].bytes;
  }
  Bytes sunk = 0;
  for (const std::size_t i : order) {
    const Bytes bytes = problem.blocks[i].bytes;
    if (is_resident(i)) {
      packing->offsets[i] = sunk;
      sunk += bytes;
      above -= bytes;
    } else {
      packing->offsets[i] += above;
    }
  }
}

}  // namespace stalloc::planner
