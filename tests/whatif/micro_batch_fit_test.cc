#include "planner/whatif/micro_batch_fit.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

// Two experts whose tokens are shared out anew in each run; their gradients come in the order in which they are used.
std::string Experts(int rows, int first, int second, bool swapped) {
  const auto gradients = [](char expert, int bytes) {
    return absl::StrCat("+g", std::string(1, expert), "=", bytes, " ");
  };
  std::string script = "+w=4096 ";
  for (int iteration = 0; iteration < 3; ++iteration) {
    absl::StrAppend(&script, "I F0 +x=", 1024 * rows, " +a=", 512 * first, " +b=", 512 * second, " B0 -b -a -x ");
    absl::StrAppend(&script, swapped ? gradients('b', 16384) : gradients('a', 32768));
    absl::StrAppend(&script, swapped ? gradients('a', 32768) : gradients('b', 16384), "O -ga -gb ");
  }
  return script;
}

TEST(MicroBatchFitTest, WhatBelongsToTheModelNeverGrows) {
  const ScriptFacts larger(Experts(8, 10, 6, false));
  const ScriptFacts smaller(Experts(4, 5, 3, true));
  const MicroBatchFit fit = FitMicroBatch(*larger, *smaller, 0.5);
  ASSERT_EQ(fit.parts.size(), larger->blocks.size());
  std::int64_t grows = 0;
  for (std::size_t i = 0; i < fit.parts.size(); ++i) {
    const MemoryClass memory_class = larger->blocks[i].memory_class;
    if (memory_class == MemoryClass::kGradients || memory_class == MemoryClass::kWeights) {
      EXPECT_EQ(fit.parts[i].scaling, 0) << i;
    }
    grows += fit.parts[i].scaling;
  }
  EXPECT_EQ(grows, 3 * (8 * 1024 + 16 * 512)) << "what experts share out grows as a whole";
}

// Tokens of an expert in each iteration: no other run has the same, and half the tokens would seem to be more or less.
TEST(MicroBatchFitTest, WhatVariesGrowsWithTheMicroBatch) {
  const auto script = [](std::initializer_list<int> tokens) {
    std::string run = "+w=4096 ";
    for (const int count : tokens) absl::StrAppend(&run, "I F0 +x=8192 +e=", 512 * count, " B0 -e -x O ");
    return run;
  };
  const ScriptFacts larger(script({20, 28, 16, 24}));
  const ScriptFacts smaller(script({19, 15, 9, 20}));
  const MicroBatchFit fit = FitMicroBatch(*larger, *smaller, 0.5);
  int seen = 0;
  for (std::size_t i = 0; i < fit.parts.size(); ++i) {
    if (larger->blocks[i].memory_class != MemoryClass::kDynamic) continue;
    EXPECT_EQ(fit.parts[i].fixed, 0) << i;
    EXPECT_EQ(fit.parts[i].scaling, larger->device.allocations[i].bytes) << i;
    ++seen;
  }
  EXPECT_GE(seen, 3);
}

// Its gradients are gone before the optimizer begins: a copy in another type is what it takes.
TEST(MicroBatchFitTest, WhatOneBackwardPassLeavesForTheNextOneNeverGrows) {
  std::string run = "+w=4096 ";
  for (int i = 0; i < 3; ++i) {
    absl::StrAppend(
        &run, "I F0 +a=2048 B0 +t=1024 -t +g=8192 -a F1 +b=2048 B1 +u=1024 -b -u F2 +c=2048 B2 +v=1024 -c -v -g O ");
  }
  const ScriptFacts facts(run);
  const std::vector<BlockPart> parts = PartsByClass(*facts);
  std::int64_t fixed = 0;
  std::int64_t grows = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Bytes bytes = facts->device.allocations[i].bytes;
    (bytes == 8192 ? fixed : grows) += bytes == 4096 ? 0 : parts[i].scaling;
  }
  EXPECT_EQ(fixed, 0);
  EXPECT_EQ(grows, 3 * 3 * (2048 + 1024)) << "activations, and what a pass frees itself";
}

TEST(MicroBatchFitTest, APairTellsWhatIsFixed) {
  const auto script = [](int bytes) {
    std::string run = "+w=4096 ";
    for (int i = 0; i < 3; ++i) absl::StrAppend(&run, "I F0 +a=", bytes, " B0 -a O ");
    return run;
  };
  const ScriptFacts larger(script(5120));
  const ScriptFacts smaller(script(3072));
  const MicroBatchFit fit = FitMicroBatch(*larger, *smaller, 0.5);
  for (std::size_t i = 0; i < fit.parts.size(); ++i) {
    if (larger->blocks[i].memory_class != MemoryClass::kActivations) continue;
    EXPECT_EQ(fit.parts[i].fixed, 1024);
    EXPECT_EQ(fit.parts[i].scaling, 4096);
  }
}

}  // namespace
}  // namespace stalloc::planner
