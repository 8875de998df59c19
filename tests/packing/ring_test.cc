#include "planner/packing/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/packing/plan_check.h"
#include "planner/packing/size_first_fit.h"
#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

// Micro-batches in flight as in a pipeline: each allocates twelve blocks of 2, 1, 2, 1... units, which are freed in
// reverse three rounds later. At the peak of a round, a block of 2 needs the unit that is free all the time together
// with the one that has just been freed.
Problem Pipeline(Tick rounds) {
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

TEST(RingTest, KeepsTheRoomOfThePeakBesideWhatIsFreedNext) {
  const Problem problem = Pipeline(30);
  const Instance instance(problem);
  ASSERT_EQ(instance.load_bound(), 73u);  // four micro-batches of 18, and one unit more
  const auto by_size = MakeSizeFirstFit()->Solve(problem, SolveOptions{});
  EXPECT_GT(by_size.height, instance.load_bound()) << "or this test shows nothing";
  RingPacking best = PlaceRing(instance, {.ceiling = instance.load_bound(), .least_steps = 4, .start = 0});
  for (int i = 1; i < 12; ++i) {
    RingPacking ring = PlaceRing(instance, {.ceiling = instance.load_bound(), .least_steps = 4, .start = i / 12.0});
    if (ring.misses < best.misses) best = ring;
  }
  EXPECT_EQ(best.misses, 0u);
  EXPECT_EQ(best.height, instance.load_bound());
  EXPECT_TRUE(NaiveIsValid(problem, Packing{best.offsets, best.height, 0}));
}

TEST(RingTest, PacksAnythingValidlyAndCountsWhatRisesAboveTheCeiling) {
  std::mt19937_64 source(17);
  for (int round = 0; round < 100; ++round) {
    const Problem problem =
        RandomProblem({.blocks = 40, .ticks = 100, .max_bytes = 50, .second_lives = true, .max_alignment = 8}, source);
    const Instance instance(problem);
    const RingOptions options{.ceiling = instance.load_bound(),
                              .least_steps = static_cast<std::uint32_t>(round % 20),
                              .start = (round % 7) / 7.0};
    const RingPacking ring = PlaceRing(instance, options);
    ASSERT_TRUE(NaiveIsValid(problem, Packing{ring.offsets, ring.height, 0})) << "round " << round;
    std::size_t above = 0;
    for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
      if (ring.offsets[i] + problem.blocks[i].bytes > options.ceiling) ++above;
    }
    ASSERT_EQ(ring.misses, above);
  }
}

}  // namespace
}  // namespace stalloc::planner
