#include "planner/packing/pipeline/interleaved.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "planner/packing/pipeline/pass_rounds.h"
#include "planner/packing/problem/plan_check.h"
#include "planner/packing/search/size_first_fit.h"
#include "planner/synth/generator.h"
#include "planner/synth/trace_problem.h"
#include "tests/packing/named_solver.h"

namespace stalloc::planner {
namespace {

constexpr Bytes kMiB = Bytes{1} << 20;

Problem MakeProblem(const SynthOptions& options) {
  absl::StatusOr<Trace> trace = Synthesize(options);
  EXPECT_TRUE(trace.ok()) << trace.status();
  return ProblemOfTrace(*trace);
}

SynthOptions Preset() {
  SynthOptions options = *FindSynthPreset("interleaved");
  options.micro_batches = 36;
  return options;
}

// The load bound, where first fit by size misses it.
void ExpectOptimal(const Problem& problem) {
  const Bytes bound = LoadBound(problem);
  EXPECT_GT(MakeSizeFirstFit()->Solve(problem, {}).height, bound) << "or this shows nothing";
  const Packing packing = NamedSolver("interleaved")->Solve(problem, {});
  EXPECT_TRUE(CheckPacking(problem, packing).ok());
  EXPECT_EQ(packing.height, bound);
}

TEST(InterleavedTest, ReachesTheLoadBound) { ExpectOptimal(MakeProblem(Preset())); }

TEST(InterleavedTest, ReachesTheLoadBoundOfLongerRunsAndOfOtherPipelines) {
  SynthOptions longer = Preset();
  longer.micro_batches = 120;
  longer.iterations = 1;
  ExpectOptimal(MakeProblem(longer));
  SynthOptions two_chunks = Preset();
  two_chunks.chunks = 2;
  ExpectOptimal(MakeProblem(two_chunks));
  SynthOptions later_stage = Preset();
  later_stage.stage = 2;
  ExpectOptimal(MakeProblem(later_stage));
}

TEST(InterleavedTest, LeavesResidentsRoomBelow) {
  SynthOptions options = Preset();
  options.state = ModelState::kFull;
  ExpectOptimal(MakeProblem(options));
}

TEST(InterleavedTest, TheSameForTheSameSeedWhateverTheThreads) {
  const Problem problem = MakeProblem(Preset());
  const Packing one = NamedSolver("interleaved")->Solve(problem, {.seed = 5, .threads = 1});
  const Packing two = NamedSolver("interleaved")->Solve(problem, {.seed = 5, .threads = 2});
  EXPECT_EQ(one.offsets, two.offsets);
}

TEST(InterleavedTest, IsNotSearchedWhenStopped) {
  const Problem problem = MakeProblem(Preset());
  const std::atomic<bool> stop{true};
  const Packing packing = NamedSolver("interleaved")->Solve(problem, {.stop = &stop});
  EXPECT_TRUE(CheckPacking(problem, packing).ok());
  EXPECT_EQ(packing.height, MakeSizeFirstFit()->Solve(problem, {}).height);
  EXPECT_GT(packing.height, LoadBound(problem)) << "or this shows nothing";
}

TEST(PassRoundsTest, FindsRoundsRoomAndCriticalPiece) {
  const Problem problem = MakeProblem(Preset());
  const Instance instance(problem);
  const std::vector<PassRounds> iterations = FindPassRounds(instance, kLeastPassSteps);
  ASSERT_EQ(iterations.size(), 2u);
  for (const PassRounds& rounds : iterations) {
    // Four chunks of 36 micro-batches; 2 * 3 + 3 * 4 passes go forward before the first backward pass.
    EXPECT_EQ(rounds.passes.size(), 4u * 36);
    EXPECT_EQ(rounds.in_flight, 19u);
    EXPECT_EQ(rounds.rounds, 4u * 36 - 18);
    EXPECT_TRUE(rounds.interleaved());
    // A dropout mask of hidden * sequence bytes; a gradient of the inner width is what it makes room for.
    EXPECT_EQ(rounds.critical_bytes, 16 * kMiB);
    EXPECT_EQ(rounds.room_bytes, 112 * kMiB);
    EXPECT_EQ(rounds.pass_bytes % rounds.unit, 0u);
    std::set<BlockIndex> seen;
    for (const Pass& pass : rounds.passes) {
      Bytes bytes = 0;
      for (const std::vector<BlockIndex>* blocks : {&pass.critical, &pass.body}) {
        for (const BlockIndex block : *blocks) {
          EXPECT_TRUE(seen.insert(block).second) << "in two passes";
          bytes += instance[block].bytes;
        }
      }
      EXPECT_EQ(bytes, rounds.pass_bytes);
    }
  }
}

TEST(PassRoundsTest, FirstInFirstOutIsNotInterleaved) {
  SynthOptions options = *FindSynthPreset("dense");
  options.micro_batches = 36;
  const Problem problem = MakeProblem(options);
  const Instance instance(problem);
  for (const PassRounds& rounds : FindPassRounds(instance, kLeastPassSteps)) {
    EXPECT_FALSE(rounds.interleaved());
  }
}

TEST(PassRoundsTest, NothingWhereNoRoundsAre) {
  Problem problem;
  for (std::uint64_t i = 0; i < 200; ++i) {
    problem.blocks.push_back(
        {.id = i, .bytes = 1 + i % 5, .life = {static_cast<Tick>(i), static_cast<Tick>(i + 1 + i * i % 90)}});
  }
  const Instance instance(problem);
  EXPECT_TRUE(FindPassRounds(instance, kLeastPassSteps).empty());
  const Problem empty;
  const Instance nothing(empty);
  EXPECT_TRUE(FindPassRounds(nothing, kLeastPassSteps).empty());
}

}  // namespace
}  // namespace stalloc::planner
