#include "planner/whatif/step_cost.h"

#include <gtest/gtest.h>

namespace stalloc::planner {
namespace {

// Micro-batches of one size, together.
Load Alike(double count, double size) { return {count, size, size * size / count, {}}; }

// The device was watched; half of a layer's time in the trace is the host's.
TracedTimes Watched() {
  TracedTimes traced;
  traced.rest = 0.05;
  traced.passes = 0.4;
  traced.micro_batches = 2;
  for (const double size : {1.0, 2.0}) {
    traced.watched.push_back({Alike(2, size), {0.4}, {{{"gemm", {0.1 * size, 2}}}}});
    traced.free.push_back({Alike(2, size), 0.4});
  }
  traced.layers.push_back(
      {{{"m.mlp", {1'000'000'000, 120'000'000, 90'000'000}}}, {Alike(2, 2), Alike(2, 2), Alike(2, 1)}});
  return traced;
}

TEST(StepCostTest, ARecomputedLayerCostsWhatTheDeviceTakesForIt) {
  const StepCost cost(Watched());
  const Load load{2, 15, 15 * 0.75, {}};
  // The layer takes 0.06 s whatever the size, and 0.03 by the size. What is offloaded took 0.5 s of the 0.4 s of
  // passes, and grows as they do; 0.05 s are in no pass.
  const double step = 0.1 * 15 + 0.06 + 0.03 * 15;
  EXPECT_NEAR(cost.Seconds(load, {0.59, 0, 0.09, {"m.mlp"}}), step + 0.5 * (step - 0.05) / 0.4, 1e-9);
}

TEST(StepCostTest, ALayerThatTheTracesDoNotTellKeepsItsShare) {
  const StepCost cost(Watched());
  const Load load{2, 15, 15 * 0.75, {}};
  EXPECT_NEAR(cost.Seconds(load, {0.1, 0.02, 0.1, {"m.other"}}),
              cost.Seconds(load) + cost.Passes(load) * 0.1 / 0.4 + 0.02, 1e-9);
}

TEST(StepCostTest, WithoutFreeStepsTheTracesTell) {
  TracedTimes traced;
  traced.rest = 0.2;
  traced.passes = 2;
  traced.micro_batches = 2;
  traced.other_passes = 1.4;
  traced.ratio = 0.5;
  const StepCost cost(traced);
  EXPECT_NEAR(cost.Seconds(Alike(2, 2)), 2.2, 1e-9);
  EXPECT_NEAR(cost.Seconds(Alike(2, 4)), 3.4, 1e-9);
  EXPECT_NEAR(cost.Seconds(Alike(4, 4), {0, 0.1, 0, {}}), 4.2 + 0.2, 1e-9) << "checkpoints come with each micro-batch";
  EXPECT_FALSE(cost.HostShare(Alike(2, 2)).has_value());
}

TEST(StepCostTest, FactorsAreNeverBelowNothing) {
  EXPECT_EQ(LeastSquares({{1, 1, 1}, {2, 4, 1}}).second, 0);
  const Line flat = LineBelow({1, 2}, {3, 1});
  EXPECT_EQ(flat.growing, 0) << "nothing takes less time where there is more";
}

}  // namespace
}  // namespace stalloc::planner
