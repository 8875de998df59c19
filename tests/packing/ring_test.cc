#include "planner/packing/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/packing/plan_check.h"
#include "planner/packing/size_first_fit.h"
#include "tests/packing/naive.h"
#include "tests/packing/pipeline.h"

namespace stalloc::planner {
namespace {

TEST(RingTest, KeepsTheRoomOfThePeakBesideWhatIsFreedNext) {
  const Problem problem = SmallPipeline(30);
  const Instance instance(problem);
  ASSERT_EQ(instance.load_bound(), kSmallPipelineBound);
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

TEST(RingTest, GivesUpWhereTooManyBlocksRiseAboveTheCeiling) {
  const Problem problem = SmallPipeline(30);
  const Instance instance(problem);
  RingOptions options{.ceiling = instance.load_bound() / 2, .least_steps = 4, .start = 0};
  const RingPacking whole = PlaceRing(instance, options);
  ASSERT_GT(whole.misses, 1u) << "or this test shows nothing";
  options.most_misses = whole.misses;
  EXPECT_EQ(PlaceRing(instance, options).offsets, whole.offsets);
  options.most_misses = whole.misses - 1;
  EXPECT_TRUE(PlaceRing(instance, options).offsets.empty());
}

}  // namespace
}  // namespace stalloc::planner
