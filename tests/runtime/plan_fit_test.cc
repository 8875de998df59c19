// PlanFit: when a plan holds too much.
#include "allocator/runtime/plan_fit.h"

#include <gtest/gtest.h>

namespace stalloc {
namespace plan_fit {

constexpr Bytes kLeast = 4;

void Pass(PlanFit& fit, int iterations, IterationPeaks peaks, Bytes other = 0) {
  for (int i = 0; i < iterations; ++i) fit.OnIteration({.peaks = peaks, .grown = 0, .other = other});
}

TEST(PlanFitTest, EightIterationsThatHeldAFiftiethMoreThanLivedAreAVerdict) {
  PlanFit fit(kLeast);
  Pass(fit, 100, {1000, 1020});
  EXPECT_TRUE(fit.fits());
  Pass(fit, 7, {1000, 1021});
  EXPECT_FALSE(fit.fits());
  EXPECT_FALSE(fit.HoldsTooMuch());
  Pass(fit, 1, {1000, 1021});
  EXPECT_TRUE(fit.HoldsTooMuch());
  EXPECT_TRUE(fit.IsSteady());
  Pass(fit, 1, {1000, 1020});
  EXPECT_TRUE(fit.fits());
  EXPECT_FALSE(fit.HoldsTooMuch());
}

TEST(PlanFitTest, WhatIsRoundedUpIsNotMore) {
  PlanFit fit(kLeast);
  Pass(fit, 20, {100, 104});
  EXPECT_TRUE(fit.fits());
  Pass(fit, 8, {100, 105});
  EXPECT_TRUE(fit.HoldsTooMuch());
}

TEST(PlanFitTest, APlanWhoseSlotsAreMetHoldsWhatItHasTo) {
  using Course = PlanFit::Course;
  PlanFit fit(kLeast);
  const auto pass = [&](Course course, Bytes held) {
    for (int i = 0; i < 8; ++i) fit.OnIteration({.peaks = {900, held}, .course = course});
    return fit.HoldsTooMuch();
  };
  EXPECT_TRUE(pass(Course::kPartly, 1000));
  EXPECT_FALSE(pass(Course::kAsPlanned, 1000));
  EXPECT_FALSE(pass(Course::kPartly, 1020));
  EXPECT_TRUE(pass(Course::kPartly, 1021));
  EXPECT_TRUE(pass(Course::kNot, 1000)) << "of what is not as planned it knows nothing";
  EXPECT_FALSE(pass(Course::kAsPlanned, 940));
  EXPECT_TRUE(pass(Course::kAsPlanned, 1000)) << "it can do with less";
}

TEST(PlanFitTest, WhatALargerIterationNeedsIsNoExcessOfTheSmallerOnesAroundIt) {
  PlanFit fit(kLeast);
  for (int i = 0; i < 100; ++i) {
    Pass(fit, 7, {500, 1000});
    EXPECT_FALSE(fit.HoldsTooMuch());
    Pass(fit, 1, {990, 1000});
  }
}

TEST(PlanFitTest, WhatTheArenaHasGrownByIsNotThePlans) {
  PlanFit fit(kLeast);
  for (int i = 0; i < 20; ++i) fit.OnIteration({.peaks = {500, 1000}, .grown = 490, .other = 0});
  EXPECT_FALSE(fit.fits());
  EXPECT_FALSE(fit.HoldsTooMuch());
  for (int i = 0; i < 8; ++i) fit.OnIteration({.peaks = {500, 1000}, .grown = 480, .other = 0});
  EXPECT_TRUE(fit.HoldsTooMuch());
}

TEST(PlanFitTest, IterationsInWhichNotAsMuchLivedAreNotSteady) {
  PlanFit fit(kLeast);
  for (int i = 0; i < 10; ++i) Pass(fit, 1, {i % 2 == 0 ? Bytes{500} : Bytes{600}, 1000});
  EXPECT_TRUE(fit.HoldsTooMuch());
  EXPECT_FALSE(fit.IsSteady());
}

TEST(PlanFitTest, MoreThanWithoutThePlanIsAVerdictOfItsOwn) {
  PlanFit fit(kLeast);
  Pass(fit, 20, {500, 1000}, 1000);
  EXPECT_FALSE(fit.HoldsMoreThanOther());
  Pass(fit, 7, {500, 1000}, 900);
  Pass(fit, 1, {500, 1000}, 0);
  EXPECT_FALSE(fit.HoldsMoreThanOther()) << "where it is not known nothing is said";
  Pass(fit, 8, {500, 1000}, 900);
  EXPECT_TRUE(fit.HoldsMoreThanOther());
}

TEST(PlanFitTest, OfIterationsInWhichAsMuchLivedAnotherPlanWouldHoldLess) {
  PlanFit fit(kLeast);
  for (int i = 0; i < 10; ++i) Pass(fit, 1, {i % 2 == 0 ? Bytes{500} : Bytes{600}, 1000}, 900);
  EXPECT_TRUE(fit.HoldsMoreThanOther());
  EXPECT_FALSE(fit.HoldsMoreSteadily());
  Pass(fit, 1, {600, 900}, 900);
  EXPECT_FALSE(fit.HeldMoreThanOther());
  Pass(fit, 8, {600, 1000}, 900);
  EXPECT_TRUE(fit.HoldsMoreSteadily());
}

TEST(PlanFitTest, OnAFreeCardMoreMayBeHeldAsLongAsTheRunGoesAsPlanned) {
  PlanFit fit(kLeast);
  const PlanFit::Iteration iteration{.peaks = {500, 600}, .course = PlanFit::Course::kPartly, .may_hold = 1.2};
  fit.OnIteration(iteration);
  EXPECT_TRUE(fit.fits());
  PlanFit::Iteration another = iteration;
  another.course = PlanFit::Course::kNot;
  fit.OnIteration(another);
  EXPECT_FALSE(fit.fits());
  another = iteration;
  another.may_hold = 1;
  fit.OnIteration(another);
  EXPECT_FALSE(fit.fits());
}

TEST(PlanFitTest, WhatLiesIdleGoesBackBeforeAVerdictAndLessAndLessOften) {
  PlanFit fit(kLeast);
  int trims = 0;
  for (int i = 1; i <= 1000; ++i) {
    Pass(fit, 1, {500, 1000});
    EXPECT_EQ(fit.begins(), i == 1);
    if (!fit.Trims()) continue;
    if (trims++ == 0) {
      EXPECT_EQ(i, 4);
    }
  }
  EXPECT_GE(trims, 5);
  EXPECT_LE(trims, 20);
  for (int i = 0; i < 1000; ++i) {
    Pass(fit, 8, {500, 1000});
    EXPECT_FALSE(fit.Trims()) << "what comes and goes";
    Pass(fit, 1, {1000, 1000});
  }
}

}  // namespace plan_fit
}  // namespace stalloc
