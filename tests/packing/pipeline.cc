#include "tests/packing/pipeline.h"

namespace stalloc::planner {

Problem SmallPipeline(Tick rounds) {
  constexpr Tick kRound = 40;
  constexpr Tick kLayers = 12;
  constexpr Tick kDepth = 4;
  Problem problem;
  const auto add = [&](Bytes bytes, Tick begin, Tick end) {
    problem.blocks.push_back({.id = problem.blocks.size(), .bytes = bytes, .life = {begin, end}});
  };
  for (Tick round = 0; round < rounds; ++round) {
    const Tick begin = round * kRound;
    const Tick backward = (round + kDepth - 1) * kRound + kLayers;
    for (Tick layer = 0; layer < kLayers; ++layer) {
      add(layer % 2 == 0 ? 2 : 1, begin + layer, backward + 2 * (kLayers - 1 - layer));
    }
    if (round + 1 >= kDepth) add(2, begin + kLayers, begin + kLayers + 2);
  }
  return problem;
}

}  // namespace stalloc::planner
