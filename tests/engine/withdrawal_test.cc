// Parts of the arena that are withdrawn from the engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "allocator/engine/plan_engine.h"

namespace stalloc {
namespace withdrawn_ranges_test {

std::byte* const kBase = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);  // nobody touches it

// One MiB at 0, one at 1 MiB, every iteration.
DevicePlan TwoBlocks() {
  DevicePlan plan;
  plan.arena_bytes = 2 * kMiB;
  plan.cycle.emplace_back();
  for (std::uint32_t i = 0; i < 2; ++i) {
    Entry entry;
    entry.bytes = entry.min_bytes = entry.max_bytes = kMiB;
    entry.slot = i;
    plan.slots.push_back({i * kMiB, kMiB});
    plan.cycle[0].entries.push_back(entry);
  }
  return plan;
}
Mark Iteration() { return {MarkKind::kIteration, MarkEdge::kBegin, Pass::kNone, 0, 0, "", false}; }

class FakeBacking final : public ArenaBacking {
 public:
  explicit FakeBacking(PlanEngine& engine) : engine_(engine) {}
  bool EnsureBacked(Offset offset, Bytes bytes, std::uint64_t /*now*/, Growth /*growth*/) noexcept override {
    asked.push_back(offset);
    if (!answer) return false;
    engine_.Restore(offset, bytes);
    return true;
  }
  [[nodiscard]] Bytes Spare() const noexcept override { return spare; }

  bool answer = true;
  Bytes spare = 0;
  std::vector<Offset> asked;

 private:
  PlanEngine& engine_;
};

TEST(WithdrawTest, NothingIsPlacedInAWithdrawnRange) {
  PlanEngine engine(TwoBlocks(), kBase, nullptr);
  ASSERT_TRUE(engine.Withdraw(kMiB, kMiB));
  engine.OnMark(Iteration());
  EXPECT_EQ(engine.Allocate(kMiB, 0).pointer, kBase);
  EXPECT_EQ(engine.Allocate(kMiB, 0).reason, MissReason::kUnbacked);
  engine.Restore(kMiB, kMiB);
  engine.OnMark(Iteration());
  engine.Free(kBase);
  EXPECT_EQ(engine.Allocate(kMiB, 0).pointer, kBase);
  EXPECT_EQ(engine.Allocate(kMiB, 0).pointer, kBase + kMiB);
}

TEST(WithdrawTest, ALiveBlockKeepsItsRange) {
  PlanEngine engine(TwoBlocks(), kBase, nullptr);
  engine.OnMark(Iteration());
  ASSERT_EQ(engine.Allocate(kMiB, 0).pointer, kBase);
  EXPECT_FALSE(engine.Withdraw(0, 2 * kMiB));
  EXPECT_FALSE(engine.Withdraw(0, kMiB));
  EXPECT_TRUE(engine.Withdraw(kMiB, 4 * kMiB));  // the arena may be mapped beyond the plan's height
  EXPECT_FALSE(engine.Withdraw(kMiB, kMiB)) << "it is withdrawn already";
}

TEST(WithdrawTest, TheBackingIsAskedForWhatARequestNeeds) {
  PlanEngine engine(TwoBlocks(), kBase, nullptr);
  FakeBacking backing(engine);
  engine.SetBacking(&backing);
  ASSERT_TRUE(engine.Withdraw(0, kMiB));
  ASSERT_TRUE(engine.Withdraw(kMiB, kMiB));
  engine.OnMark(Iteration());
  EXPECT_EQ(engine.Allocate(kMiB, 0).pointer, kBase);
  backing.answer = false;
  EXPECT_EQ(engine.Allocate(kMiB, 0).reason, MissReason::kUnbacked);
  EXPECT_EQ(backing.asked, (std::vector<Offset>{0, kMiB}));
  EXPECT_EQ(engine.Stats().live_bytes, kMiB);
}

TEST(WithdrawTest, ForASmallBlockTheBackingIsAskedWhereItHasSpare) {
  PlanEngine engine(TwoBlocks(), kBase, nullptr, {.least_bytes = 2 * kMiB});
  FakeBacking backing(engine);
  engine.SetBacking(&backing);
  ASSERT_TRUE(engine.Withdraw(0, 2 * kMiB));
  engine.OnMark(Iteration());
  EXPECT_EQ(engine.Allocate(kMiB, 0).reason, MissReason::kUnbacked) << "upstream has a pool for it";
  EXPECT_TRUE(backing.asked.empty());
  backing.spare = 2 * kMiB;
  EXPECT_EQ(engine.Allocate(kMiB, 0).pointer, kBase + kMiB);
  EXPECT_EQ(backing.asked.size(), 1u);
}

TEST(WithdrawTest, ABackingThatOnlySaysSoIsNotBelieved) {
  PlanEngine engine(TwoBlocks(), kBase, nullptr);
  struct Liar final : ArenaBacking {
    bool EnsureBacked(Offset, Bytes, std::uint64_t, Growth) noexcept override { return true; }
  } liar;
  engine.SetBacking(&liar);
  ASSERT_TRUE(engine.Withdraw(0, kMiB));
  engine.OnMark(Iteration());
  EXPECT_EQ(engine.Allocate(kMiB, 0).reason, MissReason::kUnbacked);
}

}  // namespace withdrawn_ranges_test
}  // namespace stalloc
