// What a run is judged by: HeldMeter, Resemblance, HumanBytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "allocator/runtime/held_meter.h"
#include "allocator/runtime/human_bytes.h"
#include "allocator/runtime/resemblance.h"
#include "allocator/runtime/varying_sizes.h"

namespace stalloc {
namespace {

TEST(HeldMeterTest, APeakOfUpstreamBetweenTwoSamplesCounts) {
  HeldMeter meter;
  meter.Sample(100, 0, 0);
  meter.Sample(100, 10, 70);  // reached 70 and came back
  EXPECT_EQ(meter.peak(), 170u);
  meter.Sample(100, 5, 70);
  EXPECT_EQ(meter.peak(), 170u);
}

TEST(HeldMeterTest, WhatUpstreamHeldBeforeTheArenaIsNoPartOfTheSum) {
  HeldMeter meter;
  meter.Sample(100, 0, 500);  // its peak was before
  EXPECT_EQ(meter.peak(), 100u);
}

TEST(HeldMeterTest, APeakAfterTheArenaShrankCountsWithTheSmallArena) {
  HeldMeter meter;
  meter.Sample(100, 0, 0);
  meter.Sample(100, 20, 20);
  meter.Sample(10, 20, 20);  // the arena went back
  meter.Sample(10, 60, 60);
  EXPECT_EQ(meter.peak(), 120u);
  meter.Sample(10, 0, 130);
  EXPECT_EQ(meter.peak(), 140u);
}

TEST(HeldMeterTest, ResetStartsANewPeakAndTheRunsGoesOn) {
  HeldMeter meter;
  meter.Sample(100, 0, 0);
  meter.Sample(100, 10, 70);
  meter.ResetPeak(100, 10);
  EXPECT_EQ(meter.peak(), 110u);
  meter.Sample(100, 20, 20);  // upstream's own peak was reset, too
  EXPECT_EQ(meter.peak(), 120u);
  EXPECT_EQ(meter.run_peak(), 170u);
  EXPECT_EQ(meter.run_upstream_peak(), 70u);
}

// The claim of the banner: with samples around each change of the arena, which only shrinks, the peak is exact.
TEST(HeldMeterTest, IsExactOverRandomRuns) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    HeldMeter meter;
    Bytes own = 1000;
    Bytes upstream = random() % 50;
    Bytes upstream_peak = upstream;
    Bytes truth = own + upstream;
    meter.Sample(own, upstream, upstream_peak);
    for (int step = 0; step < 300; ++step) {
      upstream = random() % 400;
      upstream_peak = std::max(upstream_peak, upstream);
      truth = std::max(truth, own + upstream);
      if (random() % 40 == 0) {
        meter.Sample(own, upstream, upstream_peak);
        own -= std::min<Bytes>(own, random() % 300);
        meter.Sample(own, upstream, upstream_peak);
      } else if (random() % 5 == 0) {
        meter.Sample(own, upstream, upstream_peak);
      }
    }
    meter.Sample(own, upstream, upstream_peak);
    ASSERT_EQ(meter.peak(), truth);
  }
}

TEST(ResemblanceTest, InitIsNotJudged) {
  Resemblance resemblance;
  EXPECT_FALSE(resemblance.OnIteration({1000, 0}));
  EXPECT_FALSE(resemblance.OnIteration({1100, 95}));
}

TEST(ResemblanceTest, AFirstIterationBelowATenthGivesUpAtOnce) {
  Resemblance resemblance;
  EXPECT_FALSE(resemblance.OnIteration({0, 0}));
  EXPECT_TRUE(resemblance.OnIteration({100, 9}));
  EXPECT_EQ(resemblance.last().expected, 100u);
  EXPECT_EQ(resemblance.last().hits, 9u);
}

TEST(ResemblanceTest, ThreePoorIterationsInARowGiveUp) {
  Resemblance resemblance;
  EXPECT_FALSE(resemblance.OnIteration({0, 0}));
  EXPECT_FALSE(resemblance.OnIteration({100, 49}));
  EXPECT_FALSE(resemblance.OnIteration({200, 98}));
  EXPECT_TRUE(resemblance.OnIteration({300, 147}));
}

TEST(ResemblanceTest, SlotsThatNobodyAsksForGiveUpThoughWhatIsAskedForMayVary) {
  Resemblance resemblance(400);
  EXPECT_FALSE(resemblance.OnIteration({0, 0, 0}));
  EXPECT_FALSE(resemblance.OnIteration({60, 50, 5000})) << "an eighth";
  EXPECT_FALSE(resemblance.OnIteration({109, 99, 10000}));
  EXPECT_FALSE(resemblance.OnIteration({158, 148, 10100})) << "an iteration that did next to nothing says nothing";
  EXPECT_FALSE(resemblance.OnIteration({207, 197, 15000}));
  EXPECT_FALSE(resemblance.OnIteration({207, 197, 20000}));
  EXPECT_TRUE(resemblance.OnIteration({207, 197, 25000}));
  EXPECT_EQ(resemblance.last().expected, 400u);
}

TEST(VaryingSizesTest, SizesLikeThoseThatVaryAreExpected) {
  DevicePlan plan;
  plan.cycle.emplace_back();
  const auto add = [&plan](Bytes least, Bytes most, EntryClass entry_class) {
    plan.cycle[0].entries.push_back({.bytes = most, .min_bytes = least, .max_bytes = most, .entry_class = entry_class});
  };
  add(4096, 8192, EntryClass::kDynamic);
  add(12288, 12288, EntryClass::kOptional);
  add(1 << 20, 1 << 20, EntryClass::kStatic);
  const VaryingSizes sizes(plan);
  EXPECT_FALSE(sizes.Contain(2047));
  for (const Bytes bytes : {2048, 10000, 24576}) EXPECT_TRUE(sizes.Contain(bytes)) << bytes;
  EXPECT_FALSE(sizes.Contain(24577));
  EXPECT_FALSE(sizes.Contain(1 << 20)) << "it never varied";
  EXPECT_FALSE(VaryingSizes(DevicePlan{}).Contain(512));
}

TEST(ResemblanceTest, AGoodIterationBetweenPoorOnesKeepsThePlan) {
  Resemblance resemblance;
  EXPECT_FALSE(resemblance.OnIteration({0, 0}));
  std::uint64_t expected = 0;
  std::uint64_t hits = 0;
  for (int iteration = 0; iteration < 30; ++iteration) {
    expected += 100;
    hits += iteration % 3 == 2 ? 100 : 20;
    EXPECT_FALSE(resemblance.OnIteration({expected, hits}));
  }
}

TEST(ResemblanceTest, IterationsWithNextToNoRequestsSayNothing) {
  Resemblance resemblance;
  EXPECT_FALSE(resemblance.OnIteration({0, 0}));
  for (std::uint64_t i = 1; i < 50; ++i) EXPECT_FALSE(resemblance.OnIteration({i * 15, 0}));
}

TEST(HumanBytesTest, PicksTheUnit) {
  EXPECT_STREQ(HumanBytes(0).text, "0 B");
  EXPECT_STREQ(HumanBytes(1023).text, "1023 B");
  EXPECT_STREQ(HumanBytes(1536).text, "1.50 KiB");
  EXPECT_STREQ(HumanBytes(Bytes{35} << 30).text, "35.00 GiB");
  EXPECT_STREQ(HumanBytes(~Bytes{0}).text, "16.00 EiB");
}

}  // namespace
}  // namespace stalloc
