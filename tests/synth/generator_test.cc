#include "planner/synth/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "planner/packing/portfolio.h"
#include "planner/packing/problem/plan_check.h"
#include "planner/synth/trace_problem.h"

namespace stalloc::planner {
namespace {

// Small enough for every test to be instant.
SynthOptions Small(const std::string& preset = "dense") {
  SynthOptions options = *FindSynthPreset(preset);
  options.layers = 4 * options.chunks;
  options.stages = 2;
  options.micro_batches = 6;
  return options;
}

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const SynthPreset& preset : SynthPresets()) names.push_back(preset.name);
  return names;
}

class PresetTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, PresetTest, testing::ValuesIn(PresetNames()),
                         [](const testing::TestParamInfo<std::string>& param) { return param.param; });

TEST_P(PresetTest, TheSameSeedGivesTheSameTrace) {
  SynthOptions options = Small(GetParam());
  const Trace first = *Synthesize(options);
  EXPECT_EQ(first.events, Synthesize(options)->events);
  EXPECT_EQ(first.marks, Synthesize(options)->marks);
  options.seed = 2;
  const bool is_random = options.min_sequence != 0 || options.experts != 0;
  EXPECT_EQ(first.events != Synthesize(options)->events, is_random);
}

TEST_P(PresetTest, EveryBlockIsFreedOnceAndRounded) {
  SynthOptions options = Small(GetParam());
  options.second_stream = true;
  const Trace trace = *Synthesize(options);
  std::vector<int> frees(trace.allocations);
  std::uint64_t allocations = 0;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::kAlloc) {
      ASSERT_EQ(event.allocation, allocations++);
      ASSERT_GT(event.bytes, 0u);
      ASSERT_EQ(event.bytes % kBlockAlignment, 0u);
    } else if (event.kind == EventKind::kFree) {
      ASSERT_LT(event.allocation, allocations);
      ++frees[event.allocation];
    }
  }
  EXPECT_EQ(allocations, trace.allocations);
  EXPECT_EQ(std::count(frees.begin(), frees.end(), 1), static_cast<std::ptrdiff_t>(allocations));
}

TEST_P(PresetTest, MarksComeInPairs) {
  const SynthOptions options = Small(GetParam());
  const Trace trace = *Synthesize(options);
  std::vector<Mark> open;
  std::map<MarkKind, std::uint32_t> begun;
  for (const TraceEvent& event : trace.events) {
    if (event.kind != EventKind::kMark) continue;
    Mark mark = trace.marks[event.mark];
    if (mark.edge == MarkEdge::kBegin) {
      ++begun[mark.kind];
      open.push_back(mark);
      continue;
    }
    ASSERT_FALSE(open.empty());
    mark.edge = MarkEdge::kBegin;
    ASSERT_EQ(open.back(), mark);
    open.pop_back();
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(begun[MarkKind::kIteration], options.iterations);
  EXPECT_EQ(begun[MarkKind::kOptimizer], options.iterations);
  EXPECT_EQ(begun[MarkKind::kMicrobatch], options.iterations * options.micro_batches * options.chunks * 2);
}

TEST_P(PresetTest, PacksToTheFloor) {
  const Problem problem = ProblemOfTrace(*Synthesize(Small(GetParam())));
  SolveOptions options;
  const Bytes bound = LoadBound(problem);
  options.capacity = bound + bound * 3 / 1000;  // a single tensor counts for more here than in a long run
  options.work = WorkOfSeconds(20);
  const Packing packing = MakePortfolio()->Solve(problem, options);
  EXPECT_TRUE(CheckPacking(problem, packing).ok());
  EXPECT_LE(packing.height, *options.capacity);
}

TEST(GeneratorTest, LoadGrowsWithTheMicroBatchesInFlight) {
  SynthOptions options = Small();
  options.layers = 16;
  options.stages = 4;
  std::vector<Bytes> peaks;
  for (options.stage = 0; options.stage < 3; ++options.stage) {
    peaks.push_back(LoadBound(ProblemOfTrace(*Synthesize(options))));
  }
  // One micro-batch less on each following stage; the last one has the logits besides.
  const auto ratio = static_cast<double>(peaks[0] - peaks[1]) / static_cast<double>(peaks[1] - peaks[2]);
  EXPECT_NEAR(ratio, 1.0, 0.1);
  EXPECT_GT(peaks[1], peaks[2]);
}

TEST(GeneratorTest, RecomputationLowersThePeak) {
  SynthOptions options = Small();
  options.layers = 16;
  const auto peak = [&](Recompute recompute) {
    options.recompute = recompute;
    return LoadBound(ProblemOfTrace(*Synthesize(options)));
  };
  const Bytes none = peak(Recompute::kOff);
  const Bytes half = peak(Recompute::kHalf);
  const Bytes full = peak(Recompute::kFull);
  EXPECT_LT(half, none * 3 / 4);
  EXPECT_LT(full, half * 3 / 4);
}

TEST(GeneratorTest, WeightsStayAndTheOptimizersStateComesWithTheFirstStep) {
  SynthOptions options = Small();
  const auto left = [&](ModelState state) {
    options.state = state;
    Bytes bytes = 0;
    for (const Block& block : ProblemOfTrace(*Synthesize(options)).blocks) bytes += block.persistent ? block.bytes : 0;
    return bytes;
  };
  EXPECT_EQ(left(ModelState::kAbsent), 0u);
  const Bytes weights = left(ModelState::kWeights);  // 2 bytes a parameter and 4 of gradient
  const Bytes all = left(ModelState::kFull);         // 12 more
  EXPECT_EQ(all, weights * 3);
}

TEST(GeneratorTest, ScalesToAboutSoManyBlocks) {
  for (const SynthPreset& preset : SynthPresets()) {
    for (const std::uint64_t blocks : {std::uint64_t{5000}, std::uint64_t{60000}}) {
      const absl::StatusOr<SynthOptions> options = ScaleToBlocks(preset.options, blocks);
      ASSERT_TRUE(options.ok()) << preset.name << ": " << options.status();
      const auto made = static_cast<double>(Synthesize(*options)->allocations);
      EXPECT_NEAR(made, static_cast<double>(blocks), 0.3 * static_cast<double>(blocks)) << preset.name;
    }
  }
}

TEST(GeneratorTest, RefusesWhatIsTooSmallOrTooBig) {
  EXPECT_EQ(ScaleToBlocks(Small(), 3).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ScaleToBlocks(Small(), kMaxBlocks + 1).status().code(), absl::StatusCode::kInvalidArgument);
  SynthOptions options = Small();
  options.micro_batches = 1u << 20;
  options.iterations = 1u << 20;
  EXPECT_EQ(Synthesize(options).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stalloc::planner
