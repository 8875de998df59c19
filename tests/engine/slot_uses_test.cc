#include <gtest/gtest.h>

#include "allocator/engine/place/idle_gaps.h"

namespace stalloc {
namespace slot_uses_test {

constexpr Bytes kUnit = 4096;

DevicePlan PlanOf(const std::vector<std::vector<std::uint32_t>>& prologue,
                  const std::vector<std::vector<std::uint32_t>>& cycle) {
  DevicePlan plan;
  plan.slots = {{0, kUnit}, {kUnit, 2 * kUnit}, {2 * kUnit + 512, 512}};
  plan.arena_bytes = 4 * kUnit;
  const auto add = [](const auto& slots, std::vector<Script>* scripts) {
    for (const auto& script : slots) {
      scripts->emplace_back();
      for (const std::uint32_t slot : script) {
        scripts->back().entries.emplace_back();
        scripts->back().entries.back().slot = slot;
      }
    }
  };
  add(prologue, &plan.prologue);
  add(cycle, &plan.cycle);
  return plan;
}

TEST(SlotUsesTest, APartIsDueWhenASlotWithBytesInItIs) {
  const SlotUses uses(PlanOf({{2}}, {{0, kNoSlot, 1}, {0, 2}}), kUnit);  // entries 0; 1 2 3; 4 5
  EXPECT_EQ(uses.cycle_length(), 5u);
  EXPECT_EQ(uses.UntilDue(0, 0), 1u);
  EXPECT_EQ(uses.UntilDue(0, 1), 0u) << "now";
  EXPECT_EQ(uses.UntilDue(0, 2), 2u);
  EXPECT_EQ(uses.UntilDue(1, 0), 3u);
  EXPECT_EQ(uses.UntilDue(2, 0), 0u);
  EXPECT_EQ(uses.UntilDue(2, 1), 2u) << "slot 1 ends in it";
  EXPECT_EQ(uses.UntilDue(2, 4), 1u);
}

TEST(SlotUsesTest, TheCycleComesAgainAndThePrologueDoesNot) {
  const SlotUses uses(PlanOf({{2}}, {{0, kNoSlot, 1}}), kUnit);  // entries 0; 1 2 3
  EXPECT_EQ(uses.UntilDue(0, 2), 2u) << "2, 3, then 1 of the next round";
  EXPECT_EQ(uses.UntilDue(2, 4), 2u) << "behind the last";
  const SlotUses once(PlanOf({{0}}, {{1}}), kUnit);
  EXPECT_EQ(once.UntilDue(0, 1), SlotUses::kNever);
}

TEST(SlotUsesTest, WhereThereAreNoSlotsNothingIsDue) {
  const SlotUses uses(PlanOf({}, {{0}}), kUnit);
  EXPECT_EQ(uses.UntilDue(3, 0), SlotUses::kNever);
  EXPECT_EQ(uses.UntilDue(99, 0), SlotUses::kNever) << "above the plan's height";
  EXPECT_EQ(SlotUses(DevicePlan{}, kUnit).UntilDue(0, 0), SlotUses::kNever);
}

}  // namespace slot_uses_test
}  // namespace stalloc
