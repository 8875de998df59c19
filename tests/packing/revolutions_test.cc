#include "planner/packing/pipeline/revolutions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/packing/pipeline/ring_blocks.h"
#include "planner/packing/problem/plan_check.h"
#include "planner/packing/search/core.h"
#include "planner/packing/search/solver.h"
#include "planner/synth/generator.h"
#include "planner/synth/options.h"
#include "planner/synth/trace_problem.h"
#include "tests/packing/naive.h"
#include "tests/packing/pipeline.h"

namespace stalloc::planner {
namespace {

Bytes Height(const Problem& problem, const std::vector<Offset>& offsets) {
  Bytes height = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) height = std::max(height, offsets[i] + problem.blocks[i].bytes);
  return height;
}

std::optional<std::vector<Offset>> Pack(const Problem& problem, std::uint32_t least_steps, std::uint64_t patience) {
  const Instance instance(problem);
  const SolveOptions options;
  SearchState state(instance, options);
  return PackRevolutions(instance, state,
                         {.ceiling = instance.load_bound(), .least_steps = least_steps, .patience = patience});
}

// The blocks that decide the height of a long run of equal micro-batches, four in flight.
class LongRun {
 public:
  LongRun() : problem_(Synthesized()), whole_(problem_), core_(whole_, 0.5, LightBytes(whole_)) {}

  [[nodiscard]] const Instance& instance() const { return core_.instance(); }

 private:
  static Problem Synthesized() {
    SynthOptions options;
    options.micro_batches = 150;
    options.iterations = 1;
    const absl::StatusOr<Trace> trace = Synthesize(options);
    EXPECT_TRUE(trace.ok());
    return ProblemOfTrace(*trace);
  }

  const Problem problem_;
  const Instance whole_;
  const Core core_;
};

TEST(RevolutionsTest, ALongRunIsPackedAtItsBound) {
  const LongRun run;
  const Bytes bound = run.instance().load_bound();
  const Problem& problem = run.instance().problem();
  const auto offsets = Pack(problem, kLeastRingSteps, 2'000'000);
  ASSERT_TRUE(offsets);
  EXPECT_EQ(Height(problem, *offsets), bound);
  EXPECT_TRUE(CheckPacking(problem, Packing{*offsets, bound, 0}).ok());
}

TEST(RevolutionsTest, AFirstRevolutionMayBeginAnywhere) {
  const Problem problem = SmallPipeline(30);
  const auto offsets = Pack(problem, 4, 200'000);
  ASSERT_TRUE(offsets);
  EXPECT_EQ(Height(problem, *offsets), kSmallPipelineBound);
  EXPECT_TRUE(NaiveIsValid(problem, Packing{*offsets, kSmallPipelineBound, 0}));
}

TEST(RevolutionsTest, GivesUpWhenPatienceEnds) { EXPECT_FALSE(Pack(SmallPipeline(30), 4, 10)); }

TEST(RevolutionsTest, ResidentsLieBelowTheRing) {
  Problem problem = SmallPipeline(30);
  const Tick end = problem.blocks.back().life.end + 1000;
  problem.blocks.push_back({.id = 9000, .bytes = 7, .life = {0, end}, .persistent = true});
  const auto offsets = Pack(problem, 4, 200'000);
  ASSERT_TRUE(offsets);
  EXPECT_EQ(offsets->back(), 0u);
  EXPECT_TRUE(NaiveIsValid(problem, Packing{*offsets, kSmallPipelineBound + 7, 0}));
}

TEST(RevolutionsTest, BlocksWithTwoLivesAreLeftToOthers) {
  Problem problem = SmallPipeline(30);
  problem.blocks.push_back({.id = 9000, .bytes = 1, .life = {0, 1}, .second_life = Lifetime{50, 51}});
  EXPECT_FALSE(Pack(problem, 4, 200'000));
}

// Lives of all lengths, sometimes aligned: a packing is valid and below the ceiling, or there is none.
TEST(RevolutionsTest, WhatItPacksIsValid) {
  std::mt19937_64 source(23);
  int packed = 0;
  for (int round = 0; round < 300; ++round) {
    const Problem problem =
        RandomProblem({.blocks = 60, .ticks = 200, .max_bytes = 30, .max_alignment = round % 3 == 0 ? 4u : 1u}, source);
    const Instance instance(problem);
    const SolveOptions options;
    SearchState state(instance, options);
    const Bytes ceiling = instance.load_bound() * 3 / 2;
    const auto offsets = PackRevolutions(
        instance, state,
        {.ceiling = ceiling, .least_steps = static_cast<std::uint32_t>(1 + round % 10), .patience = 50'000});
    if (!offsets) continue;
    ++packed;
    ASSERT_LE(Height(problem, *offsets), ceiling);
    ASSERT_TRUE(NaiveIsValid(problem, Packing{*offsets, Height(problem, *offsets), 0})) << "round " << round;
  }
  EXPECT_GT(packed, 20);
}

}  // namespace
}  // namespace stalloc::planner
