#include "planner/synth/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace stalloc::planner {
namespace {

SynthOptions Pipeline(std::uint32_t stages, std::uint32_t stage, std::uint32_t chunks, std::uint32_t micro_batches,
                      Schedule schedule = Schedule::kOneForwardOneBackward) {
  SynthOptions options;
  options.layers = stages * chunks;
  options.stages = stages;
  options.stage = stage;
  options.chunks = chunks;
  options.micro_batches = micro_batches;
  options.schedule = schedule;
  return options;
}

// Greatest number of micro-batches between their forward and their backward pass; fails where a pass is missing, comes
// twice or comes backward first.
std::size_t GreatestInFlight(const SynthOptions& options) {
  using Key = std::pair<std::uint32_t, std::uint32_t>;
  std::set<Key> open;
  std::set<Key> closed;
  std::size_t greatest = 0;
  for (const PipelineStep& step : PipelineSteps(options)) {
    const Key key(step.chunk, step.micro_batch);
    if (step.pass == Pass::kForward) {
      EXPECT_TRUE(open.insert(key).second && !closed.contains(key)) << step.chunk << ' ' << step.micro_batch;
    } else {
      EXPECT_EQ(open.erase(key), 1u) << step.chunk << ' ' << step.micro_batch;
      EXPECT_TRUE(closed.insert(key).second);
    }
    greatest = std::max(greatest, open.size());
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(closed.size(), options.chunks * options.micro_batches);
  return greatest;
}

TEST(ScheduleTest, OneForwardOneBackwardKeepsAsManyMicroBatchesAsStagesFollow) {
  for (std::uint32_t stages = 1; stages <= 5; ++stages) {
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
      for (const std::uint32_t micro_batches : {1u, 3u, 12u}) {
        EXPECT_EQ(GreatestInFlight(Pipeline(stages, stage, 1, micro_batches)), std::min(stages - stage, micro_batches));
      }
    }
  }
}

TEST(ScheduleTest, GPipeKeepsAll) { EXPECT_EQ(GreatestInFlight(Pipeline(4, 2, 1, 9, Schedule::kGPipe)), 9u); }

TEST(ScheduleTest, InterleavingKeepsMore) {
  for (std::uint32_t stage = 0; stage < 4; ++stage) {
    const std::size_t warm_up = 2 * (4 - stage - 1) + 2 * 4;
    EXPECT_EQ(GreatestInFlight(Pipeline(4, stage, 3, 16)), warm_up + 1);
    EXPECT_EQ(GreatestInFlight(Pipeline(4, stage, 3, 4)), std::min<std::size_t>(warm_up + 1, 12));
  }
}

TEST(ScheduleTest, InterleavingRunsOneRoundThroughAChunkAfterTheOther) {
  const std::vector<PipelineStep> steps = PipelineSteps(Pipeline(2, 1, 2, 2));
  const std::vector<PipelineStep> expected = {
      {Pass::kForward, 0, 0}, {Pass::kForward, 0, 1},  {Pass::kForward, 1, 0},  {Pass::kBackward, 1, 0},
      {Pass::kForward, 1, 1}, {Pass::kBackward, 1, 1}, {Pass::kBackward, 0, 0}, {Pass::kBackward, 0, 1},
  };
  EXPECT_EQ(steps, expected);
}

}  // namespace
}  // namespace stalloc::planner
