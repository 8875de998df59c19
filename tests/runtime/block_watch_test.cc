// Watched blocks: over real bytes of the host, and over a device of streams whose answers come when the test says so.
#include "allocator/runtime/block_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "allocator/driver/host_watch_memory.h"
#include "tests/runtime/alloc_fixture.h"

namespace stalloc {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// The host's own allocator, some of it: blocks of whole multiples of 512 bytes.
class PaddingUpstream final : public Upstream {
 public:
  void* Allocate(Bytes requested, StreamHandle stream) override { return upstream_.Allocate(requested, stream); }
  void Free(void* pointer) noexcept override { upstream_.Free(pointer); }
  void RecordStream(void*, StreamHandle) override {}
  [[nodiscard]] bool PadsBlocks() const noexcept override { return pads; }
  [[nodiscard]] Held HeldBytes() const override { return upstream_.HeldBytes(); }
  bool pads = true;

 private:
  FakeUpstream upstream_;
};

class WatchTest : public testing::Test {
 protected:
  void Start(const DevicePlan* plan, WatchMemory* memory) {
    runtime_ = nullptr;  // before its driver
    driver_ = HostDriver::Create({.capacity = 0, .granularity = kPage});
    runtime_ = std::make_unique<DeviceRuntime>(DeviceRuntime::Parts{.device = kCpuDevice,
                                                                    .upstream = &upstream_,
                                                                    .driver = driver_.get(),
                                                                    .plan = plan,
                                                                    .dynamic = true,
                                                                    .watch = memory});
  }
  unsigned char* New(Bytes bytes, StreamHandle stream = 0) {
    return static_cast<unsigned char*>(runtime_->Allocate(bytes, stream, Origin::kProgram));
  }
  void Iteration(int index) { runtime_->OnMark(IterationMark(index)); }
  [[nodiscard]] WatchCounts Counts() const { return runtime_->Stats().watch; }

  LogCapture log_;
  PaddingUpstream upstream_;
  HostWatchMemory host_;
  std::unique_ptr<HostDriver> driver_;
  std::unique_ptr<DeviceRuntime> runtime_;
};

TEST_F(WatchTest, AWriteBehindTheEndIsFoundAtTheFree) {
  const DevicePlan plan = PlanBuilder().Each(2 * kMiB + 100).Build();
  Start(&plan, &host_);
  Iteration(3);
  unsigned char* const block = New(2 * kMiB + 100);
  std::memset(block, 1, 2 * kMiB + 100);
  block[2 * kMiB + 105] = 0x41;
  runtime_->Free(block);
  EXPECT_EQ(Counts().findings, 1u);
  EXPECT_EQ(Counts().tails, 1u);
  EXPECT_THAT(log_.text(), HasSubstr("a write beyond the end of the block of 2097252 bytes"));
  EXPECT_THAT(log_.text(), HasSubstr("allocated in iteration 3"));
  EXPECT_THAT(log_.text(), HasSubstr("its byte 2097257 has 0x41, expected 0xff"));
}

TEST_F(WatchTest, AWriteIntoAFreedBlockIsFoundWhereItsBytesAreGivenOut) {
  const DevicePlan plan = PlanBuilder().Each(2 * kMiB).Build();
  Start(&plan, &host_);
  Iteration(0);
  unsigned char* const block = New(2 * kMiB);
  ASSERT_TRUE(runtime_->Owns(block));
  std::memset(block, 7, 2 * kMiB);
  runtime_->Free(block);
  EXPECT_EQ(block[0], 0xff);  // what a reader behind the free sees
  EXPECT_EQ(block[2 * kMiB - 1], 0xff);
  block[kMiB + 3] = 0x42;
  Iteration(1);
  ASSERT_EQ(New(2 * kMiB), block);
  EXPECT_EQ(Counts().findings, 1u);
  EXPECT_EQ(Counts().freed, 1u);
  EXPECT_THAT(log_.text(), HasSubstr("a write into freed memory"));
  EXPECT_THAT(log_.text(), HasSubstr("byte 1048579 of the block of 2097152 bytes"));
  EXPECT_THAT(log_.text(), HasSubstr("freed in iteration 0, has 0x42, expected 0xff"));
  EXPECT_THAT(log_.text(), HasSubstr("(stream 0, iteration 1)"));
}

// The bytes behind a block without a tail are a neighbour's, which is free here.
TEST_F(WatchTest, ABlockWithoutATailThatRunsOverIsFoundInItsNeighbour) {
  const DevicePlan plan = PlanBuilder().Each(2 * kMiB).Each(2 * kMiB).Build();
  Start(&plan, &host_);
  Iteration(0);
  unsigned char* const first = New(2 * kMiB);
  unsigned char* const second = New(2 * kMiB);
  ASSERT_EQ(second, first + 2 * kMiB);
  runtime_->Free(second);
  first[2 * kMiB] = 0;
  runtime_->Free(first);
  Iteration(1);
  EXPECT_EQ(New(2 * kMiB), first);
  EXPECT_EQ(Counts().findings, 0u);
  EXPECT_EQ(New(2 * kMiB), second);
  EXPECT_EQ(Counts().findings, 1u);
}

TEST_F(WatchTest, ACleanRunHasNoFindingsAndThePlanIsServedAsWithoutAWatch) {
  const DevicePlan plan = PlanBuilder().Persistent(kMiB + 8).Each(2 * kMiB).Each(3 * kMiB + 511).Build();
  const auto run = [&](WatchMemory* memory) {
    Start(&plan, memory);
    unsigned char* const kept = New(kMiB + 8);
    std::memset(kept, 5, kMiB + 8);
    for (int i = 0; i < 6; ++i) {
      Iteration(i);
      for (const Bytes bytes : {2 * kMiB, 3 * kMiB + 511, 5 * kMiB + 1}) {  // the third is nobody's slot
        unsigned char* const block = New(bytes);
        std::memset(block, i, bytes);
        runtime_->Free(block);
      }
    }
    EXPECT_EQ(kept[kMiB + 7], 5);
    return runtime_->Stats();
  };
  const RuntimeStats without = run(nullptr);
  const RuntimeStats with = run(&host_);
  EXPECT_FALSE(without.watch.on);
  EXPECT_EQ(with.planned_hits, without.planned_hits);
  EXPECT_EQ(with.dynamic_hits, without.dynamic_hits);
  EXPECT_EQ(with.arena_bytes, without.arena_bytes);
  EXPECT_EQ(with.watch.findings, 0u);
  EXPECT_GE(with.watch.tails, 12u);
  EXPECT_GE(with.watch.freed, 10u);
  EXPECT_EQ(with.watch.unchecked, 0u);
  EXPECT_EQ(with.watch.open, 0u);
}

TEST_F(WatchTest, TheAllocatorBelowIsFilledOnlyWhereItsBlocksEndAtMultiples) {
  Start(nullptr, &host_);
  unsigned char* const padded = New(1000);
  EXPECT_EQ(padded[1000], 0xff);
  padded[1023] = 0;
  runtime_->Free(padded);
  EXPECT_EQ(Counts().findings, 1u);
  upstream_.pads = false;
  unsigned char* const exact = New(2000);
  exact[2000] = 0x33;
  runtime_->Free(exact);
  EXPECT_EQ(Counts().tails, 1u);
}

TEST_F(WatchTest, CapturedRequestsAreLeftAlone) {
  Start(nullptr, &host_);
  auto* const block = static_cast<unsigned char*>(runtime_->Allocate(1000, 0, Origin::kCaptured));
  block[1001] = 0x11;
  runtime_->Free(block);
  EXPECT_EQ(Counts().tails + Counts().findings + Counts().unchecked, 0u);
}

TEST_F(WatchTest, ManyFindingsAreCountedAndSaidLessAndLessOften) {
  Start(nullptr, &host_);
  for (int i = 0; i < 1000; ++i) {
    unsigned char* const block = New(1000);
    block[1000] = 0;
    runtime_->Free(block);
  }
  EXPECT_EQ(Counts().findings, 1000u);
  EXPECT_LT(log_.lines(), 30u);
  EXPECT_THAT(log_.text(), HasSubstr("(time 512)"));
}

// Chunks that go back to the device and come again have other bytes.
TEST_F(WatchTest, WhatGoesBackToTheDeviceIsForgotten) {
  const DevicePlan plan = PlanBuilder().Each(2 * kMiB).Build();
  Start(&plan, &host_);
  Iteration(0);
  runtime_->Free(New(2 * kMiB));
  ASSERT_GT(runtime_->EmptyCache(), 0u);
  Iteration(1);
  ASSERT_TRUE(runtime_->Owns(New(2 * kMiB)));
  EXPECT_EQ(Counts().findings, 0u);
  EXPECT_EQ(Counts().freed, 0u);
}

// Streams -------------------------------------------------------------------------------------------------------------

// A device of streams: keeps what is asked of it, and answers when it may.
class StreamMemory final : public WatchMemory {
 public:
  [[nodiscard]] bool HasStreams() const noexcept override { return true; }
  bool Fill(Address begin, Bytes bytes, StreamHandle stream) noexcept override {
    if (stream == captured) return false;
    fills.emplace_back(begin, bytes, stream);
    return true;
  }
  bool Query(std::uint32_t ticket, Address begin, Bytes bytes, StreamHandle stream) noexcept override {
    if (stream == captured) return false;
    EXPECT_TRUE(open.insert(ticket).second) << "a ticket that waits for its answer is used again";
    asks.emplace_back(begin, bytes, stream);
    return true;
  }
  bool Answered(std::uint32_t ticket, Answer* answer) noexcept override {
    if (!answers) return false;
    EXPECT_EQ(open.erase(ticket), 1u);
    *answer = next;
    return true;
  }

  using Call = std::tuple<Address, Bytes, StreamHandle>;
  StreamHandle captured = 99;
  bool answers = true;
  Answer next;
  std::vector<Call> fills;
  std::vector<Call> asks;
  std::set<std::uint32_t> open;
};

constexpr Address kArena = 1 << 20;
const void* At(Address address) { return reinterpret_cast<const void*>(address); }

class StreamWatchTest : public testing::Test {
 protected:
  void SetUp() override { watch_.SetArena(kArena, kMiB); }
  void Give(Bytes requested, StreamHandle stream) {
    watch_.Allocated(At(kArena), requested, stream, BlockWatch::Place::kArena);
  }
  LogCapture log_;
  StreamMemory memory_;
  BlockWatch watch_{0, &memory_};
};

TEST_F(StreamWatchTest, BlocksAreFilledOnTheirOwnStreamAndLookedAtOnThatOfTheNextOwner) {
  Give(1024, 5);
  watch_.Freeing(At(kArena), 5);
  EXPECT_THAT(memory_.fills, ElementsAre(StreamMemory::Call{kArena, 1024, 5}));
  Give(512, 6);
  EXPECT_THAT(memory_.asks, ElementsAre(StreamMemory::Call{kArena, 512, 6}));
  watch_.Allocated(At(kArena + 512), 2048, 7, BlockWatch::Place::kArena);
  EXPECT_THAT(memory_.asks, ElementsAre(StreamMemory::Call{kArena, 512, 6}, StreamMemory::Call{kArena + 512, 512, 7}));
}

TEST_F(StreamWatchTest, WhatAnotherStreamMayStillReadIsNotFilled) {
  Give(1024, 5);
  watch_.StreamRecorded(At(kArena));
  watch_.Freeing(At(kArena), 5);
  Give(1024, 5);
  watch_.Freeing(At(kArena), 6);  // by a thread that runs on another stream
  Give(1024, 5);
  watch_.Freeing(At(kArena), std::nullopt);
  EXPECT_THAT(memory_.fills, IsEmpty());
  EXPECT_EQ(watch_.Counts().unchecked, 3u);
  Give(1024, 5);
  EXPECT_THAT(memory_.asks, IsEmpty());
}

TEST_F(StreamWatchTest, StreamsThatAreCapturedAreLeftAlone) {
  Give(1000, 99);
  watch_.Freeing(At(kArena), 99);
  EXPECT_THAT(memory_.fills, IsEmpty());
  EXPECT_THAT(memory_.asks, IsEmpty());
  EXPECT_EQ(watch_.Counts().unchecked, 2u);  // its tail, and all of it behind the free
  EXPECT_EQ(watch_.Counts().findings, 0u);
}

TEST_F(StreamWatchTest, AnswersAreTakenWhereTheyAreThere) {
  memory_.answers = false;
  memory_.next = {true, 3, 0x17};
  Give(1000, 5);
  watch_.Freeing(At(kArena), 5);
  EXPECT_EQ(watch_.Counts().open, 1u);
  EXPECT_EQ(watch_.Counts().findings, 0u);
  memory_.answers = true;
  watch_.OnMark(IterationMark(0));
  EXPECT_EQ(watch_.Counts().open, 0u);
  EXPECT_EQ(watch_.Counts().findings, 1u);
  EXPECT_THAT(log_.text(), HasSubstr("allocated in the set-up"));
  EXPECT_THAT(log_.text(), HasSubstr("its byte 1003 has 0x17"));
}

TEST_F(StreamWatchTest, NoMoreIsAskedThanAnswersAreAwaited) {
  memory_.answers = false;
  for (std::uint32_t i = 0; i < WatchMemory::kMostTickets + 10; ++i) {
    watch_.Allocated(At(kArena), 1000, 5, BlockWatch::Place::kPadded);
    watch_.Freeing(At(kArena), 5);
  }
  EXPECT_EQ(watch_.Counts().open, WatchMemory::kMostTickets);
  EXPECT_EQ(watch_.Counts().unchecked, 10u);
  memory_.answers = true;
  for (std::uint32_t i = 0; i < WatchMemory::kMostTickets; ++i) {
    watch_.Allocated(At(kArena), 1000, 5, BlockWatch::Place::kPadded);
    watch_.Freeing(At(kArena), 5);
  }
  EXPECT_EQ(watch_.Counts().unchecked, 10u);
  EXPECT_THAT(log_.text(), Not(HasSubstr("watch")));
}

TEST_F(StreamWatchTest, BytesThatLoseTheirMemoryAreForgottenAndNoOthers) {
  Give(8192, 5);
  watch_.Freeing(At(kArena), 5);
  watch_.BeforeUnmap(kArena + 2048, 4096);
  watch_.BeforeUnmap(kArena + 64 * kMiB, 4096);  // not the arena's
  Give(8192, 5);
  EXPECT_THAT(memory_.asks,
              ElementsAre(StreamMemory::Call{kArena, 2048, 5}, StreamMemory::Call{kArena + 6144, 2048, 5}));
}

TEST_F(StreamWatchTest, RunsOfFilledBytesAreFoundAcrossWords) {
  // Of 200 granules all are filled but the 70th; the request has all of them.
  for (const auto& [first, count] : {std::pair(0, 70), std::pair(71, 129)}) {
    const void* const block = At(kArena + static_cast<Bytes>(first) * 512);
    watch_.Allocated(block, static_cast<Bytes>(count) * 512, 5, BlockWatch::Place::kArena);
    watch_.Freeing(block, 5);
  }
  memory_.asks.clear();
  Give(Bytes{200} * 512, 5);
  EXPECT_THAT(memory_.asks, ElementsAre(StreamMemory::Call{kArena, 70 * 512, 5},
                                        StreamMemory::Call{kArena + 71 * 512, 129 * 512, 5}));
  memory_.asks.clear();
  Give(Bytes{200} * 512, 5);
  EXPECT_THAT(memory_.asks, IsEmpty());
}

}  // namespace
}  // namespace stalloc
