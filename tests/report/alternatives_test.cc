#include "planner/report/alternatives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "planner/analysis/sweep.h"
#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

const Alternative* Find(const std::vector<Alternative>& all, AlternativeKind kind) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Alternative& candidate) { return candidate.kind == kind; });
  return found == all.end() ? nullptr : &*found;
}

// Weights 4096; activations a (layer one, 8192) and b (layer two, 2048); gradients 1024; optimizer scratch 6144.
const std::string kRun = "+w=4096 " + Repeat("I F0 L:one +a=8192 L:two +b=2048 B0 +g=1024 -b -a O +t=6144 -t -g ", 4);

TEST(AlternativesTest, ALayerSavesAsMuchAsNoOtherPeakNeeds) {
  const ScriptFacts facts(kRun);
  // The peak: 4096 + 8192 + 2048 + 1024 = 15360. Without layer one the optimizer's 4096 + 1024 + 6144 = 11264 decide.
  const auto all = FindAlternatives(*facts, 1);
  const auto one = std::find_if(all.begin(), all.end(), [&](const Alternative& candidate) {
    return candidate.kind == AlternativeKind::kRecomputeLayer && candidate.layers == "one";
  });
  ASSERT_NE(one, all.end());
  EXPECT_EQ(one->at_peak, 8192u);
  EXPECT_EQ(one->peak, 11264u);
  EXPECT_EQ(Find(all, AlternativeKind::kRecomputeAll)->peak, 11264u);
  EXPECT_EQ(Find(all, AlternativeKind::kNoOptimizerScratch), nullptr) << "it is not at the peak";
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(),
                             [](const Alternative& a, const Alternative& b) { return a.peak < b.peak; }));
}

TEST(AlternativesTest, LayersCountWithWhatIsInsideThemAndThoseCalledAlikeTogether) {
  const ScriptFacts facts("+w=4096 " + Repeat("I F0 L:m L:m.0 +a=512 L:m.0.up +b=8192 L:m.1 +c=1024 L:m.1.up +d=8192 "
                                              "B0 -d -c -b -a ",
                                              3));
  const auto all = FindAlternatives(*facts, 1);
  const auto saved = [&](const std::string& layers) -> Bytes {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Alternative& candidate) {
      return candidate.kind == AlternativeKind::kRecomputeLayer && candidate.layers == layers;
    });
    return found == all.end() ? 0 : 4096 + 512 + 1024 + 2 * 8192 - found->peak;
  };
  EXPECT_EQ(saved("m.0"), 512u + 8192u);
  EXPECT_EQ(saved("m.1.up"), 8192u);
  EXPECT_EQ(saved("m.*.up"), 2u * 8192u);
  EXPECT_EQ(saved("m.*"), 2u * 8192u + 512u + 1024u);
  EXPECT_EQ(saved("m"), 0u) << "it holds all: that is recompute all";
}

TEST(AlternativesTest, OptimizerScratchAndStateAtThePeak) {
  const ScriptFacts facts("+w=4096 I F0 +a=512 B0 +g=1024 -a O +s=8192 +t=6144 -t -g " +
                          Repeat("I F0 +a=512 B0 +g=1024 -a O +t=6144 -t -g ", 3));
  const auto all = FindAlternatives(*facts, 4);
  EXPECT_EQ(Find(all, AlternativeKind::kNoOptimizerScratch)->peak, 4096u + 8192u + 1024u + 512u);
  EXPECT_EQ(Find(all, AlternativeKind::kOffloadState)->peak, 4096u + 1024u + 6144u);
  EXPECT_EQ(Find(all, AlternativeKind::kShardState)->peak, 4096u + 1024u + 6144u + 8192u / 4);
  EXPECT_EQ(Find(FindAlternatives(*facts, 1), AlternativeKind::kShardState), nullptr);
}

TEST(AlternativesTest, WithoutLayersSizesAreTold) {
  const ScriptFacts facts("+w=4096 " + Repeat("I F0 +a=8192 +b=2048 B0 +t=4096 -t -b -a ", 3));
  const auto all = FindAlternatives(*facts, 1);
  EXPECT_EQ(Find(all, AlternativeKind::kDropActivations)->bytes, 8192u);
  EXPECT_EQ(Find(all, AlternativeKind::kDropActivations)->peak, 4096u + 2048u + 4096u);
  EXPECT_EQ(Find(all, AlternativeKind::kChunk)->bytes, 4096u);
  EXPECT_EQ(Find(all, AlternativeKind::kChunk)->peak, 4096u + 8192u + 2048u + 2048u);
}

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
    const auto corners = FindScaling(*facts);
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

}  // namespace
}  // namespace stalloc::planner
