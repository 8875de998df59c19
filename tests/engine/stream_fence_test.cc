// Blocks that other streams use, too: never handed on before those streams are done.
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "allocator/engine/foreign_uses.h"
#include "allocator/engine/plan_engine.h"

namespace stalloc {
namespace {

constexpr Bytes kBlock = 4096;
std::byte* const kBase = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);

// Streams whose work ends when the test says so.
class FakeFence : public StreamFence {
 public:
  Event Record(StreamHandle stream) noexcept override {
    const std::lock_guard lock(mutex_);
    ++records_;
    if (capturing_) return 0;
    outstanding_[++last_] = stream;
    return last_;
  }
  bool Done(Event event) noexcept override {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(outstanding_.contains(event)) << "event " << event << " is not outstanding";
    return finished_.contains(outstanding_[event]);
  }
  void Recycle(Event event) noexcept override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(outstanding_.erase(event), 1u) << "event " << event << " recycled twice";
  }

  void Finish(StreamHandle stream) { finished_.insert(stream); }
  void SetCapturing(bool capturing) { capturing_ = capturing; }
  [[nodiscard]] std::size_t outstanding() const { return outstanding_.size(); }
  [[nodiscard]] int records() const { return records_; }

 private:
  std::mutex mutex_;
  bool capturing_ = false;
  int records_ = 0;
  Event last_ = 0;
  std::map<Event, StreamHandle> outstanding_;
  std::set<StreamHandle> finished_;
};

Mark MarkOf(MarkKind kind) { return {kind, MarkEdge::kBegin, Pass::kNone, 0, 0, "", false}; }

// Each of the `slots` places is asked for in turn, `rounds` times.
DevicePlan TurnsPlan(std::uint32_t slots, int rounds) {
  DevicePlan plan;
  plan.arena_bytes = slots * kBlock * 64;
  plan.cycle.emplace_back();
  for (std::uint32_t i = 0; i < slots; ++i) plan.slots.push_back({i * kBlock * 64, kBlock * (i + 1), {}});
  for (int round = 0; round < rounds; ++round) {
    for (std::uint32_t i = 0; i < slots; ++i) {
      Entry entry;
      entry.bytes = entry.min_bytes = entry.max_bytes = kBlock * (i + 1);
      entry.slot = i;
      plan.cycle[0].entries.push_back(entry);
    }
  }
  return plan;
}

class StreamFenceTest : public testing::Test {
 protected:
  void SetUp() override { engine_.OnMark(MarkOf(MarkKind::kIteration)); }
  void* Allocate() { return engine_.Allocate(kBlock, 0).pointer; }

  FakeFence fence_;
  PlanEngine engine_{TurnsPlan(1, 10), kBase, &fence_};
};

TEST_F(StreamFenceTest, ABlockOfItsOwnStreamIsReusedAtOnce) {
  void* block = Allocate();
  engine_.RecordStream(block, 0);
  engine_.Free(block);
  EXPECT_EQ(Allocate(), block);
  EXPECT_EQ(fence_.records(), 0);
}

TEST_F(StreamFenceTest, ARecordedBlockIsReusedOnlyAfterTheOtherStream) {
  void* block = Allocate();
  engine_.RecordStream(block, 1);
  EXPECT_EQ(engine_.Free(block), kBlock);
  EXPECT_EQ(engine_.Stats().live_bytes, 0u);  // to the program it is freed
  EXPECT_EQ(engine_.Stats().pending_bytes, kBlock);
  EXPECT_TRUE(engine_.FindLive(block).freed_pending);
  EXPECT_EQ(engine_.Allocate(kBlock, 0).reason, MissReason::kOccupied);
  fence_.Finish(1);
  EXPECT_EQ(Allocate(), block);  // polled by the request that needs the bytes
  EXPECT_EQ(engine_.Stats().pending_blocks, 0u);
  EXPECT_EQ(fence_.outstanding(), 0u);
  EXPECT_EQ(engine_.CheckInvariants(), "");
}

TEST_F(StreamFenceTest, AllOfSeveralStreamsMustBeDone) {
  void* block = Allocate();
  for (const StreamHandle stream : {1, 2, 3, 2, 1}) engine_.RecordStream(block, stream);
  engine_.Free(block);
  EXPECT_EQ(fence_.outstanding(), 3u);  // one event a stream
  fence_.Finish(1);
  fence_.Finish(3);
  EXPECT_EQ(Allocate(), nullptr);
  EXPECT_EQ(fence_.outstanding(), 1u);
  fence_.Finish(2);
  EXPECT_EQ(Allocate(), block);
}

TEST_F(StreamFenceTest, AMarkReleasesBlocksThatNobodyAsksFor) {
  void* block = Allocate();
  engine_.RecordStream(block, 1);
  engine_.Free(block);
  engine_.OnMark(MarkOf(MarkKind::kOptimizer));
  EXPECT_EQ(engine_.Stats().pending_blocks, 1u);
  fence_.Finish(1);
  engine_.OnMark(MarkOf(MarkKind::kOptimizer));
  EXPECT_EQ(engine_.Stats().pending_blocks, 0u);
  EXPECT_EQ(engine_.FindLive(block).bytes, 0u);
}

TEST_F(StreamFenceTest, AnEventThatCannotBeRecordedIsTriedAgainAtAMark) {
  void* block = Allocate();
  engine_.RecordStream(block, 1);
  fence_.SetCapturing(true);
  engine_.Free(block);
  fence_.Finish(1);
  engine_.OnMark(MarkOf(MarkKind::kOptimizer));  // still capturing
  EXPECT_EQ(Allocate(), nullptr);  // no event was ever behind the work: not done, whatever the stream says
  fence_.SetCapturing(false);
  engine_.OnMark(MarkOf(MarkKind::kOptimizer));  // records
  EXPECT_EQ(Allocate(), block);                  // polls
}

TEST_F(StreamFenceTest, APendingBlockCanNeitherBeFreedAgainNorRecorded) {
  void* block = Allocate();
  engine_.RecordStream(block, 1);
  engine_.Free(block);
  EXPECT_EQ(engine_.Free(block), 0u);
  EXPECT_EQ(engine_.Stats().unknown_frees, 1u);
  engine_.RecordStream(block, 2);
  fence_.Finish(1);
  EXPECT_EQ(Allocate(), block);
}

TEST_F(StreamFenceTest, AfterDeactivationTheFenceIsLeftAlone) {
  void* block = Allocate();
  engine_.RecordStream(block, 1);
  engine_.Deactivate();
  EXPECT_EQ(engine_.Free(block), kBlock);
  engine_.OnMark(MarkOf(MarkKind::kOptimizer));
  EXPECT_EQ(fence_.records(), 0);
  EXPECT_EQ(engine_.Stats().retained_blocks, 1u);
  EXPECT_EQ(engine_.CheckInvariants(), "");
}

TEST(StreamFenceLessTest, WithoutAFenceARecordedBlockIsNeverReused) {
  PlanEngine engine(TurnsPlan(1, 10), kBase, nullptr);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  void* block = engine.Allocate(kBlock, 0).pointer;
  engine.RecordStream(block, 1);
  EXPECT_EQ(engine.Free(block), kBlock);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  EXPECT_EQ(engine.Allocate(kBlock, 0).reason, MissReason::kOccupied);
  EXPECT_EQ(engine.Stats().retained_blocks, 1u);
  EXPECT_EQ(engine.CheckInvariants(), "");
}

// More than one batch of events, done out of order: each block comes back when, and only when, its own stream is done.
TEST(ManyPendingTest, BlocksComeBackOneByOneAsTheirStreamsFinish) {
  constexpr std::uint32_t kSlots = 60;
  FakeFence fence;
  PlanEngine engine(TurnsPlan(kSlots, 1), kBase, &fence);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  std::vector<void*> blocks;
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    void* block = engine.Allocate(kBlock * (i + 1), 0).pointer;
    ASSERT_NE(block, nullptr);
    for (StreamHandle use = 0; use <= i % 3; ++use) engine.RecordStream(block, 1000 * (use + 1) + i);
    blocks.push_back(block);
  }
  for (void* block : blocks) engine.Free(block);
  for (std::uint32_t done = 0; done < kSlots; ++done) {
    const std::uint32_t i = done * 7 % kSlots;  // 7 and 60 have no common factor
    for (StreamHandle use = 0; use <= i % 3; ++use) fence.Finish(1000 * (use + 1) + i);
    engine.OnMark(MarkOf(MarkKind::kMicrobatch));
    ASSERT_EQ(engine.Stats().pending_blocks, kSlots - done - 1);
    ASSERT_EQ(engine.FindLive(blocks[i]).bytes, 0u);
    ASSERT_EQ(engine.CheckInvariants(), "");
  }
  EXPECT_EQ(fence.outstanding(), 0u);
}

TEST(ManyPendingTest, ABlockWithMoreStreamsThanABatchComesBack) {
  FakeFence fence;
  PlanEngine engine(TurnsPlan(1, 4), kBase, &fence);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  void* block = engine.Allocate(kBlock, 0).pointer;
  for (StreamHandle stream = 1; stream <= 60; ++stream) engine.RecordStream(block, stream);
  engine.Free(block);
  for (StreamHandle stream = 1; stream <= 60; ++stream) fence.Finish(stream);
  for (int mark = 0; mark < 4; ++mark) engine.OnMark(MarkOf(MarkKind::kOptimizer));
  EXPECT_EQ(engine.Allocate(kBlock, 0).pointer, block);
}

TEST(ManyPendingTest, MoreUsesThanCanBeNotedLoseMemoryButNeverData) {
  FakeFence fence;
  PlanEngine engine(TurnsPlan(1, 4), kBase, &fence);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  void* block = engine.Allocate(kBlock, 0).pointer;
  for (StreamHandle stream = 1; stream <= ForeignUses::kMaxStreams; ++stream) engine.RecordStream(block, stream);
  EXPECT_EQ(engine.Stats().retained_blocks, 0u);
  engine.RecordStream(block, 1);  // known already
  EXPECT_EQ(engine.Stats().retained_blocks, 0u);
  engine.RecordStream(block, 1'000'000);
  ASSERT_EQ(engine.Stats().retained_blocks, 1u);
  engine.Free(block);
  engine.OnMark(MarkOf(MarkKind::kOptimizer));
  EXPECT_EQ(engine.Allocate(kBlock, 0).reason, MissReason::kOccupied);
  EXPECT_EQ(engine.CheckInvariants(), "");
}

TEST(ForeignUsesTest, KeepsListsApartAndReusesCells) {
  ForeignUses uses(3);
  std::uint32_t first = 0;
  std::uint32_t second = 0;
  EXPECT_TRUE(uses.Add(first, 10));
  EXPECT_TRUE(uses.Add(first, 11));
  EXPECT_TRUE(uses.Add(first, 10));  // known already
  EXPECT_TRUE(uses.Add(second, 10));
  EXPECT_FALSE(uses.Add(second, 12));  // full
  EXPECT_EQ(uses[second].stream, 10u);
  EXPECT_EQ(uses[second].next, 0u);
  uses.Remove(first, uses[first].next);  // the older cell
  EXPECT_EQ(uses[first].stream, 11u);
  EXPECT_EQ(uses[first].next, 0u);
  EXPECT_TRUE(uses.Add(second, 12));
  uses.Remove(first, first);
  EXPECT_EQ(first, 0u);
}

}  // namespace
}  // namespace stalloc
