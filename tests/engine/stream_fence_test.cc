// Bytes that another stream used: who waits for what, call by call. tests/engine/stream_order_test.cc proves the order.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "allocator/engine/plan_engine.h"
#include "tests/engine/fake_fence.h"

namespace stalloc {
namespace stream_fence_test {

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

TEST_F(StreamFenceTest, ABlockFreedOnAnotherStreamIsKeptFromThirdOnesUntilThen) {
  void* block = Allocate();
  engine_.RecordStream(block, 11);
  engine_.Free(block, 12);
  fence_.Finish(11);
  engine_.OnMark(MarkOf(MarkKind::kMicrobatch));  // 11 is done with it; of 12 nothing is known
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

// What only keeps in mind who had the bytes last, or still uses them, is idle memory: whoever withdraws it waits for
// the whole device before it goes.
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
  EXPECT_TRUE(engine_.Withdraw(0, kBlock));
}

// Whoever withdraws it waits for this device alone.
TEST_F(StreamFenceTest, WhatAnotherDeviceMayStillUseIsNotWithdrawn) {
  const StreamHandle other = StreamOfDevice(1, 11);
  void* block = Allocate();
  engine_.RecordStream(block, other);
  engine_.Free(block);
  EXPECT_FALSE(engine_.Withdraw(0, kBlock));
  engine_.AwaitOtherDevices();
  EXPECT_FALSE(engine_.Withdraw(0, kBlock)) << "it cannot be waited for";
  fence_.Finish(other);
  EXPECT_FALSE(engine_.Withdraw(0, kBlock)) << "nobody has asked";
  engine_.AwaitOtherDevices();
  EXPECT_EQ(engine_.Stats().pending_blocks, 0u);
  EXPECT_TRUE(engine_.Withdraw(0, kBlock));
  EXPECT_EQ(engine_.CheckInvariants(), "");
}

TEST_F(StreamFenceTest, AMarkFindsOutThatAnotherDeviceIsDone) {
  const StreamHandle other = StreamOfDevice(1, 0);  // its default stream, which this device has as well
  void* block = Allocate();
  engine_.RecordStream(block, other);
  fence_.SetCapturing(true);
  engine_.Free(block);
  fence_.SetCapturing(false);
  fence_.Finish(other);
  EXPECT_FALSE(engine_.Withdraw(0, kBlock)) << "there is no event";
  engine_.OnMark(MarkOf(MarkKind::kOptimizer));
  EXPECT_TRUE(engine_.Withdraw(0, kBlock));
}

// To wait for the taker's stream is to wait for the other device.
TEST_F(StreamFenceTest, BytesThatWereTakenBehindAnotherDeviceCanBeWithdrawn) {
  const StreamHandle other = StreamOfDevice(1, 11);
  void* block = Allocate();
  engine_.RecordStream(block, other);
  engine_.Free(block);
  ASSERT_EQ(Allocate(), block);
  EXPECT_EQ(fence_.TakeWaits(), (Waits{{0, other}}));
  EXPECT_FALSE(engine_.Withdraw(0, kBlock));
  engine_.Free(block);
  EXPECT_TRUE(engine_.Withdraw(0, kBlock));
}

TEST_F(StreamFenceTest, AfterDeactivationOtherDevicesAreStillRemembered) {
  const StreamHandle other = StreamOfDevice(1, 11);
  void* block = Allocate();
  engine_.RecordStream(block, other);
  engine_.Deactivate();
  EXPECT_EQ(engine_.Free(block), kBlock);
  engine_.OnMark(MarkOf(MarkKind::kOptimizer));
  EXPECT_EQ(fence_.records(), 0);
  EXPECT_FALSE(engine_.Withdraw(0, kBlock));
  EXPECT_EQ(engine_.CheckInvariants(), "");
  fence_.Finish(other);
  engine_.AwaitOtherDevices();
  EXPECT_TRUE(engine_.LiveBlocks().empty());
  EXPECT_TRUE(engine_.Withdraw(0, kBlock));
  EXPECT_EQ(engine_.CheckInvariants(), "");
}

TEST(StreamsOfOtherDevicesTest, WithoutAFenceTheirBlocksAreNeverWithdrawn) {
  for (const bool stops : {false, true}) {
    PlanEngine engine(TurnsPlan(1, 10), kBase, nullptr);
    engine.OnMark(MarkOf(MarkKind::kIteration));
    void* block = engine.Allocate(kBlock, 0).pointer;
    engine.RecordStream(block, StreamOfDevice(1, 11));
    if (stops) engine.Deactivate();
    engine.Free(block);
    engine.AwaitOtherDevices();
    EXPECT_FALSE(engine.Withdraw(0, kBlock)) << stops;
    EXPECT_EQ(engine.CheckInvariants(), "");
  }
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

}  // namespace stream_fence_test
}  // namespace stalloc
