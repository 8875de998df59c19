#include "planner/packing/finish/apart.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <vector>

#include "planner/packing/search/size_first_fit.h"

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

Bytes LoadBoundOf(const Problem& problem, const std::function<bool(Bytes)>& is_chosen) {
  Problem chosen;
  std::ranges::copy_if(problem.blocks, std::back_inserter(chosen.blocks),
                       [&](const Block& block) { return is_chosen(block.bytes); });
  return LoadBound(chosen);
}

}  // namespace

Bytes WorthApart(const Problem& problem, Bytes most, Bytes height) {
  constexpr Bytes kStep = 4;
  for (Bytes least = most; least > kBlockAlignment; least /= kStep) {
    const Bytes small = LoadBoundOf(problem, [least](Bytes bytes) { return bytes < least; });
    const Bytes large = LoadBoundOf(problem, [least](Bytes bytes) { return bytes >= least; });
    if (small + large <= height) return least;
  }
  return 0;
}

Packing PackApart(const Problem& problem, Bytes least, const std::function<Packing(const Problem&, Work)>& solve) {
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
  packing.work = below.work;
  if (large.blocks.empty()) return packing;
  const Packing above = solve(large.problem, below.work);
  large.Place(above, RoundUp(below.height, alignment), &packing);
  packing.work += above.work;
  return packing;
}

Packing LiftApart(const Problem& problem, Bytes least, const Packing& packing) {
  return PackApart(problem, least, [&](const Problem& /*large*/, Work /*spent*/) {
    Packing kept;
    for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
      const Bytes bytes = problem.blocks[i].bytes;
      if (bytes < least) continue;
      kept.offsets.push_back(packing.offsets[i]);
      kept.height = std::max(kept.height, packing.offsets[i] + bytes);
    }
    return kept;
  });
}

}  // namespace stalloc::planner
