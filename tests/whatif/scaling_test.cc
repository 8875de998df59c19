#include "planner/whatif/scaling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/analysis/sweep.h"
#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

TEST(ScalingTest, CornersGiveThePeakAtEveryScale) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    std::string script = "+w=4096 ";
    for (int iteration = 0; iteration < 3; ++iteration) {
      absl::StrAppend(&script, "I F0 ");
      for (int i = 0; i < 4; ++i) absl::StrAppend(&script, "+a", i, "=", 512 * (1 + random() % 20), " ");
      absl::StrAppend(&script, "B0 ");
      for (int i = 0; i < 4; ++i) {
        absl::StrAppend(&script, "+g", i, "=", 512 * (1 + random() % 20), " -a", i, " ");
      }
      absl::StrAppend(&script, "O +t=", 512 * (1 + random() % 40), " -t -g0 -g1 -g2 -g3 ");
    }
    const ScriptFacts facts(script);
    const auto corners = FindScaling(*facts, PartsByClass(*facts));
    for (const double scale : {0.0, 0.5, 1.0, 3.0, 10.0}) {
      double expected = 0;
      double fixed = 0;
      double scaling = 0;
      Sweep sweep(facts->device);
      for (SweepStep step; sweep.Next(&step);) {
        const auto bytes = static_cast<double>(facts->device.allocations[step.allocation].bytes);
        const BlockFact& fact = facts->blocks[step.allocation];
        const bool optimizer = facts->phases.spans()[fact.phase].kind == PhaseKind::kOptimizer;
        const bool scales = fact.memory_class == MemoryClass::kActivations ||
                            fact.memory_class == MemoryClass::kDynamic ||
                            (fact.memory_class == MemoryClass::kTemporaries && !optimizer);
        (scales ? scaling : fixed) += step.is_free ? -bytes : bytes;
        expected = std::max(expected, fixed + scale * scaling);
      }
      double found = 0;
      for (const ScalingPoint& corner : corners) {
        found = std::max(found, static_cast<double>(corner.fixed) + scale * static_cast<double>(corner.scaling));
      }
      EXPECT_DOUBLE_EQ(found, expected) << script << "x " << scale;
    }
  }
}

TEST(ScalingTest, PeaksOfSquaresAreAtEveryScale) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    std::string script = "+w=4096 ";
    for (int iteration = 0; iteration < 3; ++iteration) {
      absl::StrAppend(&script, "I F0 +a=512 +b=512 +c=512 B0 -b +d=512 -a -c +e=512 -d -e O +s=512 -s ");
    }
    const ScriptFacts facts(script);
    std::vector<BlockPart> parts;
    for (std::size_t i = 0; i < facts->device.allocations.size(); ++i) {
      const auto bytes = [&] { return static_cast<std::int64_t>(random() % 1000); };
      parts.push_back({bytes(), bytes(), random() % 2 == 0 ? bytes() : 0});
    }
    const std::vector<ScalingPoint> points = FindScaling(*facts, parts);
    for (const double scale : {0.0, 0.1, 0.5, 1.0, 2.0, 7.0, 50.0, 1000.0}) {
      BlockPart now;
      double expected = 0;
      Sweep sweep(facts->device);
      for (SweepStep step; sweep.Next(&step);) {
        const BlockPart& part = parts[step.allocation];
        const int sign = step.is_free ? -1 : 1;
        now = {now.fixed + sign * part.fixed, now.scaling + sign * part.scaling, now.square + sign * part.square};
        expected = std::max(expected, now.At(scale));
      }
      double found = 0;
      for (const ScalingPoint& point : points) found = std::max(found, point.At(scale));
      EXPECT_DOUBLE_EQ(found, expected) << round << " x " << scale;
    }
    EXPECT_LT(points.size(), 8u) << "of each scale one, and of three kinds of moments";
  }
}

TEST(ScalingTest, WhatGoesBeforeAnyLayerHasRunIsOfNoMicroBatch) {
  // Weights in another type, then those that stay; a temporary of a forward pass before the first iteration.
  const ScriptFacts facts(
      "+c=8192 +w=4096 -c L:m.0 +t=512 -t LE:m.0=0 I F0 L:m.0 +a=1024 LE:m.0=0 B0 LB:m.0 -a LBE:m.0 O");
  const std::vector<BlockPart> parts = PartsByClass(*facts);
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[0].scaling, 0);
  EXPECT_EQ(parts[1].scaling, 0);
  EXPECT_EQ(parts[2].scaling, 512);
  EXPECT_EQ(parts[3].scaling, 1024);
}

}  // namespace
}  // namespace stalloc::planner
