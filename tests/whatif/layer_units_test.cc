#include "planner/whatif/layer_units.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "planner/whatif/recomputation.h"
#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

// Weights are 4096 in all scripts.
class LayerUnitsTest : public testing::Test {
 protected:
  void Run(const std::string& iteration) { RunAfter("", iteration, 3); }
  void RunAfter(const std::string& first, const std::string& iteration, int times) {
    facts_ = std::make_unique<ScriptFacts>("+w=4096 " + first + Repeat("I F0 " + iteration + " ", times));
    units_ = std::make_unique<LayerUnits>(**facts_);
  }
  [[nodiscard]] bool Has(const std::string& name) const { return units_->Find(name) < units_->units().size(); }
  [[nodiscard]] const LayerUnit& Of(const std::string& name) const { return units_->units().at(units_->Find(name)); }
  [[nodiscard]] Bytes PeakWith(const std::vector<std::string>& names, UnitUse use = UnitUse::kRecomputed) const {
    UnitChoice choice = units_->Nothing();
    for (const std::string& name : names) choice.uses.at(units_->Find(name)) = use;
    return PeakOf(choice);
  }
  [[nodiscard]] Bytes PeakOf(const UnitChoice& choice) const {
    return EditPlayer(**facts_).Play(units_->EditOf(choice), SizesAt(PartsByClass(**facts_), 1)).live;
  }
  [[nodiscard]] const DeviceFacts& facts() const { return **facts_; }
  [[nodiscard]] const LayerUnits& units() const { return *units_; }

 private:
  std::unique_ptr<ScriptFacts> facts_;
  std::unique_ptr<LayerUnits> units_;
};

constexpr const char* kTwoLayers =
    "L:m.0 +a=8192 LE:m.0=0 L:m.1 +b=8192 LE:m.1=0 +l=2048 B0 +d=2048 LB:m.1 -b -l LBE:m.1 LB:m.0 -a -d LBE:m.0 O";

TEST_F(LayerUnitsTest, ALayerIsAwayBetweenItsPasses) {
  Run(kTwoLayers);
  EXPECT_EQ(PeakWith({"m.0", "m.1"}), 4096u + 8192u + 2u * 2048u);
  EXPECT_EQ(PeakWith({"m.1"}), 4096u + 2u * 8192u + 2u * 2048u) << "it is back where the peak is";
  EXPECT_EQ(Of("m.0").away, 8192u);
  EXPECT_EQ(Of("m.0").pattern, "m.*");
  EXPECT_EQ(Of("m.0").forward_ns, 2000);
  EXPECT_EQ(Of("m.0").iteration_ns.size(), facts().device.segments.size() - 1);
  EXPECT_EQ(Of("m.0").iteration_ns.front(), 2000);
  EXPECT_EQ(Of("m.0").runs, 1);
}

TEST_F(LayerUnitsTest, AdviceCountsTheSame) {
  Run("L:n +x=512 L:m.0 +t=4096 +a=8192 -t +c=512 LE:m.0=0 -x L:m.1 +u=4096 +b=8192 -u LE:m.1=0 LE:n=0 +l=2048 "
      "B0 +d=2048 LB:n LB:m.1 -b -l LBE:m.1 LB:m.0 -a -c -d LBE:m.0 LBE:n O");
  const auto advised = FindRecomputations(facts(), EditPlayer(facts()), 8, 8);
  ASSERT_FALSE(advised.empty());
  for (const Recomputation& each : advised) {
    if (each.layers == "m.*") {
      EXPECT_EQ(each.peak, PeakWith({"m.0", "m.1"}));
    }
    if (each.layers == "m.0") {
      EXPECT_EQ(each.peak, PeakWith({"m.0"}));
    }
  }
}

TEST_F(LayerUnitsTest, AnOutputThatTheLayerKeepsItselfStays) {
  Run("L:relu +m=1024 +r=8192 LE:relu=8192 +l=2048 B0 +d=2048 -l LB:relu -r -m LBE:relu -d O");
  EXPECT_EQ(Of("relu").away, 1024u);
}

// A residual connection around m.mlp, which is called with n alone.
std::string Residual(const std::string& told) {
  return "L:m +r=8192 L:m.mlp +a=16384 +o=8192 LE:m.mlp=0" + told +
         " +y=8192 -r -o LE:m=0 +l=32768 B0 +d=512 LB:m -l LB:m.mlp -a LBE:m.mlp LBE:m -y -d O";
}

TEST_F(LayerUnitsTest, WhatGoesAroundALayerIsNoInputOfIt) {
  Run("+n=2048 " + Residual("<n") + " -n");
  EXPECT_EQ(PeakWith({"m.mlp"}), 4096u + 2048u + 8192u + 32768u + 512u) << "r goes where it went";
  Run("+n=2048 " + Residual("") + " -n");
  EXPECT_EQ(PeakWith({"m.mlp"}), 4096u + 2048u + 8192u + 32768u + 512u + 8192u) << "nothing tells that it is no input";
}

TEST_F(LayerUnitsTest, WhatALayerWasCalledWithStaysUpToTheEndOfItsBackwardPass) {
  Run("+n=2048 " + Residual("<r,n") + " -n");
  EXPECT_EQ(PeakWith({"m.mlp"}), 4096u + 2048u + 8192u + 32768u + 512u + 8192u);
  Run("L:m +x=8192 L:m.0 +a=4096 LE:m.0=0<x L:m.1 +b=512 LE:m.1=0<x LE:m=0< B0 LB:m LB:m.1 -b LBE:m.1 LB:m.0 -x "
      "+g=16384 -a -g LBE:m.0 LBE:m O");
  EXPECT_EQ(PeakWith({"m.0"}), 4096u + 8192u + 4096u + 16384u) << "freed inside of the pass, x is kept to its end";
  EXPECT_EQ(PeakWith({"m.1"}), 4096u + 4096u + 16384u);
}

TEST_F(LayerUnitsTest, EachCallHasItsOwnInputs) {
  // Both micro-batches' x are there when m.0 is called with the second one.
  Run("+x=8192 +y=8192 L:m.0 +a=4096 LE:m.0=0<x -x L:m.0 +b=4096 LE:m.0=0<y -y +l=65536 B0 -l LB:m.0 -b LBE:m.0 "
      "LB:m.0 -a LBE:m.0 O");
  EXPECT_EQ(PeakWith({"m.0"}), 4096u + 2 * 8192u + 65536u);
}

TEST_F(LayerUnitsTest, OfCallsOnSeveralThreadsAtOnceEachInputCountsForAll) {
  Run("+x=8192 +y=16384 L:m.0 L:m.0 +a=4096 LE:m.0=0<x -x +b=4096 LE:m.0=0<y -y +l=65536 B0 -l LB:m.0 -b LBE:m.0 "
      "LB:m.0 -a LBE:m.0 O");
  EXPECT_EQ(PeakWith({"m.0"}), 4096u + 8192u + 16384u + 65536u);
}

// k is in a cache that both layers are called with, and goes with it, before the backward pass. `told`: behind a name.
std::string WithCache(const std::string& told) {
  return "L:m L:m.0 +k=8192 L:m.0.mlp +a=4096 LE:m.0.mlp=0" + told + " LE:m.0=0" + told + "k L:m.1 +b=2048 LE:m.1=0" +
         told + "k LE:m=0" + told + " +l=65536 -k B0 LB:m LB:m.1 -b LBE:m.1 -l LB:m.0 LB:m.0.mlp -a LBE:m.0.mlp " +
         "LBE:m.0 LBE:m O";
}

TEST_F(LayerUnitsTest, WithAnythingRecomputedNoLayerStoresForLater) {
  Run(WithCache("<<"));
  EXPECT_EQ(PeakWith({}), 4096u + 8192u + 4096u + 2048u + 65536u);
  EXPECT_EQ(PeakWith({"m.0.mlp"}), 4096u + 2048u + 65536u);
  EXPECT_EQ(PeakWith({"m.1"}), 4096u + 4096u + 65536u + 2048u) << "it is no input either";
}

TEST_F(LayerUnitsTest, WhatCannotBeSwitchedOffIsStoredAsBefore) {
  Run(WithCache("<"));
  EXPECT_EQ(PeakWith({"m.0.mlp"}), 4096u + 8192u + 2048u + 65536u);
  EXPECT_EQ(PeakWith({"m.1"}), 4096u + 8192u + 4096u + 65536u + 2048u);
}

TEST_F(LayerUnitsTest, WhatOneLayerMakesAndAnotherWasCalledWithIsThereForBoth) {
  // z is of m.0 and goes in its backward pass; m.1, recomputed too, needs it before.
  Run("L:m.0 +z=8192 +a=4096 LE:m.0=0< L:m.1 +b=2048 LE:m.1=0<z +l=65536 B0 LB:m.1 -b LBE:m.1 -l LB:m.0 -z -a "
      "LBE:m.0 O");
  EXPECT_EQ(PeakWith({"m.0"}), 4096u + 2048u + 65536u);
  EXPECT_EQ(PeakWith({"m.0", "m.1"}), 4096u + 8192u + 2048u + 65536u);
}

TEST_F(LayerUnitsTest, WhatALayerStoresForLaterGoesWithTheRest) {
  // k outlives the backward pass in layers of which there are many: a cache.
  Run("L:m.0 +k=4096 +a=8192 LE:m.0=0 +l=8192 B0 +d=512 -l LB:m.0 -a LBE:m.0 -d O -k");
  EXPECT_TRUE(Of("m.0").stores);
  EXPECT_FALSE(Of("m.0").leaves);
  EXPECT_EQ(PeakWith({"m.0"}), 4096u + 4096u + 8192u + 512u) << "at the peak it is back";
  EXPECT_EQ(Of("m.0").away, 4096u + 8192u);
}

TEST_F(LayerUnitsTest, WhatALayersFirstCallTakesForGoodIsNoPartOfIt) {
  // A library's workspace, of the first product: running the layer again leaves nothing.
  const std::string rest = "LE:head=0 +l=2048 B0 +d=512 -l LB:head -a LBE:head -d O ";
  RunAfter("I F0 L:head +k=65536 +a=8192 " + rest, "L:head +a=8192 " + rest, 2);
  EXPECT_FALSE(Of("head").stores);
  EXPECT_FALSE(Of("head").leaves);
  EXPECT_EQ(Of("head").away, 8192u);
  EXPECT_EQ(PeakWith({"head"}), 4096u + 65536u + 8192u + 512u);
}

TEST_F(LayerUnitsTest, AnotherLayerThatLeavesSomethingSaysSo) {
  Run("L:head +k=4096 +a=8192 LE:head=0 +l=2048 B0 +d=512 -l LB:head -a LBE:head -d O -k");
  EXPECT_FALSE(Of("head").stores);
  EXPECT_TRUE(Of("head").leaves);
}

TEST_F(LayerUnitsTest, WhatIsOffloadedComesBackAtOnce) {
  Run("L:m.0 +a=8192 +b=8192 LE:m.0=0 +l=2048 B0 +d=512 -l LB:m.0 +g=512 -b -g +h=512 -a -h LBE:m.0 -d O");
  EXPECT_EQ(PeakWith({"m.0"}, UnitUse::kOffloaded), 4096u + 2u * 8192u + 2u * 512u) << "where its backward pass begins";
  EXPECT_EQ(PeakWith({"m.0"}, UnitUse::kRecomputed), 4096u + 2u * 8192u + 2u * 512u);
}

TEST_F(LayerUnitsTest, WhatALayerAloneWasCalledWithGoesToTheHostWithIt) {
  const std::string begin = "+x=8192 L:m.0 +a=4096 LE:m.0=0<x ";
  const std::string turn = "+l=2048 +o=65536 -o B0 -l ";
  const std::string end = "LB:m.0 +g=512 -a -x -g LBE:m.0 O";
  Run(begin + turn + end);
  EXPECT_EQ(PeakWith({"m.0"}, UnitUse::kOffloaded), 4096u + 2048u + 65536u);
  Run(begin + "L:m.1 +b=1024 LE:m.1=0<x " + turn + "LB:m.1 -b LBE:m.1 " + end);
  EXPECT_EQ(PeakWith({"m.0"}, UnitUse::kOffloaded), 4096u + 8192u + 1024u + 2048u + 65536u) << "m.1 has it, too";
}

TEST_F(LayerUnitsTest, StateThatIsOffloadedIsThereInStepsOnly) {
  Run("+a=8192 B0 -a O +s=4096 ");  // a state of each iteration: all stay
  UnitChoice choice = units().Nothing();
  EXPECT_EQ(PeakOf(choice), 4096u + 2 * 4096u + 8192u);
  choice.state_offloaded = true;
  EXPECT_GT(units().state_bytes(), 0u);
  EXPECT_EQ(PeakOf(choice), 4096u + 8192u + 4096u) << "of the last one nobody can tell that it is state";
}

TEST_F(LayerUnitsTest, GradientsOfEarlierMicroBatchesAreThereFromTheBeginning) {
  Run("+a=8192 B0 +g=4096 -a O -g");
  UnitChoice choice = units().Nothing();
  EXPECT_EQ(PeakOf(choice), 4096u + 8192u + 4096u);
  choice.accumulated = true;
  EXPECT_EQ(PeakOf(choice), 4096u + 4096u + 8192u + 4096u);
}

TEST_F(LayerUnitsTest, AMicroBatchAloneFindsNoGradientsAndIsFollowedByNone) {
  Run("L:m.0 +a=8192 LE:m.0=0 B0 LB:m.0 +g=4096 -a LBE:m.0 F1 L:m.0 +b=8192 LE:m.0=0 B1 LB:m.0 +h=4096 -b LBE:m.0 -h O "
      "-g");
  UnitChoice choice = units().Nothing();
  EXPECT_EQ(PeakOf(choice), 4096u + 4096u + 8192u + 4096u);
  choice.single = true;
  EXPECT_EQ(PeakOf(choice), 4096u + 8192u + 4096u);
  choice.uses[units().Find("m.0")] = UnitUse::kRecomputed;
  EXPECT_EQ(PeakOf(choice), 4096u + 8192u + 4096u) << "what is recomputed of the others does not come back";
}

TEST_F(LayerUnitsTest, TheFirstMicroBatchOfAStepHasASizeOfItsOwn) {
  Run("+a=8192 B0 +g=4096 -a F1 +b=8192 B1 +h=4096 -b -h O -g");
  const auto peak = [&](double behind, double times) {
    std::vector<BlockPart> parts = PartsByClass(facts());
    units().ScaleFirst(times, &parts);
    return EditPlayer(facts()).Play({}, SizesAt(parts, behind)).live;
  };
  EXPECT_EQ(peak(1, 1), 4096u + 4096u + 8192u + 4096u);
  EXPECT_EQ(peak(1, 1.25), peak(1, 1)) << "no gradient is there yet, so that the second one is the peak";
  EXPECT_EQ(peak(1, 3), 4096u + 3u * 8192u + 4096u);
  EXPECT_EQ(peak(2, 0.5), 4096u + 4096u + 2u * (8192u + 4096u)) << "a gradient that goes at once is a temporary";
}

TEST_F(LayerUnitsTest, WhereMicroBatchesOverlapAllAreAsLargeAsTheLarger) {
  // All at once, and a pipeline whose third one comes behind the first backward pass.
  for (const char* iteration :
       {"+a=8192 F1 +b=8192 B0 -a B1 -b O", "+a=8192 F1 +b=8192 B0 -a F2 +c=8192 B1 -b B2 -c O"}) {
    Run(iteration);
    for (const double times : {3.0, 1.0, 0.5}) {
      std::vector<BlockPart> parts = PartsByClass(facts());
      units().ScaleFirst(times, &parts);
      const auto each = static_cast<Bytes>(std::max(times, 1.0) * 8192);
      EXPECT_EQ(EditPlayer(facts()).Play({}, SizesAt(parts, 1)).live, 4096u + 2u * each) << iteration << ", " << times;
    }
  }
}

TEST_F(LayerUnitsTest, ALayerIsInsideAnotherByItsPath) {
  EXPECT_TRUE(IsInside("m.1.mlp", "m.1"));
  EXPECT_TRUE(IsInside("m.1", "m.1"));
  EXPECT_FALSE(IsInside("m.10", "m.1"));
  EXPECT_FALSE(IsInside("m.1", "m.1.mlp"));
}

}  // namespace
}  // namespace stalloc::planner
