#include "planner/report/micro_batch_fit.h"

#include <gtest/gtest.h>

#include <string>

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
