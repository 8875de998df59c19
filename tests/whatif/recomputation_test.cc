#include "planner/whatif/recomputation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "planner/whatif/run_edit.h"
#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

// Weights are 4096 in all scripts.
class RecomputationTest : public testing::Test {
 protected:
  void Run(const std::string& iteration) {
    facts_ = std::make_unique<ScriptFacts>("+w=4096 " + Repeat("I F0 " + iteration + " O ", 3));
    found_ = FindRecomputations(**facts_, EditPlayer(**facts_), 16, 16);
  }

  // 0: it is not worth a row.
  [[nodiscard]] Bytes PeakWith(const std::string& layers) const {
    const Recomputation* found = Of(layers);
    return found == nullptr ? 0 : found->peak;
  }

  [[nodiscard]] const Recomputation* Of(const std::string& layers) const {
    const auto found = std::find_if(found_.begin(), found_.end(),
                                    [&](const Recomputation& candidate) { return candidate.layers == layers; });
    return found == found_.end() ? nullptr : &*found;
  }

 private:
  std::unique_ptr<ScriptFacts> facts_;
  std::vector<Recomputation> found_;
};

TEST_F(RecomputationTest, EachLayerComesBackByItselfAndThoseCalledAlikeAreOneChoice) {
  Run("L:m.0 +a=8192 LE:m.0=0 L:m.1 +b=8192 LE:m.1=0 +l=2048 B0 +d=2048 LB:m.1 -b -l LBE:m.1 LB:m.0 -a -d LBE:m.0");
  EXPECT_EQ(PeakWith("m.*"), 4096u + 8192u + 2u * 2048u);
  EXPECT_EQ(PeakWith("m.0"), 4096u + 8192u + 2u * 2048u);
  EXPECT_EQ(PeakWith("m.1"), 4096u + 2u * 8192u + 2u * 2048u) << "it is back where the peak is";
  EXPECT_EQ(Of("m.*")->at_peak, 2u * 8192u);
  EXPECT_EQ(Of("m.*")->moved, 2u * 8192u);
  EXPECT_EQ(Of("m.*")->offload_peak, 4096u + 8192u + 2u * 2048u);
  EXPECT_FALSE(Of("m.*")->at_least);
}

TEST_F(RecomputationTest, WhatALaterLayerKeepsSavesNothing) {
  // The output of `gate` is kept by `act` alone: it goes before gate's own backward pass.
  Run("L:gate +g=8192 LE:gate=0 L:act +s=8192 LE:act=0 B0 +d=512 LB:act -g -s LBE:act LB:gate -d LBE:gate");
  EXPECT_EQ(Of("gate"), nullptr);
  EXPECT_NE(Of("act"), nullptr);
}

TEST_F(RecomputationTest, AnOutputThatTheLayerKeepsItselfStaysForTheNext) {
  Run("L:relu +r=8192 +m=1024 LE:relu=8192 +l=2048 B0 +d=2048 -l LB:relu -r -m LBE:relu -d");
  ASSERT_NE(Of("relu"), nullptr);
  EXPECT_EQ(Of("relu")->at_peak, 1024u);
}

TEST_F(RecomputationTest, WithoutWordOfItsOutputTheLargestBlockIsTakenForIt) {
  Run("L:one +r=8192 +m=1024 LE:one +l=2048 B0 +d=2048 -l LB:one -r -m LBE:one -d");
  ASSERT_NE(Of("one"), nullptr);
  EXPECT_EQ(Of("one")->at_peak, 1024u);
  EXPECT_TRUE(Of("one")->at_least);
}

TEST_F(RecomputationTest, TheForwardPassComesAgainWithItsTemporaries) {
  Run("L:one +t=4096 +a=8192 -t +b=1024 +u=3584 -u LE:one=0 +l=8192 B0 +d=512 -l LB:one -a -b LBE:one -d");
  // a and t are anew at once; u comes behind the last block that stays, where a checkpoint stops.
  EXPECT_EQ(PeakWith("one"), 4096u + 512u + 4096u + 8192u);
}

TEST_F(RecomputationTest, AnInputIsKeptUpToTheBackwardPass) {
  // x is an input of `drop`, and nobody needs it behind it.
  Run("L:net +x=4096 L:net.drop +y=8192 LE:net.drop=0 -x +l=4096 LE:net=0 B0 +d=2048 LB:net -l LB:net.drop -y "
      "LBE:net.drop LBE:net -d");
  ASSERT_NE(Of("net.drop"), nullptr);
  EXPECT_EQ(PeakWith("net.drop"), 4096u + 2048u + 8192u + 4096u);
  EXPECT_TRUE(Of("net.drop")->at_least) << "whether x is an input is not known";
  EXPECT_EQ(Of("net.drop")->offload_peak, 4096u + 2048u + 4096u + 8192u) << "it is back where that of `net` begins";
}

TEST_F(RecomputationTest, WhatALayerStoresForLaterIsSaid) {
  Run("L:one +a=8192 +k=2048 LE:one=0 +l=2048 B0 +d=2048 -l LB:one -a LBE:one -d -k");
  ASSERT_NE(Of("one"), nullptr);
  EXPECT_TRUE(Of("one")->leaves);
  EXPECT_TRUE(Of("one")->at_least);
  EXPECT_EQ(Of("one")->at_peak, 8192u);
}

TEST_F(RecomputationTest, PassesOfOneLayerGoBackwardTheOtherWayRound) {
  Run("L:s +a=8192 LE:s=0 L:s +b=1024 LE:s=0 +l=2048 B0 +d=2048 LB:s -b LBE:s -l LB:s -a LBE:s -d");
  EXPECT_EQ(PeakWith("s"), 4096u + 8192u + 2048u) << "b is back with l, a without";
}

TEST_F(RecomputationTest, MicrobatchesWithoutMarksAreToldApartByTheirPasses) {
  // Two of them, the second larger; without "F0" and "B0" both are in one phase.
  const ScriptFacts facts("+w=4096 " + Repeat("I L:m.0 +a=1024 LE:m.0=0 +l=512 LB:m.0 -l -a LBE:m.0 "
                                              "L:m.0 +b=8192 LE:m.0=0 +k=2048 LB:m.1 -k LBE:m.1 LB:m.0 -b LBE:m.0 ",
                                              3));
  const auto found = FindRecomputations(*facts, EditPlayer(*facts), 16, 16);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].layers, "m.*");
  EXPECT_EQ(found[0].at_peak, 8192u);
  EXPECT_EQ(found[0].peak, 4096u + 8192u);
}

TEST_F(RecomputationTest, WhatIsRecomputedAlreadyIsNoChoice) {
  Run("L:one +t=8192 -t LE:one=0 +l=2048 B0 +d=2048 -l LB:one L:one +a=8192 LE:one=0 -a LBE:one -d");
  EXPECT_EQ(Of("one"), nullptr);
}

TEST_F(RecomputationTest, AForwardPassWithoutGradientsHasNoBackwardPass) {
  const std::string trained = "L:one +a=8192 LE:one=0 +l=2048 B0 +d=2048 -l LB:one -a LBE:one -d";
  Run("L:one +t=512 LE:one=none -t " + trained);
  EXPECT_EQ(PeakWith("one"), 4096u + 8192u + 2048u);
  Run("L:one +t=512 LE:one=0 -t " + trained);
  EXPECT_EQ(Of("one"), nullptr) << "which of the two went backward is not known";
}

}  // namespace
}  // namespace stalloc::planner
