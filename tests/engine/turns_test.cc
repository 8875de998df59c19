// Loops whose output lives into the next iteration, and that lose count of their turns.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "allocator/engine/follow/script_cursor.h"
#include "allocator/engine/plan_engine.h"

namespace stalloc {
namespace turns_test {

constexpr Bytes kOutput = 3 * kMiB;
constexpr Bytes kTemporary = 2 * kMiB;
std::byte* const kBase = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);

Mark Iteration() { return {MarkKind::kIteration, MarkEdge::kBegin, Pass::kNone, 0, 0, "", false}; }
Mark Evaluation(MarkEdge edge) { return {MarkKind::kFence, edge, Pass::kNone, 0, 0, "eval", false}; }

// In each turn a new output and, when the old one is gone, a temporary in its place.
DevicePlan TwoTurns() {
  DevicePlan plan;
  plan.arena_bytes = 2 * kOutput;
  plan.turns = 2;
  for (std::uint32_t turn = 0; turn < 2; ++turn) {
    const Offset own = turn * kOutput;
    const Offset other = kOutput - own;
    plan.slots.push_back({own, kOutput});
    plan.slots.push_back({other, kTemporary});
    Script& script = plan.cycle.emplace_back();
    script.entries.push_back(
        {.bytes = kOutput, .min_bytes = kOutput, .max_bytes = kOutput, .slot = 2 * turn, .expected_life = 3});
    script.entries.push_back({.bytes = kTemporary,
                              .min_bytes = kTemporary,
                              .max_bytes = kTemporary,
                              .slot = 2 * turn + 1,
                              .expected_life = 1});
  }
  return plan;
}

class Loop {
 public:
  explicit Loop(const DevicePlan& plan) : engine_(plan, kBase, nullptr) {}

  PlanEngine& engine() { return engine_; }
  void Begin() { engine_.OnMark(Iteration()); }
  // How many of an iteration's two requests got their slots.
  std::uint64_t Iterate() {
    const std::uint64_t before = engine_.Stats().planned_hits;
    ReplaceOutput();
    UseTemporary();
    return engine_.Stats().planned_hits - before;
  }
  void ReplaceOutput() {
    void* const output = engine_.Allocate(kOutput, 0).pointer;
    engine_.Free(output_);
    output_ = output;
  }
  void UseTemporary() {
    engine_.Free(engine_.Allocate(kTemporary, 0).pointer);
    EXPECT_EQ(engine_.CheckInvariants(), "");
  }
  std::uint64_t MarkedIteration() {
    Begin();
    return Iterate();
  }

 private:
  PlanEngine engine_;
  void* output_ = nullptr;
};

TEST(TurnsTest, ARunThatKeepsCountGetsEverySlot) {
  Loop loop(TwoTurns());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(loop.MarkedIteration(), 2u) << i;
}

TEST(TurnsTest, AnIterationThatIsMarkedTwiceCostsNothing) {
  Loop loop(TwoTurns());
  for (int i = 0; i < 5; ++i) {
    loop.Begin();
    EXPECT_EQ(loop.MarkedIteration(), 2u) << i;
  }
}

TEST(TurnsTest, AnIterationThatIsBrokenOffBeforeItsOutputCostsNothing) {
  Loop loop(TwoTurns());
  loop.MarkedIteration();
  loop.Begin();  // and the old output lives on
  EXPECT_EQ(loop.MarkedIteration(), 2u);
  EXPECT_EQ(loop.MarkedIteration(), 2u);
}

TEST(TurnsTest, AnIterationWithoutAMarkIsMadeUpForInTheNext) {
  Loop loop(TwoTurns());
  loop.MarkedIteration();
  loop.Iterate();
  loop.MarkedIteration();  // the output is nowhere in the arena, or where the count has it
  EXPECT_EQ(loop.MarkedIteration(), 2u);
  EXPECT_EQ(loop.MarkedIteration(), 2u);
}

TEST(TurnsTest, AnIterationInsideAFenceIsNone) {
  Loop loop(TwoTurns());
  loop.MarkedIteration();
  loop.engine().OnMark(Evaluation(MarkEdge::kBegin));
  loop.Begin();
  loop.engine().OnMark(Evaluation(MarkEdge::kEnd));
  EXPECT_EQ(loop.MarkedIteration(), 2u);
}

TEST(TurnsTest, WhatIsAliveDecidesAndOfEqualsTheCount) {
  const Turns turns(TwoTurns());
  ASSERT_FALSE(turns.empty());
  const auto nobody = [](std::uint32_t) { return false; };
  EXPECT_EQ(turns.Skipped(0, nobody), 0u);
  EXPECT_EQ(turns.Skipped(1, nobody), 0u);
  const auto first_output = [](std::uint32_t granule) { return granule == 0; };
  EXPECT_EQ(turns.Skipped(0, first_output), 1u);
  EXPECT_EQ(turns.Skipped(1, first_output), 0u);
}

TEST(TurnsTest, PlacesThatAllTurnsShareTellNothing) {
  DevicePlan plan = TwoTurns();
  plan.slots[2] = plan.slots[0];  // the same place in both turns
  const Turns turns(plan);
  const auto everybody = [](std::uint32_t) { return true; };
  EXPECT_EQ(turns.Skipped(0, everybody), 0u);
  EXPECT_EQ(turns.Skipped(1, everybody), 0u);
}

TEST(TurnsTest, APlanOfOneTurnHasNothingToChoose) {
  DevicePlan plan = TwoTurns();
  plan.turns = 1;
  EXPECT_TRUE(Turns(plan).empty());
}

}  // namespace turns_test
}  // namespace stalloc
