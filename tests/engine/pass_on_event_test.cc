// The events that stand between the uses of one memory at two addresses.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "allocator/engine/plan_engine.h"
#include "tests/engine/fake_fence.h"

namespace stalloc {
namespace pass_on_event_test {

constexpr Bytes kPart = 64 * kBlock;

// Where one stream has all nobody waits for it, but something that is no kernel stands between.
TEST(PassOnEventTest, TheStreamThatHadTheMemoryGetsAnEvent) {
  FakeFence fence;
  PlanEngine engine(TurnsPlan(2, 1), kBase, &fence);
  ASSERT_TRUE(engine.Withdraw(kPart, kPart));
  engine.OnMark(MarkOf(MarkKind::kIteration));
  const auto first = engine.Allocate(kBlock, 7);
  ASSERT_EQ(first.pointer, kBase);
  engine.Free(first.pointer);
  EXPECT_EQ(fence.records(), 0);
  const PlanEngine::Passing passing{.from = 0, .to = kPart, .bytes = kPart};
  ASSERT_TRUE(engine.Withdraw(passing.from, passing.bytes));
  ASSERT_TRUE(engine.PrepareToPassOn(passing));
  engine.PassOn({&passing, 1});
  EXPECT_EQ(fence.records(), 1);
  engine.Restore(passing.to, passing.bytes);
  EXPECT_EQ(engine.Allocate(2 * kBlock, 7).pointer, kBase + kPart);
  EXPECT_EQ(fence.TakeWaits(), Waits{});
}

// A block of stream 7 was in the first part, which is withdrawn and is to pass on to the second one.
PlanEngine::Passing WithdrawUsedPart(PlanEngine& engine) {
  EXPECT_TRUE(engine.Withdraw(kPart, kPart));
  engine.OnMark(MarkOf(MarkKind::kIteration));
  engine.Free(engine.Allocate(kBlock, 7).pointer);
  EXPECT_TRUE(engine.Withdraw(0, kPart));
  return {.from = 0, .to = kPart, .bytes = kPart};
}

// A request of another stream takes that event, and records none.
TEST(PassOnEventTest, AnotherStreamWaitsForIt) {
  FakeFence fence;
  PlanEngine engine(TurnsPlan(2, 1), kBase, &fence);
  const PlanEngine::Passing passing = WithdrawUsedPart(engine);
  ASSERT_TRUE(engine.PrepareToPassOn(passing));
  engine.PassOn({&passing, 1});
  engine.Restore(passing.to, passing.bytes);
  EXPECT_EQ(engine.Allocate(2 * kBlock, 8).pointer, kBase + kPart);
  EXPECT_EQ(fence.TakeWaits(), (Waits{{8, 7}}));
}

// What passes on at once may have been used by more streams than one request could be ordered behind.
TEST(PassOnEventTest, EachStreamOfManyGetsAnEvent) {
  constexpr std::uint32_t kStreams = 20;
  FakeFence fence;
  PlanEngine engine(TurnsPlan(2 * kStreams, 1), kBase, &fence);
  ASSERT_TRUE(engine.Withdraw(kStreams * kPart, kStreams * kPart));
  engine.OnMark(MarkOf(MarkKind::kIteration));
  std::vector<void*> blocks;
  for (std::uint32_t i = 0; i < kStreams; ++i) {
    blocks.push_back(engine.Allocate((i + 1) * kBlock, 10 + i).pointer);
    ASSERT_EQ(blocks.back(), kBase + i * kPart);
  }
  for (void* block : blocks) engine.Free(block);
  constexpr Bytes kHalf = kStreams / 2 * kPart;
  const std::vector<PlanEngine::Passing> passings = {{0, 2 * kHalf, kHalf}, {kHalf, 3 * kHalf, kHalf}};
  const int records = fence.records();
  for (const PlanEngine::Passing& passing : passings) {
    ASSERT_TRUE(engine.Withdraw(passing.from, passing.bytes));
    ASSERT_TRUE(engine.PrepareToPassOn(passing));
  }
  engine.PassOn(passings);
  EXPECT_EQ(fence.records() - records, static_cast<int>(kStreams));
}

// Where the event is refused, as while the stream is captured, the memory stays.
TEST(PassOnEventTest, AStreamThatTakesNoEventKeepsTheMemory) {
  FakeFence fence;
  PlanEngine engine(TurnsPlan(2, 1), kBase, &fence);
  const PlanEngine::Passing passing = WithdrawUsedPart(engine);
  fence.SetCapturing(true);
  EXPECT_FALSE(engine.PrepareToPassOn(passing));
  fence.SetCapturing(false);
  EXPECT_TRUE(engine.PrepareToPassOn(passing));
}

// A block of stream 7 that was freed on 8; its bytes are 7's again, which has not used them yet.
void OweBytes(PlanEngine& engine) {
  engine.OnMark(MarkOf(MarkKind::kIteration));
  engine.Free(engine.Allocate(kBlock, 7).pointer, 8);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  const auto again = engine.Allocate(kBlock, 7);
  ASSERT_EQ(again.pointer, kBase);
  engine.Free(again.pointer);
}

// Debts of the home, whose blocks leave no trace.
TEST(PassOnEventTest, AStreamThatIsOwedTheBytesGetsAnEvent) {
  FakeFence fence;
  PlanEngine engine(TurnsPlan(2, 1), kBase, &fence);
  ASSERT_TRUE(engine.Withdraw(kPart, kPart));
  OweBytes(engine);
  const PlanEngine::Passing passing{.from = 0, .to = kPart, .bytes = kPart};
  const int records = fence.records();
  ASSERT_TRUE(engine.Withdraw(passing.from, passing.bytes));
  ASSERT_TRUE(engine.PrepareToPassOn(passing));
  engine.PassOn({&passing, 1});
  EXPECT_EQ(fence.records() - records, 2) << "7 and 8";
}

// Of a stream that is one of several whose blocks lay in the memory.
TEST(PassOnEventTest, WhoGetsBytesThatAreOwedWaitsForTheOtherStream) {
  FakeFence fence;
  DevicePlan plan = TurnsPlan(4, 1);
  for (std::uint32_t i = 0; i < 4; ++i) plan.cycle[0].entries[i].stream = i;
  PlanEngine engine(plan, kBase, &fence);
  ASSERT_TRUE(engine.Withdraw(2 * kPart, 2 * kPart));
  OweBytes(engine);
  engine.Free(engine.Allocate(2 * kBlock, 9).pointer);
  const PlanEngine::Passing passing{.from = 0, .to = 2 * kPart, .bytes = 2 * kPart};
  ASSERT_TRUE(engine.Withdraw(passing.from, passing.bytes));
  ASSERT_TRUE(engine.PrepareToPassOn(passing));
  engine.PassOn({&passing, 1});
  engine.Restore(passing.to, passing.bytes);
  (void)fence.TakeWaits();
  ASSERT_EQ(engine.Allocate(3 * kBlock, 10).pointer, kBase + 2 * kPart);
  const Waits waits = fence.TakeWaits();
  EXPECT_EQ(std::set(waits.begin(), waits.end()), (std::set<Waits::value_type>{{10, 7}, {10, 8}, {10, 9}}));
}

}  // namespace pass_on_event_test
}  // namespace stalloc
