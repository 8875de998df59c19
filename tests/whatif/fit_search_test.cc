#include "planner/whatif/fit_search.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

// Three layers; each has a cheap part that holds 8192 and a dear one (three temporaries more) that holds 4096.
std::string ThreeLayers() {
  std::string forward;
  std::string backward;
  for (int i = 0; i < 3; ++i) {
    const std::string n = std::to_string(i);
    forward += "L:m." + n + ".c +a" + n + "=8192 +p" + n + "=512 LE:m." + n + ".c=0 L:m." + n + ".d " +
               Repeat("+t=512 -t ", 8) + "+b" + n + "=4096 +q" + n + "=512 LE:m." + n + ".d=0 ";
    backward = "LB:m." + n + ".d -b" + n + " -q" + n + " LBE:m." + n + ".d LB:m." + n + ".c -a" + n + " -p" + n +
               " LBE:m." + n + ".c " + backward;
  }
  return "+w=4096 " + Repeat("I F0 " + forward + "+l=16384 B0 +d=512 -l " + backward + "-d O ", 4);
}

class FitSearchTest : public testing::Test {
 protected:
  FitSearchTest()
      : facts_(ThreeLayers()),
        units_(*facts_),
        player_(*facts_),
        search_(*facts_, units_, player_, {25, false, false}) {}

  [[nodiscard]] FitResult Find(Bytes budget, double scale = 1) const {
    return search_.Find(budget, PartsByClass(*facts_), scale);
  }
  [[nodiscard]] std::size_t CountOf(const FitResult& found, const std::string& end) const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < units_.units().size(); ++i) {
      const std::string& name = units_.units()[i].name;
      count += found.choice.uses[i] == UnitUse::kRecomputed && name.substr(name.size() - end.size()) == end;
    }
    return count;
  }

  const ScriptFacts facts_;
  const LayerUnits units_;
  const EditPlayer player_;
  const FitSearch search_;
};

constexpr Bytes kPeak = 4096 + 3 * (8192 + 512 + 4096 + 512) + 16384 + 512;

TEST_F(FitSearchTest, NothingIsDoneWhereItFits) {
  const FitResult found = Find(kPeak);
  EXPECT_TRUE(found.fits);
  EXPECT_EQ(found.peak.live, kPeak);
  EXPECT_EQ(found.cost_ns, 0);
  EXPECT_EQ(found.choice, units_.Nothing());
}

TEST_F(FitSearchTest, TheCheapestThatIsEnoughIsChosen) {
  const FitResult found = Find(kPeak - 8192);
  EXPECT_TRUE(found.fits);
  EXPECT_EQ(CountOf(found, ".c"), 1u);
  EXPECT_EQ(CountOf(found, ".d"), 0u);
  EXPECT_LE(found.peak.live, kPeak - 8192);
  EXPECT_GT(found.cost_ns, units_.units()[units_.Find("m.0.c")].forward_ns) << "a checkpoint costs something itself";
}

TEST_F(FitSearchTest, DearOnesComeWhenTheCheapAreNotEnough) {
  const FitResult found = Find(kPeak - 3 * 8192 - 2 * 4096);
  EXPECT_TRUE(found.fits);
  EXPECT_EQ(CountOf(found, ".c"), 3u);
  EXPECT_GE(CountOf(found, ".d"), 1u);
}

TEST_F(FitSearchTest, WhatCannotFitIsSaidWithTheLowestPeak) {
  const FitResult found = Find(4096);
  EXPECT_FALSE(found.fits);
  EXPECT_LT(found.peak.live, kPeak - 3 * 8192);
  EXPECT_EQ(found.bound.empty(), false);
}

TEST_F(FitSearchTest, ALargerMicroBatchNeedsMore) {
  const FitResult twice = Find(kPeak, 2);
  EXPECT_TRUE(twice.fits);
  EXPECT_GE(CountOf(twice, ".c"), 2u);
  EXPECT_GT(twice.cost_ns, Find(kPeak - 8192).cost_ns);
}

TEST_F(FitSearchTest, CandidatesTellWhatAllOfAKindWouldDo) {
  const std::vector<FitCandidate> found = search_.Candidates(PartsByClass(*facts_), 1);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].layers, "m.*.c");
  EXPECT_EQ(found[0].count, 3u);
  EXPECT_EQ(found[0].away, 3u * (8192 + 512));
  EXPECT_LT(found[0].peak, kPeak);
  EXPECT_LT(found[0].cost_ns, found[1].cost_ns);
}

TEST_F(FitSearchTest, StepsAreMeasuredBehindTheFirstIteration) {
  const StepTimes times = FindStepTimes(*facts_, facts_.traced().segmentation);
  const Segment& second = facts_.traced().segmentation.segments[2];
  EXPECT_EQ(times.step_ns, static_cast<std::int64_t>(second.end_event - second.begin_event) * 1000);
  EXPECT_LT(times.passes_ns, times.step_ns);
}

// Twelve layers in a model; each holds 8192, takes 12 events forward and 14 backward. An event is 1000 ns.
std::string TwelveLayers() {
  std::string forward;
  std::string backward;
  for (int i = 0; i < 12; ++i) {
    const std::string n = "m.layers." + std::to_string(i);
    const std::string a = "a" + std::to_string(i);
    forward += "L:" + n + " +" + a + "=8192 " + Repeat("+t=512 -t ", 5) + "+o" + a + "=512 LE:" + n + "=0 ";
    backward = "LB:" + n + " " + Repeat("+t=512 -t ", 6) + "-" + a + " -o" + a + " LBE:" + n + " " + backward;
  }
  return "+w=4096 " + Repeat("I F0 L:m " + forward + "LE:m=0 +l=16384 B0 -l LB:m " + backward + "LBE:m O ", 3);
}

class OffloadSearchTest : public testing::Test {
 protected:
  OffloadSearchTest() : facts_(TwelveLayers()), units_(*facts_), player_(*facts_) {}

  // The offloaded layers, and the cost.
  [[nodiscard]] FitResult Find(double bytes_per_ns, Bytes less, Bytes host = Bytes{1} << 40) const {
    const FitSearch search(*facts_, units_, player_, {bytes_per_ns, true, false, false, host});
    const Bytes peak = player_.Play({}, TracedSizes(*facts_)).live;
    return search.Find(peak - less, PartsByClass(*facts_), 1);
  }
  [[nodiscard]] std::vector<std::size_t> Layers(const FitResult& found, UnitUse use) const {
    std::vector<std::size_t> layers;
    for (std::size_t i = 0; i < units_.units().size(); ++i) {
      if (found.choice.uses[i] == use) layers.push_back(i);
    }
    return layers;
  }

  const ScriptFacts facts_;
  const LayerUnits units_;
  const EditPlayer player_;
};

TEST_F(OffloadSearchTest, CopiesThatFitIntoTheirTimeCostNothing) {
  const FitResult found = Find(25, 3 * 8192);
  EXPECT_TRUE(found.fits);
  EXPECT_EQ(found.cost_ns, 0);
  EXPECT_EQ(Layers(found, UnitUse::kRecomputed).size(), 0u);
  EXPECT_GE(Layers(found, UnitUse::kOffloaded).size(), 3u);
}

TEST_F(OffloadSearchTest, LayersAreAsFarApartAsTheirCopiesTake) {
  // A copy takes 30000 ns, a layer 12000 forward and 14000 backward.
  const FitResult found = Find(8704.0 / 30000, 3 * 8192);
  EXPECT_TRUE(found.fits);
  EXPECT_EQ(found.cost_ns, 0);
  const std::vector<std::size_t> layers = Layers(found, UnitUse::kOffloaded);
  ASSERT_GE(layers.size(), 3u);
  for (std::size_t i = 1; i < layers.size(); ++i) EXPECT_GE(layers[i] - layers[i - 1], 2u);
}

TEST_F(OffloadSearchTest, WhatDoesNotFitIntoItsTimeIsRecomputedWhereThatCostsLess) {
  const FitResult found = Find(1e-6, 3 * 8192);
  EXPECT_TRUE(found.fits);
  EXPECT_EQ(Layers(found, UnitUse::kOffloaded).size(), 0u);
  EXPECT_GE(Layers(found, UnitUse::kRecomputed).size(), 3u);
}

TEST_F(OffloadSearchTest, WhatTheHostHasNoMemoryForIsNotOffloaded) {
  const FitResult free = Find(25, 3 * 8192);
  EXPECT_FALSE(free.host_bound);
  EXPECT_EQ(free.host_bytes, 2 * 8704 * Layers(free, UnitUse::kOffloaded).size());
  const Bytes host = 2 * 8704 * 2;  // for two layers: the pool doubles
  const FitResult found = Find(25, 3 * 8192, host);
  EXPECT_TRUE(found.fits);
  EXPECT_TRUE(found.host_bound);
  EXPECT_LE(found.host_bytes, host);
  EXPECT_LE(Layers(found, UnitUse::kOffloaded).size(), 2u);
  EXPECT_GE(Layers(found, UnitUse::kRecomputed).size(), 1u);
  EXPECT_EQ(Layers(Find(25, 3 * 8192, 1000), UnitUse::kOffloaded).size(), 0u);
}

TEST_F(OffloadSearchTest, AllOfAKindCostsWhatItsCopiesTakeTooLong) {
  const FitSearch fast(*facts_, units_, player_, {25, true, false, false});
  const FitSearch slow(*facts_, units_, player_, {0.1, true, false, false});
  const auto cost = [&](const FitSearch& search) {
    for (const FitCandidate& each : search.Candidates(PartsByClass(*facts_), 1)) {
      if (each.use == UnitUse::kOffloaded) return each.cost_ns;
    }
    return std::int64_t{-1};
  };
  EXPECT_EQ(cost(fast), 0);
  // 12 copies of 87040 ns each in both directions, less the passes.
  EXPECT_GT(cost(slow), 1500000);
  EXPECT_LT(cost(slow), 2 * 12 * 87040);
}

}  // namespace
}  // namespace stalloc::planner
