// A free in two steps: in between the block is its thread's alone.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "allocator/engine/plan_engine.h"

namespace stalloc {
namespace two_step_free_test {

// An address range that nobody touches.
std::byte* const kBase = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);

// One request of 1 MiB an iteration.
DevicePlan OneSlot() {
  DevicePlan plan;
  plan.arena_bytes = kMiB;
  plan.slots = {{0, kMiB}};
  Entry entry;
  entry.bytes = entry.min_bytes = entry.max_bytes = kMiB;
  entry.slot = 0;
  plan.cycle.emplace_back().entries = {entry};
  return plan;
}

class TwoStepFreeTest : public ::testing::Test {
 protected:
  void* Allocate() {
    engine_.OnMark({MarkKind::kIteration, MarkEdge::kBegin, Pass::kNone, 0, 0, "", false});
    return engine_.Allocate(kMiB - 100, 7).pointer;
  }

  PlanEngine engine_{OneSlot(), kBase, nullptr};
};

TEST_F(TwoStepFreeTest, TheTicketKnowsTheBlock) {
  void* const block = Allocate();
  const FreeTicket ticket = engine_.BeginFree(block);
  EXPECT_EQ(ticket.pointer, block);
  EXPECT_EQ(ticket.requested, kMiB - 100);
  EXPECT_EQ(ticket.stream, 7u);
  EXPECT_EQ(engine_.Free(ticket), kMiB);
  EXPECT_EQ(engine_.Stats().live_blocks, 0u);
  EXPECT_EQ(engine_.Stats().unknown_frees, 0u);
  EXPECT_EQ(engine_.CheckInvariants(), "");
}

TEST_F(TwoStepFreeTest, InBetweenTheBlockLivesAndItsBytesAreNobodyElses) {
  void* const block = Allocate();
  const FreeTicket ticket = engine_.BeginFree(block);
  EXPECT_EQ(engine_.FindLive(block).requested, kMiB - 100);
  EXPECT_FALSE(engine_.FindLive(block).freed_pending);
  EXPECT_EQ(engine_.LiveBlocks().size(), 1u);
  EXPECT_EQ(Allocate(), nullptr);
  EXPECT_FALSE(engine_.Withdraw(0, kMiB));
  EXPECT_EQ(engine_.CheckInvariants(), "");
  EXPECT_EQ(engine_.Free(ticket), kMiB);
  EXPECT_EQ(Allocate(), block);
}

TEST_F(TwoStepFreeTest, AnotherFreeInBetweenIsUnknown) {
  void* const block = Allocate();
  const FreeTicket ticket = engine_.BeginFree(block);
  EXPECT_EQ(engine_.BeginFree(block).requested, 0u);
  EXPECT_EQ(engine_.Free(block), 0u);
  EXPECT_EQ(engine_.Stats().unknown_frees, 2u);
  EXPECT_EQ(engine_.Stats().live_blocks, 1u);
  EXPECT_EQ(engine_.Free(ticket), kMiB);
  EXPECT_EQ(engine_.BeginFree(block).requested, 0u);
  EXPECT_EQ(engine_.Stats().unknown_frees, 3u);
}

// Some in two steps, some in one.
TEST_F(TwoStepFreeTest, OfThreadsThatFreeOneBlockOneDoes) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kRounds = 300;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    void* const block = Allocate();
    ASSERT_EQ(block, kBase);
    std::atomic<int> freed{0};
    std::atomic<std::uint64_t> ready{0};
    std::vector<std::thread> threads;
    for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        ++ready;
        while (ready.load() < kThreads) std::this_thread::yield();
        if (thread % 2 == 0) {
          freed += engine_.Free(block) != 0 ? 1 : 0;
        } else if (const FreeTicket ticket = engine_.BeginFree(block); ticket.requested != 0) {
          freed += engine_.Free(ticket) != 0 ? 1 : 0;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(freed, 1);
  }
  EXPECT_EQ(engine_.Stats().unknown_frees, kRounds * (kThreads - 1));
  EXPECT_EQ(engine_.Stats().live_bytes, 0u);
  EXPECT_EQ(engine_.CheckInvariants(), "");
}

}  // namespace two_step_free_test
}  // namespace stalloc
