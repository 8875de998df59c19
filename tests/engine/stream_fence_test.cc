// Bytes that another stream used: who waits for what, call by call. tests/engine/stream_order_test.cc proves the order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "allocator/engine/fence_events.h"
#include "allocator/engine/foreign_uses.h"
#include "allocator/engine/plan_engine.h"
#include "allocator/engine/stream_clocks.h"

namespace stalloc {
namespace {

constexpr Bytes kBlock = 4096;
using Waits = std::vector<std::pair<StreamHandle, StreamHandle>>;
std::byte* const kBase = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);

// Streams whose work ends when the test says so; keeps score of who waits for whom.
class FakeFence : public StreamFence {
 public:
  Event Record(StreamHandle stream) noexcept override {
    const std::lock_guard lock(mutex_);
    ++records_;
    if (capturing_) return 0;
    outstanding_[++last_] = stream;
    return last_;
  }
  bool Wait(StreamHandle stream, Event event) noexcept override {
    if (on_wait) std::exchange(on_wait, nullptr)();
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(outstanding_.contains(event)) << "event " << event << " is not outstanding";
    if (capturing_) return false;
    waits_.push_back({stream, outstanding_[event]});
    return true;
  }
  bool Done(Event event) noexcept override {
    const std::lock_guard lock(mutex_);
    ++queries_;
    EXPECT_TRUE(outstanding_.contains(event)) << "event " << event << " is not outstanding";
    return finished_.contains(outstanding_[event]);
  }
  void Recycle(Event event) noexcept override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(outstanding_.erase(event), 1u) << "event " << event << " recycled twice";
  }

  std::function<void()> on_wait;  // called once, before the next Wait

  void Finish(StreamHandle stream) { finished_.insert(stream); }
  void SetCapturing(bool capturing) { capturing_ = capturing; }
  [[nodiscard]] std::size_t outstanding() const { return outstanding_.size(); }
  [[nodiscard]] int records() const { return records_; }
  [[nodiscard]] int queries() const { return queries_; }
  // Since the last call: (who waited, for whom).
  [[nodiscard]] Waits TakeWaits() { return std::exchange(waits_, {}); }

 private:
  std::mutex mutex_;
  bool capturing_ = false;
  int records_ = 0;
  int queries_ = 0;
  Event last_ = 0;
  std::map<Event, StreamHandle> outstanding_;
  std::set<StreamHandle> finished_;
  Waits waits_;
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

TEST_F(StreamFenceTest, ARecordedBlockIsReusedAtOnceBehindTheOtherStream) {
  void* block = Allocate();
  engine_.RecordStream(block, 11);
  EXPECT_EQ(engine_.Free(block), kBlock);
  EXPECT_EQ(fence_.records(), 1) << "at the free, so that nothing that stream 11 is given later is waited for";
  EXPECT_EQ(engine_.Stats().live_bytes, 0u);  // to the program it is freed
  EXPECT_EQ(engine_.Stats().pending_bytes, kBlock);
  EXPECT_TRUE(engine_.FindLive(block).freed_pending);
  EXPECT_EQ(Allocate(), block);
  EXPECT_EQ(fence_.TakeWaits(), (Waits{{0, 11}}));
  EXPECT_EQ(fence_.records(), 1);
  EXPECT_EQ(engine_.Stats().pending_blocks, 0u);
  EXPECT_EQ(engine_.CheckInvariants(), "");
}

TEST_F(StreamFenceTest, AllOfSeveralStreamsAreWaitedForOnce) {
  void* block = Allocate();
  for (const StreamHandle stream : {11, 12, 13, 12, 11}) engine_.RecordStream(block, stream);
  engine_.Free(block);
  EXPECT_EQ(fence_.outstanding(), 3u);  // one event a stream
  EXPECT_EQ(Allocate(), block);
  Waits waits = fence_.TakeWaits();
  std::sort(waits.begin(), waits.end());
  EXPECT_EQ(waits, (Waits{{0, 11}, {0, 12}, {0, 13}}));
  engine_.Free(block);
  EXPECT_EQ(Allocate(), block);
  EXPECT_TRUE(fence_.TakeWaits().empty());
}

TEST_F(StreamFenceTest, AMarkLetsGoOfWhatIsDone) {
  void* block = Allocate();
  engine_.RecordStream(block, 11);
  engine_.Free(block);
  engine_.OnMark(MarkOf(MarkKind::kOptimizer));
  EXPECT_EQ(engine_.Stats().pending_blocks, 1u);
  fence_.Finish(11);
  engine_.OnMark(MarkOf(MarkKind::kOptimizer));
  EXPECT_EQ(engine_.Stats().pending_blocks, 0u);
  EXPECT_EQ(engine_.FindLive(block).bytes, 0u);
  EXPECT_EQ(fence_.outstanding(), 0u);
  EXPECT_EQ(Allocate(), block);
  EXPECT_TRUE(fence_.TakeWaits().empty()) << "nobody waits for what is done";
}

TEST_F(StreamFenceTest, WhatIsDoneWithoutAMarkIsNotWaitedForEither) {
  void* block = Allocate();
  engine_.RecordStream(block, 11);
  engine_.Free(block);
  fence_.Finish(11);
  EXPECT_EQ(Allocate(), block);
  EXPECT_TRUE(fence_.TakeWaits().empty());
  EXPECT_EQ(fence_.queries(), 1);
}

TEST_F(StreamFenceTest, AStreamThatWorksOnIsAskedLessAndLess) {
  int round = 0;
  const auto go_round = [&](int times) {
    for (int i = 0; i < times; ++i, ++round) {
      if (round % 10 == 0) engine_.OnMark(MarkOf(MarkKind::kIteration));
      void* block = Allocate();
      ASSERT_NE(block, nullptr);
      engine_.RecordStream(block, 11);
      engine_.Free(block);
    }
  };
  go_round(200);
  EXPECT_EQ(fence_.TakeWaits().size(), 199u);
  const int of_marks = 2 * 200 / 10;
  EXPECT_LE(fence_.queries(), of_marks + 12);
  fence_.Finish(11);
  go_round(40);
  EXPECT_LE(fence_.TakeWaits().size(), 32u);
  go_round(40);
  EXPECT_TRUE(fence_.TakeWaits().empty()) << "it is asked each time again";
}

TEST_F(StreamFenceTest, ABlockFreedOnAnotherStreamIsKeptFromThirdOnesUntilThen) {
  void* block = Allocate();
  engine_.RecordStream(block, 11);
  engine_.Free(block, 12);
  fence_.Finish(11);
  engine_.ReclaimPending();  // 11 is done with it; of 12 nothing is known
  EXPECT_EQ(engine_.Allocate(kBlock, 13).pointer, block);
  Waits waits = fence_.TakeWaits();
  std::sort(waits.begin(), waits.end());
  EXPECT_EQ(waits, (Waits{{13, 0}, {13, 12}}));
}

TEST_F(StreamFenceTest, ABlockFreedOnAnotherStreamIsItsOwnStreamsAtOnce) {
  void* block = Allocate();
  engine_.Free(block, 12);
  EXPECT_EQ(Allocate(), block);
  engine_.Free(block, 0);
  EXPECT_EQ(Allocate(), block);
  EXPECT_EQ(fence_.records(), 0) << "as in a pool of its stream";
}

TEST_F(StreamFenceTest, WhatCannotBeOrderedNowIsAMissAndServedLater) {
  void* block = Allocate();
  engine_.RecordStream(block, 11);
  fence_.SetCapturing(true);
  engine_.Free(block);
  fence_.Finish(11);
  engine_.OnMark(MarkOf(MarkKind::kOptimizer));
  EXPECT_EQ(engine_.Allocate(kBlock, 0).reason, MissReason::kStream);
  EXPECT_EQ(engine_.Stats().live_blocks, 0u);
  EXPECT_EQ(engine_.CheckInvariants(), "");
  fence_.SetCapturing(false);
  EXPECT_EQ(Allocate(), block);
  EXPECT_EQ(fence_.TakeWaits(), (Waits{{0, 11}}));
}

// Stream 12 runs behind stream 11 by the time its request fails at stream 13. Whoever comes next must not forget that.
TEST_F(StreamFenceTest, ARequestThatFailedKeepsWhatItDidNotHaveToWaitFor) {
  void* block = engine_.Allocate(kBlock, 11).pointer;  // home
  engine_.Free(block);
  block = engine_.Allocate(kBlock, 12).pointer;
  EXPECT_EQ(fence_.TakeWaits(), (Waits{{12, 11}}));
  engine_.RecordStream(block, 13);
  engine_.Free(block);
  fence_.SetCapturing(true);
  EXPECT_EQ(engine_.Allocate(kBlock, 12).pointer, nullptr);
  fence_.SetCapturing(false);
  EXPECT_EQ(engine_.Allocate(kBlock, 11).pointer, block);
  Waits waits = fence_.TakeWaits();
  std::sort(waits.begin(), waits.end());
  EXPECT_EQ(waits, (Waits{{11, 12}, {11, 13}}));
}

TEST_F(StreamFenceTest, AFreedBlockCanNeitherBeFreedAgainNorRecorded) {
  void* block = Allocate();
  engine_.RecordStream(block, 11);
  engine_.Free(block);
  EXPECT_EQ(engine_.Free(block), 0u);
  EXPECT_EQ(engine_.Stats().unknown_frees, 1u);
  engine_.RecordStream(block, 12);
  EXPECT_EQ(Allocate(), block);
  EXPECT_EQ(fence_.TakeWaits(), (Waits{{0, 11}}));
}

// Requests of other streams than the plan's -----------------------------------------------------------------------

TEST_F(StreamFenceTest, AnotherStreamRunsBehindTheHomeAndBack) {
  void* block = Allocate();
  engine_.Free(block);
  EXPECT_EQ(engine_.Allocate(kBlock, 5).pointer, block);
  EXPECT_EQ(fence_.TakeWaits(), (Waits{{5, 0}}));
  engine_.Free(block);
  EXPECT_EQ(Allocate(), block);
  EXPECT_EQ(fence_.TakeWaits(), (Waits{{0, 5}}));
}

// What only keeps in mind who had the bytes last is idle memory; a recorded stream's use is not.
TEST_F(StreamFenceTest, ATraceDoesNotKeepMemoryFromBeingWithdrawn) {
  void* block = engine_.Allocate(kBlock, 0).pointer;
  engine_.Free(block);
  block = engine_.Allocate(kBlock, 5).pointer;
  EXPECT_FALSE(engine_.Withdraw(0, kBlock));
  engine_.Free(block);
  EXPECT_TRUE(engine_.LiveBlocks().empty());
  EXPECT_EQ(engine_.FindLive(block).bytes, 0u);
  ASSERT_TRUE(engine_.Withdraw(0, kBlock));
  engine_.Restore(0, kBlock);
  EXPECT_EQ(Allocate(), block);
  EXPECT_EQ(fence_.TakeWaits(), (Waits{{5, 0}, {0, 5}}));
  engine_.RecordStream(block, 11);
  engine_.Free(block);
  EXPECT_FALSE(engine_.Withdraw(0, kBlock));
}

TEST_F(StreamFenceTest, ALoopThatTakesAnotherStreamPaysOnceAnIteration) {
  for (StreamHandle stream = 10; stream < 14; ++stream) {
    engine_.OnMark(MarkOf(MarkKind::kIteration));
    for (int i = 0; i < 5; ++i) {
      void* block = engine_.Allocate(kBlock, stream).pointer;
      ASSERT_NE(block, nullptr);
      engine_.Free(block);
    }
    EXPECT_EQ(fence_.TakeWaits(), stream == 10 ? Waits{} : (Waits{{stream, stream - 1}}));
  }
}

// While stream 6 waits for its move, the home comes back and frees a block without a trace: the move must be off.
TEST_F(StreamFenceTest, AMoveIsOffIfTheHomeComesBackMeanwhile) {
  engine_.Free(Allocate());
  engine_.OnMark(MarkOf(MarkKind::kIteration));
  fence_.on_wait = [this] { EXPECT_EQ(engine_.Allocate(kBlock, 0).reason, MissReason::kOccupied); };
  void* block = engine_.Allocate(kBlock, 6).pointer;
  ASSERT_NE(block, nullptr);
  engine_.Free(block);
  EXPECT_EQ(fence_.TakeWaits(), (Waits{{6, 0}}));
  EXPECT_EQ(Allocate(), block);
  EXPECT_EQ(fence_.TakeWaits(), (Waits{{0, 6}}));
  engine_.Free(block);
  EXPECT_EQ(engine_.Allocate(kBlock, 6).pointer, block);
  EXPECT_EQ(fence_.TakeWaits(), (Waits{{6, 0}})) << "stream 0 used the bytes after stream 6 had waited";
}

TEST_F(StreamFenceTest, BothNamesOfTheLegacyStreamAreOneStream) {
  void* block = Allocate();
  engine_.RecordStream(block, kLegacyDefaultStreamToo);
  engine_.Free(block);
  EXPECT_EQ(engine_.Allocate(kBlock, kLegacyDefaultStreamToo).pointer, block);
  EXPECT_EQ(fence_.records(), 0);
}

TEST_F(StreamFenceTest, OfThePerThreadStreamNothingFollowsFromEqualHandles) {
  for (int i = 0; i < 3; ++i) {
    void* block = engine_.Allocate(kBlock, kPerThreadDefaultStream).pointer;
    ASSERT_NE(block, nullptr);
    engine_.Free(block);
    EXPECT_EQ(fence_.TakeWaits().size(), i == 0 ? 0u : 1u);
  }
}

TEST_F(StreamFenceTest, AfterDeactivationTheFenceIsLeftAlone) {
  void* block = Allocate();
  engine_.RecordStream(block, 11);
  engine_.Deactivate();
  EXPECT_EQ(engine_.Free(block), kBlock);
  engine_.OnMark(MarkOf(MarkKind::kOptimizer));
  EXPECT_EQ(fence_.records(), 0);
  EXPECT_TRUE(engine_.LiveBlocks().empty()) << "nothing is served from these bytes again";
  EXPECT_EQ(engine_.CheckInvariants(), "");
}

TEST(StreamFenceLessTest, WithoutAFenceARecordedBlockIsNeverReused) {
  PlanEngine engine(TurnsPlan(1, 10), kBase, nullptr);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  void* block = engine.Allocate(kBlock, 0).pointer;
  engine.RecordStream(block, 11);
  EXPECT_EQ(engine.Free(block), kBlock);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  EXPECT_EQ(engine.Allocate(kBlock, 0).reason, MissReason::kOccupied);
  EXPECT_EQ(engine.Stats().retained_blocks, 1u);
  EXPECT_EQ(engine.CheckInvariants(), "");
}

// Done out of order: each block comes back when, and only when, its own streams are done.
TEST(ManyPendingTest, BlocksComeBackOneByOneAsTheirStreamsFinish) {
  constexpr std::uint32_t kSlots = 40;
  const auto StreamOf = [](StreamHandle use, std::uint32_t i) { return 1000 * (use + 1) + i; };
  FakeFence fence;
  PlanEngine engine(TurnsPlan(kSlots, 1), kBase, &fence);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  std::vector<void*> blocks;
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    void* block = engine.Allocate(kBlock * (i + 1), 0).pointer;
    ASSERT_NE(block, nullptr);
    for (StreamHandle use = 0; use <= i % 3; ++use) engine.RecordStream(block, StreamOf(use, i));
    blocks.push_back(block);
  }
  for (void* block : blocks) engine.Free(block);
  for (std::uint32_t done = 0; done < kSlots; ++done) {
    const std::uint32_t i = done * 7 % kSlots;  // 7 and 40 have no common factor
    for (StreamHandle use = 0; use <= i % 3; ++use) fence.Finish(StreamOf(use, i));
    engine.OnMark(MarkOf(MarkKind::kMicrobatch));
    ASSERT_EQ(engine.Stats().pending_blocks, kSlots - done - 1);
    ASSERT_EQ(engine.FindLive(blocks[i]).bytes, 0u);
    ASSERT_EQ(engine.CheckInvariants(), "");
  }
  EXPECT_EQ(fence.outstanding(), 0u);
}

TEST(ManyPendingTest, ABlockOfManyStreamsComesBack) {
  FakeFence fence;
  PlanEngine engine(TurnsPlan(1, 4), kBase, &fence);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  void* block = engine.Allocate(kBlock, 0).pointer;
  for (StreamHandle stream = 3; stream <= 60; ++stream) engine.RecordStream(block, stream);
  engine.Free(block);
  for (StreamHandle stream = 3; stream <= 60; ++stream) fence.Finish(stream);
  engine.OnMark(MarkOf(MarkKind::kOptimizer));
  EXPECT_EQ(engine.Stats().pending_blocks, 0u);
  EXPECT_EQ(engine.Allocate(kBlock, 0).pointer, block);
}

TEST(ManyPendingTest, MoreStreamsThanARequestWaitsForAreAMissUntilTheyAreDone) {
  FakeFence fence;
  PlanEngine engine(TurnsPlan(1, 4), kBase, &fence);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  void* block = engine.Allocate(kBlock, 0).pointer;
  for (StreamHandle stream = 3; stream <= 3 + StreamNeeds::kMost; ++stream) engine.RecordStream(block, stream);
  engine.Free(block);
  EXPECT_EQ(engine.Allocate(kBlock, 0).reason, MissReason::kOccupied);
  for (StreamHandle stream = 3; stream <= 3 + StreamNeeds::kMost; ++stream) fence.Finish(stream);
  engine.OnMark(MarkOf(MarkKind::kOptimizer));
  EXPECT_EQ(engine.Allocate(kBlock, 0).pointer, block);
}

TEST(ManyStreamsTest, MoreThanCanBeToldApartAreNotServed) {
  FakeFence fence;
  PlanEngine engine(TurnsPlan(1, 1000), kBase, &fence);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  for (StreamHandle stream = 100; stream < 100 + StreamClocks::kMaxStreams; ++stream) {
    void* block = engine.Allocate(kBlock, stream).pointer;
    ASSERT_NE(block, nullptr);
    engine.Free(block);
  }
  EXPECT_EQ(engine.Allocate(kBlock, 99).reason, MissReason::kStream);
  void* block = engine.Allocate(kBlock, 100).pointer;
  engine.RecordStream(block, 99);
  engine.Free(block);
  EXPECT_EQ(engine.Allocate(kBlock, 100).reason, MissReason::kOccupied);
  EXPECT_EQ(engine.Stats().retained_blocks, 1u);
}

TEST(ManyPendingTest, MoreUsesThanCanBeNotedLoseMemoryButNeverData) {
  FakeFence fence;
  PlanEngine engine(TurnsPlan(1, 4), kBase, &fence);
  engine.OnMark(MarkOf(MarkKind::kIteration));
  void* block = engine.Allocate(kBlock, 0).pointer;
  for (StreamHandle stream = 3; stream < 3 + ForeignUses::kMaxStreams; ++stream) engine.RecordStream(block, stream);
  EXPECT_EQ(engine.Stats().retained_blocks, 0u);
  engine.RecordStream(block, 3);  // known already
  EXPECT_EQ(engine.Stats().retained_blocks, 0u);
  engine.RecordStream(block, 1'000'000);
  ASSERT_EQ(engine.Stats().retained_blocks, 1u);
  engine.Free(block);
  engine.OnMark(MarkOf(MarkKind::kOptimizer));
  EXPECT_EQ(engine.Allocate(kBlock, 0).reason, MissReason::kOccupied);
  EXPECT_EQ(engine.CheckInvariants(), "");
}

// Parts -------------------------------------------------------------------------------------------------------------

std::vector<StreamIndex> Streams(const ForeignUses& uses, ForeignUses::List list) {
  std::vector<StreamIndex> streams;
  uses.All(list, [&](StreamIndex stream) {
    streams.push_back(stream);
    return true;
  });
  return streams;
}

TEST(ForeignUsesTest, KeepsListsApartAndReusesCells) {
  ForeignUses uses(3);
  ForeignUses::List first = 0;
  ForeignUses::List second = 0;
  EXPECT_TRUE(uses.Add(first, 10));
  EXPECT_TRUE(uses.Add(first, 11));
  EXPECT_TRUE(uses.Add(first, 10));  // known already
  EXPECT_TRUE(uses.Add(second, 10));
  EXPECT_FALSE(uses.Add(second, 12));  // full
  EXPECT_EQ(Streams(uses, second), (std::vector<StreamIndex>{10}));
  uses.RemoveIf(first, [](StreamIndex stream) { return stream == 10; });
  EXPECT_EQ(Streams(uses, first), (std::vector<StreamIndex>{11}));
  EXPECT_TRUE(uses.Add(second, 12));
  uses.RemoveIf(first, [](StreamIndex) { return true; });
  EXPECT_EQ(first, 0u);
}

TEST(ForeignUsesTest, ACopyThatDoesNotFitLeavesNothingBehind) {
  ForeignUses uses(5);
  ForeignUses::List list = 0;
  for (const StreamIndex stream : {1, 2, 3}) ASSERT_TRUE(uses.Add(list, stream));
  ForeignUses::List copy = 0;
  EXPECT_FALSE(uses.Copy(list, copy));
  EXPECT_EQ(copy, 0u);
  uses.RemoveIf(list, [](StreamIndex stream) { return stream == 2; });
  EXPECT_TRUE(uses.Copy(list, copy));
  EXPECT_EQ(Streams(uses, copy).size(), 2u);
}

TEST(FenceEventsTest, FindsTheFirstThatIsLateEnough) {
  FenceEvents events;
  EXPECT_EQ(events.FirstFrom(0), nullptr);
  for (const std::uint64_t stamp : {3, 7, 5}) EXPECT_EQ(events.Add(stamp, 100 + stamp), 0u);
  EXPECT_EQ(events.FirstFrom(1)->event, 103u);
  EXPECT_EQ(events.FirstFrom(4)->event, 105u) << "added last, but drawn before 7";
  EXPECT_EQ(events.FirstFrom(7)->event, 107u);
  EXPECT_EQ(events.FirstFrom(8), nullptr);
}

TEST(FenceEventsTest, TheOldestGoesUnlessItIsPinned) {
  FenceEvents events;
  for (std::uint64_t stamp = 1; stamp <= FenceEvents::kMost; ++stamp) EXPECT_EQ(events.Add(stamp, stamp), 0u);
  EXPECT_EQ(events.Add(1000, 1000), 1u);
  ++events.At(0).pins;
  EXPECT_EQ(events.Add(1001, 1001), 1001u) << "the new one, since the oldest is in use";
  --events.Find(2).pins;
  EXPECT_EQ(events.Add(1002, 1002), 2u);
  EXPECT_EQ(events.FirstFrom(1)->event, 3u);
}

}  // namespace
}  // namespace stalloc
