#include "planner/packing/apart.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "planner/packing/size_first_fit.h"

namespace stalloc::planner {
namespace {

// Some blocks of a problem.
struct Part {
  Problem problem;
  std::vector<std::size_t> blocks;  // their indices in the whole

  void Add(const Block& block, std::size_t index) {
    problem.blocks.push_back(block);
    blocks.push_back(index);
  }
  void Place(const Packing& packing, Bytes above, Packing* whole) const {
    for (std::size_t i = 0; i < blocks.size(); ++i) whole->offsets[blocks[i]] = above + packing.offsets[i];
    whole->height = std::max(whole->height, blocks.empty() ? 0 : above + packing.height);
  }
};

}  // namespace

Packing PackApart(const Problem& problem, Bytes least, const std::function<Packing(const Problem&)>& solve) {
  Part small;
  Part large;
  Bytes alignment = 1;
  for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
    const Block& block = problem.blocks[i];
    (block.bytes < least ? small : large).Add(block, i);
    alignment = std::lcm(alignment, block.alignment);
  }
  Packing packing;
  packing.offsets.resize(problem.blocks.size());
  const Packing below = small.blocks.empty() ? Packing{} : MakeSizeFirstFit()->Solve(small.problem, {});
  small.Place(below, 0, &packing);
  if (!large.blocks.empty()) large.Place(solve(large.problem), RoundUp(below.height, alignment), &packing);
  return packing;
}

}  // namespace stalloc::planner
