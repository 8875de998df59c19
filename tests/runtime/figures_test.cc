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

using Verdict = Resemblance::Verdict;

TEST(HeldMeterTest, APeakOfUpstreamBetweenTwoSamplesCounts) {
  HeldMeter meter;
  meter.Sample(100, {0, 0});
  meter.Sample(100, {10, 70});  // reached 70 and came back
  EXPECT_EQ(meter.PeakBytes(Span::kReset), 170u);
  meter.Sample(100, {5, 70});
  EXPECT_EQ(meter.PeakBytes(Span::kReset), 170u);
}

TEST(HeldMeterTest, WhatUpstreamHeldBeforeTheArenaIsNoPartOfTheSum) {
  HeldMeter meter;
  meter.Sample(100, {0, 500});  // its peak was before
  EXPECT_EQ(meter.PeakBytes(Span::kReset), 100u);
}

TEST(HeldMeterTest, APeakAfterTheArenaShrankCountsWithTheSmallArena) {
  HeldMeter meter;
  meter.Sample(100, {0, 0});
  meter.Sample(100, {20, 20});
  meter.Sample(10, {20, 20});  // the arena went back
  meter.Sample(10, {60, 60});
  EXPECT_EQ(meter.PeakBytes(Span::kReset), 120u);
  meter.Sample(10, {0, 130});
  EXPECT_EQ(meter.PeakBytes(Span::kReset), 140u);
}

TEST(HeldMeterTest, ResetStartsANewPeakAndTheRunsGoesOn) {
  HeldMeter meter;
  meter.Sample(100, {0, 0});
  meter.Sample(100, {10, 70});
  meter.Begin(Span::kReset, 100, {10, 70});
  EXPECT_EQ(meter.PeakBytes(Span::kReset), 110u);
  meter.Sample(100, {20, 20});  // upstream's own peak was reset, too
  EXPECT_EQ(meter.PeakBytes(Span::kReset), 120u);
  EXPECT_EQ(meter.PeakBytes(Span::kRun), 170u);
  EXPECT_EQ(meter.run_upstream_peak(), 70u);
}

TEST(HeldMeterTest, AnIterationsPeakIsItsOwn) {
  HeldMeter meter;
  meter.Sample(100, {0, 0, 0});
  meter.Sample(100, {10, 70, 70});
  meter.Begin(Span::kIteration, 100, {10, 70, 10});
  EXPECT_EQ(meter.PeakBytes(Span::kIteration), 110u);
  meter.Sample(100, {5, 70, 40});  // reached 40 in this iteration, which is no peak of the run
  EXPECT_EQ(meter.PeakBytes(Span::kIteration), 140u);
  EXPECT_EQ(meter.PeakBytes(Span::kRun), 170u);
  meter.Sample(60, {5, 90, 90});
  EXPECT_EQ(meter.PeakBytes(Span::kIteration), 150u);
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
    meter.Sample(own, {upstream, upstream_peak});
    for (int step = 0; step < 300; ++step) {
      upstream = random() % 400;
      upstream_peak = std::max(upstream_peak, upstream);
      truth = std::max(truth, own + upstream);
      if (random() % 40 == 0) {
        meter.Sample(own, {upstream, upstream_peak});
        own -= std::min<Bytes>(own, random() % 300);
        meter.Sample(own, {upstream, upstream_peak});
      } else if (random() % 5 == 0) {
        meter.Sample(own, {upstream, upstream_peak});
      }
    }
    meter.Sample(own, {upstream, upstream_peak});
    ASSERT_EQ(meter.PeakBytes(Span::kReset), truth);
  }
}

TEST(ResemblanceTest, InitIsNotJudged) {
  Resemblance resemblance;
  EXPECT_EQ(resemblance.OnIteration({1000, 0}, false), Verdict::kResembles);
  EXPECT_EQ(resemblance.OnIteration({1100, 95}, false), Verdict::kResembles);
}

TEST(ResemblanceTest, AFirstIterationBelowATenthGivesUpAtOnce) {
  Resemblance resemblance;
  EXPECT_EQ(resemblance.OnIteration({0, 0}, false), Verdict::kResembles);
  EXPECT_EQ(resemblance.OnIteration({100, 9}, false), Verdict::kGiveUp);
  EXPECT_EQ(resemblance.last().expected, 100u);
  EXPECT_EQ(resemblance.last().hits, 9u);
}

TEST(ResemblanceTest, ThreePoorIterationsInARowGiveUp) {
  Resemblance resemblance;
  EXPECT_EQ(resemblance.OnIteration({0, 0}, false), Verdict::kResembles);
  EXPECT_EQ(resemblance.OnIteration({100, 49}, false), Verdict::kResembles);
  EXPECT_EQ(resemblance.OnIteration({200, 98}, false), Verdict::kResembles);
  EXPECT_EQ(resemblance.OnIteration({300, 147}, false), Verdict::kGiveUp);
}

TEST(ResemblanceTest, SlotsThatNobodyAsksForGiveUpThoughWhatIsAskedForMayVary) {
  Resemblance resemblance(400);
  EXPECT_EQ(resemblance.OnIteration({0, 0, 0}, false), Verdict::kResembles);
  EXPECT_EQ(resemblance.OnIteration({60, 50, 5000}, false), Verdict::kResembles) << "an eighth";
  EXPECT_EQ(resemblance.OnIteration({109, 99, 10000}, false), Verdict::kResembles);
  EXPECT_EQ(resemblance.OnIteration({158, 148, 10100}, false), Verdict::kResembles)
      << "an iteration that did next to nothing says nothing";
  EXPECT_EQ(resemblance.OnIteration({207, 197, 15000}, false), Verdict::kResembles);
  EXPECT_EQ(resemblance.OnIteration({207, 197, 20000}, false), Verdict::kResembles);
  EXPECT_EQ(resemblance.OnIteration({207, 197, 25000}, false), Verdict::kGiveUp);
  EXPECT_EQ(resemblance.last().expected, 400u);
}

TEST(ResemblanceTest, WhatTheArenaServesAndFillsIsKept) {
  for (const bool fills : {false, true}) {
    for (const std::uint64_t elsewhere : {12, 13}) {
      Resemblance resemblance;
      EXPECT_EQ(resemblance.OnIteration({}, fills), Verdict::kResembles);
      const bool kept = fills && elsewhere * 8 <= 100;
      EXPECT_EQ(resemblance.OnIteration({100, 9, 100, elsewhere}, fills),
                kept ? Verdict::kServedAnyway : Verdict::kGiveUp)
          << fills << ' ' << elsewhere;
    }
  }
}

TEST(ResemblanceTest, WhatWasKeptIsGivenUpOnceTheArenaServesItNoMore) {
  Resemblance resemblance;
  EXPECT_EQ(resemblance.OnIteration({}, true), Verdict::kResembles);
  EXPECT_EQ(resemblance.OnIteration({100, 0, 100, 0}, true), Verdict::kServedAnyway);
  EXPECT_EQ(resemblance.OnIteration({200, 0, 200, 0}, true), Verdict::kResembles) << "the second, of three";
  EXPECT_EQ(resemblance.OnIteration({300, 0, 300, 0}, true), Verdict::kServedAnyway);
  EXPECT_EQ(resemblance.OnIteration({400, 0, 400, 50}, true), Verdict::kGiveUp);
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
  EXPECT_EQ(resemblance.OnIteration({0, 0}, false), Verdict::kResembles);
  std::uint64_t expected = 0;
  std::uint64_t hits = 0;
  for (int iteration = 0; iteration < 30; ++iteration) {
    expected += 100;
    hits += iteration % 3 == 2 ? 100 : 20;
    EXPECT_EQ(resemblance.OnIteration({expected, hits}, false), Verdict::kResembles);
  }
}

TEST(ResemblanceTest, IterationsWithNextToNoRequestsSayNothing) {
  Resemblance resemblance;
  EXPECT_EQ(resemblance.OnIteration({0, 0}, false), Verdict::kResembles);
  for (std::uint64_t i = 1; i < 50; ++i) EXPECT_EQ(resemblance.OnIteration({i * 15, 0}, false), Verdict::kResembles);
}

TEST(HumanBytesTest, PicksTheUnit) {
  EXPECT_STREQ(HumanBytes(0).text, "0 B");
  EXPECT_STREQ(HumanBytes(1023).text, "1023 B");
  EXPECT_STREQ(HumanBytes(1536).text, "1.50 KiB");
  EXPECT_STREQ(HumanBytes(Bytes{35} << 30).text, "35.00 GiB");
  EXPECT_STREQ(HumanBytes((Bytes{1} << 30) - 1).text, "1.00 GiB");
  EXPECT_STREQ(HumanBytes(~Bytes{0}).text, "16.00 EiB");
}

}  // namespace
}  // namespace stalloc
