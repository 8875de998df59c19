#include "planner/whatif/micro_batch_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
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

// Of a loss over all pairs: rows x width, rows x rows, and rows x (rows + 8), in each of two micro-batches' iterations.
std::string Pairs(int rows, bool another) {
  std::string run = "+w=1024 ";
  for (int i = 0; i < 3; ++i) {
    absl::StrAppend(&run, "I F0 +a=", 512 * rows, " +p=", 512 * rows * rows, " ", another ? "+t=512 -t " : "",
                    "+q=", 512 * rows * (rows + 8), " B0 -q -p -a O ");
  }
  return run;
}

TEST(MicroBatchFitTest, PairsOfRowsGrowWithTheSquare) {
  for (const auto& [rows, others] : {std::pair(4, 8), {8, 4}, {4, 6}, {6, 5}}) {
    const ScriptFacts one(Pairs(rows, false));
    const ScriptFacts other(Pairs(others, rows == 6));
    const MicroBatchFit fit = FitMicroBatch(*one, *other, static_cast<double>(others) / rows);
    for (std::size_t i = 0; i + 2 < fit.parts.size(); ++i) {
      if (one->device.allocations[i].bytes != 512u * rows) continue;
      EXPECT_EQ(fit.parts[i], (BlockPart{0, 512 * rows, 0})) << rows;
      EXPECT_EQ(fit.parts[i + 1], (BlockPart{0, 0, 512 * rows * rows})) << rows;
      EXPECT_EQ(fit.parts[i + 2], (BlockPart{0, 512 * rows * 8, 512 * rows * rows})) << rows;
    }
    const Bytes square = 512u * rows * rows;
    EXPECT_EQ(fit.square_bytes, 2 * square + 512u * rows * 8) << rows;
    EXPECT_EQ(fit.unpaired_bytes, 0u) << rows;
    double most = 0;
    for (const ScalingPoint& point : FindScaling(*one, fit.parts)) most = std::max(most, point.At(10));
    EXPECT_DOUBLE_EQ(most, 1024.0 + 512 * (10 * rows + 100 * rows * rows + 10 * rows * (10 * rows + 8))) << rows;
  }
}

TEST(MicroBatchFitTest, WhatGrowsFasterThanTheSquareHasNoPartner) {
  const auto script = [](int bytes) {
    std::string run = "+w=4096 ";
    for (int i = 0; i < 3; ++i) absl::StrAppend(&run, "I F0 +a=", bytes, " B0 -a O ");
    return run;
  };
  const ScriptFacts one(script(512 * 8));
  const ScriptFacts other(script(512 * 64));
  const MicroBatchFit fit = FitMicroBatch(*one, *other, 2);
  EXPECT_EQ(fit.unpaired_bytes, 512u * 8);
  EXPECT_EQ(fit.square_bytes, 0u);
}

// A few bytes more than in proportion are padding, and no square of a large micro-batch comes of them.
TEST(MicroBatchFitTest, PaddingGrowsWithNoSquare) {
  const auto script = [](int bytes) {
    std::string run = "+w=4096 ";
    for (int i = 0; i < 3; ++i) absl::StrAppend(&run, "I F0 +a=", bytes, " B0 -a O ");
    return run;
  };
  const ScriptFacts one(script(1 << 20));
  const ScriptFacts other(script((2 << 20) + 256));
  for (const BlockPart& part : FitMicroBatch(*one, *other, 2).parts) EXPECT_EQ(part.square, 0);
}

}  // namespace
}  // namespace stalloc::planner
