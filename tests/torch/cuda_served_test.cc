// What is told of a block of ours, and that trackers, who are other people's code, lose none.
#include "allocator/torch/cuda_served.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/runtime/alloc_fixture.h"
#include "tests/torch/fake_native.h"

namespace stalloc {
namespace {

using Entry = AllocationHistory::Entry;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Bytes kBytes = 100 * kKiB;
constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

class ServedBlocksTest : public AllocTest {
 protected:
  void SetUp() override {
    Start(PlanBuilder().Each(kBytes).Each(kBytes).Build(), 0, kPage, nullptr, /*dynamic=*/true);
    runtime_->OnMark(IterationMark(0));
    blocks_ = std::make_unique<ServedBlocks>(0, *runtime_, native_, history_);
  }
  // As the adapter.
  void* Allocate() {
    void* const block = runtime_->Allocate(kBytes, 0, Origin::kProgram);
    EXPECT_TRUE(runtime_->Owns(block));
    blocks_->Began(block, kBytes, 0);
    return block;
  }
  void Free(void* block) { blocks_->End(block); }
  // Calls `tracker` on events of an action.
  void Track(Entry::Action action, std::function<void(const Entry&)> tracker) {
    history_.AddTracker([action, tracker = std::move(tracker)](const Entry& entry) {
      if (entry.action_ == action) tracker(entry);
    });
  }
  [[nodiscard]] std::int64_t LiveBlocks() {
    return blocks_->stats().Combine(native_.getDeviceStats(0)).allocation[kAll].current;
  }
  void ExpectNothingIsLeft() {
    EXPECT_EQ(LiveBlocks(), 0);
    EXPECT_EQ(runtime_->Stats().live_bytes, 0u);
    EXPECT_EQ(runtime_->Stats().unknown_frees, 0u);
  }

  FakeNative native_;
  AllocationHistory history_;
  std::unique_ptr<ServedBlocks> blocks_;
};

TEST_F(ServedBlocksTest, ATrackerMayAskForASnapshotAndForMemory) {
  std::vector<Entry::Action> seen;
  history_.Configure({.enabled = true, .gather = nullptr, .max_entries = 100, .skip_actions = {}});
  history_.AddTracker([&](const Entry& entry) {
    seen.push_back(entry.action_);
    blocks_->CompleteFrees();
    (void)history_.Entries(0);
    EXPECT_EQ(history_.BlockContext(reinterpret_cast<const void*>(entry.addr_)), nullptr);
    if (seen.size() == 1) Free(Allocate());
  });
  Free(Allocate());
  EXPECT_THAT(seen, ElementsAre(Entry::ALLOC, Entry::ALLOC, Entry::FREE_REQUESTED, Entry::FREE_COMPLETED,
                                Entry::FREE_REQUESTED, Entry::FREE_COMPLETED));
  EXPECT_EQ(history_.Entries(0).size(), seen.size());
  ExpectNothingIsLeft();
}

TEST_F(ServedBlocksTest, ARequestWhoseTrackerFailsLeavesNothing) {
  std::vector<Entry::Action> seen;
  bool fails = true;
  Track(Entry::ALLOC, [&](const Entry&) {
    if (fails) throw std::runtime_error("no such segment");
  });
  history_.AddTracker([&](const Entry& entry) { seen.push_back(entry.action_); });
  EXPECT_THROW(Allocate(), std::runtime_error);
  EXPECT_THAT(seen, ElementsAre(Entry::ALLOC, Entry::FREE_REQUESTED, Entry::FREE_COMPLETED))
      << "others hear of its end, too";
  ExpectNothingIsLeft();
  fails = false;
  void* const block = Allocate();
  EXPECT_EQ(LiveBlocks(), 1);
  Free(block);
  ExpectNothingIsLeft();
}

TEST_F(ServedBlocksTest, AFreeDoesNotFailOnATrackersAccount) {
  int calls = 0;
  Track(Entry::FREE_REQUESTED, [&](const Entry&) {
    ++calls;
    throw 7;
  });
  int completed = 0;
  Track(Entry::FREE_COMPLETED, [&](const Entry&) { ++completed; });
  for (int i = 0; i < 2; ++i) Free(Allocate());
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(completed, 2);
  EXPECT_THAT(log_.text(), HasSubstr("a tracker of the allocator's events failed: an exception of an unknown type"));
  ExpectNothingIsLeft();
}

TEST_F(ServedBlocksTest, AnotherFreeWhileATrackerIsToldIsSeen) {
  int calls = 0;
  Track(Entry::FREE_REQUESTED, [&](const Entry& entry) {
    ++calls;
    Free(reinterpret_cast<void*>(entry.addr_));
  });
  Free(Allocate());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(runtime_->Stats().unknown_frees, 1u);
  EXPECT_THAT(log_.text(), HasSubstr("which was not allocated here"));
  EXPECT_EQ(LiveBlocks(), 0);
  EXPECT_EQ(runtime_->Stats().live_bytes, 0u);
}

TEST_F(ServedBlocksTest, OfThreadsThatFreeOneBlockOneIsTold) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kRounds = 100;
  std::atomic<std::uint64_t> told{0};
  Track(Entry::FREE_REQUESTED, [&](const Entry&) { ++told; });
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    void* const block = Allocate();
    std::vector<std::thread> threads;
    for (std::uint64_t thread = 0; thread < kThreads; ++thread) threads.emplace_back([&] { Free(block); });
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(told, kRounds);
  EXPECT_EQ(runtime_->Stats().unknown_frees, kRounds * (kThreads - 1));
  EXPECT_EQ(LiveBlocks(), 0);
  EXPECT_EQ(runtime_->Stats().live_bytes, 0u);
}

}  // namespace
}  // namespace stalloc
