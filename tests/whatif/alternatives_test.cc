#include "planner/whatif/alternatives.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

const Alternative* Find(const std::vector<Alternative>& all, AlternativeKind kind) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Alternative& candidate) { return candidate.kind == kind; });
  return found == all.end() ? nullptr : &*found;
}

const Alternative* FindLayers(const std::vector<Alternative>& all, AlternativeKind kind, const std::string& layers) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Alternative& candidate) {
    return candidate.kind == kind && candidate.layers == layers;
  });
  return found == all.end() ? nullptr : &*found;
}

// Weights 4096; activations a (layer one, 8192) and b (layer two, 2048); gradients 1024; optimizer scratch 6144.
const std::string kRun = "+w=4096 " + Repeat(
                                          "I F0 L:one +a=8192 LE:one=0 L:two +b=2048 LE:two=0 B0 +g=1024 LB:two -b "
                                          "LBE:two LB:one -a LBE:one O +t=6144 -t -g ",
                                          4);

TEST(AlternativesTest, ALayerSavesAsMuchAsNoOtherPeakNeeds) {
  const ScriptFacts facts(kRun);
  // The peak: 4096 + 8192 + 2048 + 1024 = 15360. Layer one's 8192 come back when layer two's have gone.
  const auto all = FindAlternatives(*facts, 1);
  const Alternative* one = FindLayers(all, AlternativeKind::kRecomputeLayer, "one");
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(one->at_peak, 8192u);
  EXPECT_EQ(one->moved, 8192u);
  EXPECT_EQ(one->peak, 4096u + 8192u + 1024u);
  EXPECT_FALSE(one->at_least);
  EXPECT_EQ(FindLayers(all, AlternativeKind::kRecomputeLayer, "two"), nullptr) << "it comes back at the peak";
  EXPECT_EQ(Find(all, AlternativeKind::kNoOptimizerScratch), nullptr) << "it is not at the peak";
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(),
                             [](const Alternative& a, const Alternative& b) { return a.peak < b.peak; }));
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

TEST(AlternativesTest, MoreIsSharedMoreIsSaved) {
  const ScriptFacts facts("+w=4096 I F0 +a=512 B0 +g=1024 -a O +s=8192 -g " +
                          Repeat("I F0 +a=512 B0 +g=1024 -a O -g ", 3));
  const auto all = FindAlternatives(*facts, 2);
  EXPECT_EQ(Find(all, AlternativeKind::kShardState)->peak, 4096u + 512u + 1024u + 4096u);
  EXPECT_EQ(Find(all, AlternativeKind::kShardGradients)->peak, 4096u + 512u + 512u + 4096u);
  EXPECT_EQ(Find(all, AlternativeKind::kShardAll)->peak, 2048u + 512u + 512u + 4096u);
}

TEST(AlternativesTest, TheLossInPartsKeepsLayers) {
  // Two blocks of logits at the turn, in four parts; the layers' blocks of 1024 stay.
  const ScriptFacts facts("+w=4096 " + Repeat("I F0 +a=1024 +b=1024 +x=1024 +y=1024 +z=1024 +l=8192 B0 +d=8192 -d -l "
                                              "-z -y -x +c=1024 -c -b -a ",
                                              3));
  const auto all = FindAlternatives(*facts, 1);
  const Alternative* loss = Find(all, AlternativeKind::kChunkLoss);
  ASSERT_NE(loss, nullptr);
  EXPECT_EQ(loss->bytes, 8192u);
  EXPECT_EQ(loss->at_peak, 2u * 8192u);
  EXPECT_EQ(loss->peak, 4096u + 5u * 1024u + 2u * 8192u / 4u);
  EXPECT_EQ(loss->moved, 2u * 8192u) << "of one iteration";
}

TEST(AlternativesTest, WhatIsFreedLateIsPlayedAsFreedInTime) {
  // A variable of the program keeps the logits until the next forward pass has others.
  const ScriptFacts facts("+w=4096 I F0 +a=2048 +l=8192 B0 -a O " +
                          Repeat("I F0 +a=2048 +m=8192 -l B0 -a O I F0 +a=2048 +l=8192 -m B0 -a O +t=512 -t ", 3));
  const auto all = FindAlternatives(*facts, 1);
  const Alternative* late = Find(all, AlternativeKind::kFreeLate);
  ASSERT_NE(late, nullptr);
  EXPECT_EQ(late->late, LateKind::kAfterBackward);
  EXPECT_EQ(late->at_peak, 8192u);
  EXPECT_EQ(late->bytes, 8192u);
  EXPECT_EQ(facts->roles[late->role], "F 0");
  EXPECT_EQ(late->peak, 4096u + 2048u + 8192u);
}

}  // namespace
}  // namespace stalloc::planner
