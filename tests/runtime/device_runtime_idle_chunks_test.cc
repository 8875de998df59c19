// The arena's idle chunks: lent to a device that is full, given back by emptied caches and limits, mapped again.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <new>
#include <thread>
#include <vector>

#include "planner/trial/instant_fence.h"
#include "tests/runtime/alloc_fixture.h"
#include "tests/runtime/pattern.h"

namespace stalloc {
namespace {

TEST_F(AllocTest, UpstreamsErrorPassesWhenThereIsNothingToGiveBack) {
  Start(PlanBuilder().Each(100 * kKiB).Build());
  Iteration();
  void* const planned = Allocate(100 * kKiB);
  upstream_.FailNext(1);
  EXPECT_THROW(Allocate(5 * kKiB), std::bad_alloc);
  EXPECT_EQ(runtime_->Stats().live_bytes, 100 * kKiB);
  EXPECT_GT(runtime_->Stats().arena_bytes, 0u);  // one chunk, and a block lives in it
  EXPECT_EQ(runtime_->Stats().lent.times_given_back, 0u);
  runtime_->Free(planned);
}

// Upstream whose memory another thread's requests take: the first tries of this one find none.
class ContestedUpstream final : public Upstream {
 public:
  explicit ContestedUpstream(int failures) : failures_(failures) {}
  void* Allocate(Bytes requested, StreamHandle stream) override {
    if (on_failure != nullptr && failures_ > 0) on_failure();
    if (failures_-- > 0) throw std::bad_alloc();
    return upstream_.Allocate(requested, stream);
  }
  void Free(void* pointer) noexcept override { upstream_.Free(pointer); }
  void RecordStream(void* pointer, StreamHandle stream) override { upstream_.RecordStream(pointer, stream); }
  [[nodiscard]] Held HeldBytes() const override { return upstream_.HeldBytes(); }

  std::function<void()> on_failure;

 private:
  int failures_;
  FakeUpstream upstream_;
};

TEST_F(AllocTest, WhatWasGivenBackForARequestMayGoToAnotherOneFirst) {
  driver_ = HostDriver::Create({.granularity = kPage});
  const DevicePlan plan = PlanBuilder().Each(100 * kKiB).Each(100 * kKiB).Build();
  ContestedUpstream upstream(1);
  DeviceRuntime runtime({.device = kCpuDevice, .upstream = &upstream, .driver = driver_.get(), .plan = &plan});
  // Another thread gives back what is idle, before this one can: nothing is left to give, but there is memory now.
  upstream.on_failure = [&] { runtime.EmptyCache(); };
  void* block = runtime.Allocate(5 * kKiB, 0, Origin::kProgram);
  EXPECT_NE(block, nullptr);
  runtime.Free(block);
}

TEST_F(AllocTest, AnErrorThatIsNoLackOfMemoryCostsTheArenaNothing) {
  Start(PlanBuilder().Each(100 * kKiB).Build());
  upstream_.FailNext(1);
  upstream_.NextFailureIsOther();
  EXPECT_THROW(Allocate(5 * kKiB), std::runtime_error);
  EXPECT_GT(runtime_->Stats().arena_bytes, 0u);
}

TEST_F(AllocTest, NothingGoesBackWhileTheDeviceMayNotBeSynchronised) {
  Start(PlanBuilder().Each(100 * kKiB).Build());
  device_->SetCapturing(true);
  upstream_.FailNext(1);
  EXPECT_THROW(Allocate(5 * kKiB), std::bad_alloc);
  EXPECT_GT(runtime_->Stats().arena_bytes, 0u);
  device_->SetCapturing(false);
  upstream_.FailNext(1);
  EXPECT_THROW(runtime_->Allocate(5 * kKiB, 0, Origin::kCaptured), std::bad_alloc);
  EXPECT_GT(runtime_->Stats().arena_bytes, 0u);
}

TEST_F(AllocTest, IdleChunksOfAServedPlanGoBackBeforeUpstreamFailsAndAreMappedAgainWhenNeeded) {
  Start(PlanBuilder().Each(kGiB).Each(kGiB).Each(kGiB).Build(), /*capacity=*/4 * kGiB, /*granularity=*/2 * kMiB);
  Iteration();
  void* const first = Allocate(kGiB);
  FillPattern(first, kMiB, 3);
  upstream_.FailNext(1);
  void* const outside = Allocate(5 * kKiB);
  ASSERT_NE(outside, nullptr);
  RuntimeStats stats = runtime_->Stats();
  EXPECT_EQ(stats.arena_bytes, kGiB);  // the chunk with `first`, of three
  EXPECT_EQ(stats.lent.lent_bytes, 2 * kGiB);
  EXPECT_EQ(stats.lent.times_given_back, 1u);
  EXPECT_FALSE(stats.gave_up);

  void* const second = Allocate(kGiB);
  EXPECT_TRUE(runtime_->Owns(second));
  FillPattern(second, kMiB, 4);
  EXPECT_TRUE(HasPattern(first, kMiB, 3));
  stats = runtime_->Stats();
  EXPECT_EQ(stats.arena_bytes, 2 * kGiB);
  EXPECT_EQ(stats.lent.lent_bytes, kGiB);
  EXPECT_EQ(stats.lent.times_mapped_again, 1u);
  EXPECT_EQ(stats.planned_hits, 2u);
  void* const third = Allocate(kGiB);
  EXPECT_TRUE(runtime_->Owns(third));
  for (void* pointer : {first, second, third, outside}) runtime_->Free(pointer);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
}

TEST_F(AllocTest, AnEmptiedCacheHoldsOnlyTheChunksUnderLiveBlocks) {
  Start(PlanBuilder().Each(kGiB).Each(kGiB).Each(kGiB).Build(), /*capacity=*/4 * kGiB, /*granularity=*/2 * kMiB);
  Iteration();
  void* const first = Allocate(kGiB);
  FillPattern(first, kMiB, 3);
  device_->SetCapturing(true);  // a capture is open
  EXPECT_EQ(runtime_->EmptyCache(), 0u);
  device_->SetCapturing(false);
  EXPECT_EQ(runtime_->EmptyCache(), 2 * kGiB);
  EXPECT_EQ(runtime_->Stats().arena_bytes, kGiB);
  EXPECT_EQ(driver_->GetCounts().handle_bytes, kGiB);
  EXPECT_EQ(runtime_->EmptyCache(), 0u);
  void* const second = Allocate(kGiB);
  EXPECT_TRUE(runtime_->Owns(second));
  EXPECT_EQ(runtime_->Stats().arena_bytes, 2 * kGiB);
  EXPECT_TRUE(HasPattern(first, kMiB, 3));
  for (void* pointer : {first, second}) runtime_->Free(pointer);
}

// The memory that a graph's pool took of what had gone back is not the arena's to map again. The second slot grows, as
// nothing is known to be done yet; the third one gets a chunk that is.
TEST_F(AllocTest, WhatAPoolTookIsNotMappedAgainInsteadOfMovingAChunk) {
  keep_free_ = kGiB;  // all of it: the card is full
  InstantFence fence;
  PlanBuilder builder;
  for (int i = 0; i < 3; ++i) builder.Each(64 * kMiB);
  Start(builder.Build(), /*capacity=*/kGiB, /*granularity=*/2 * kMiB, &fence);
  Iteration();
  EXPECT_EQ(runtime_->EmptyCache(), 192 * kMiB);
  runtime_->UpstreamPoolOpens();
  void* const captured = runtime_->Allocate(128 * kMiB, 0, Origin::kCaptured);
  runtime_->UpstreamPoolCloses();
  for (int i = 0; i < 3; ++i) {
    void* const block = Allocate(64 * kMiB);
    EXPECT_TRUE(runtime_->Owns(block));
    EXPECT_EQ(runtime_->Stats().arena_bytes, i == 0 ? 64 * kMiB : 128 * kMiB);
    runtime_->Free(block);
    runtime_->OnMark({.kind = MarkKind::kOptimizer, .name = ""});
  }
  EXPECT_EQ(runtime_->Stats().planned_hits, 3u);
  EXPECT_EQ(runtime_->Stats().lent.times_moved, 1u);
  runtime_->Free(captured);
}

// Programs compare what is held before and after what they do, caches emptied in between.
TEST_F(AllocTest, OfChunksThatWentBackOnlyThoseThatAreNeededAreMappedAgain) {
  PlanBuilder builder;
  for (int i = 0; i < 64; ++i) builder.Each(2 * kMiB);
  Start(builder.Build(), /*capacity=*/4 * kGiB, /*granularity=*/2 * kMiB);
  Iteration();
  EXPECT_EQ(runtime_->EmptyCache(), 128 * kMiB);
  std::vector<void*> blocks;
  while (blocks.size() < 64) {
    blocks.push_back(Allocate(2 * kMiB));
    EXPECT_EQ(runtime_->Stats().arena_bytes, blocks.size() * 2 * kMiB);
  }
  EXPECT_EQ(runtime_->Stats().lent.times_mapped_again, 64u);
  EXPECT_EQ(runtime_->Stats().lent.lent_bytes, 0u);
  for (void* pointer : blocks) runtime_->Free(pointer);
}

TEST_F(AllocTest, ForASmallBlockNoMoreIsMappedThanAnEmptiedCacheGaveBack) {
  Start(PlanBuilder().Each(kGiB).Each(512).Each(512).Each(kGiB).Build(), /*capacity=*/4 * kGiB,
        /*granularity=*/2 * kMiB, nullptr, /*dynamic=*/true);
  Iteration();
  std::vector<void*> blocks = {Allocate(kGiB)};
  runtime_->EmptyCache();
  EXPECT_EQ(runtime_->Stats().arena_bytes, kGiB);
  blocks.push_back(Allocate(512));
  EXPECT_TRUE(runtime_->Owns(blocks.back()));
  EXPECT_EQ(runtime_->Stats().arena_bytes, kGiB + 2 * kMiB) << "a part of a chunk";
  blocks.push_back(Allocate(512));
  EXPECT_TRUE(runtime_->Owns(blocks.back()));
  EXPECT_EQ(runtime_->Stats().arena_bytes, kGiB + 2 * kMiB);
  blocks.push_back(Allocate(kGiB));
  EXPECT_TRUE(runtime_->Owns(blocks.back()));
  EXPECT_GE(runtime_->Stats().arena_bytes, 2 * kGiB);
  for (void* pointer : blocks) runtime_->Free(pointer);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
}

// The tightest room for the block without a slot lies between two blocks that stay. The first request after the cache
// was emptied brings memory back, with more room in one piece, but elsewhere.
TEST_F(AllocTest, ABlockWithoutASlotGoesWhereItWentBeforeTheCacheWasEmptied) {
  PlanBuilder builder;
  builder.Persistent(4 * kMiB).Each(2 * kMiB).EachUnplanned(16 * kMiB).Each(64 * kMiB);
  builder.Persistent(4 * kMiB).Each(16 * kMiB).Persistent(4 * kMiB);
  Start(builder.Build(), /*capacity=*/4 * kGiB, /*granularity=*/2 * kMiB, nullptr, /*dynamic=*/true);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(runtime_->Owns(Allocate(4 * kMiB)));
  const Bytes mapped = runtime_->Stats().arena_bytes;
  std::vector<void*> places;
  for (const bool emptied : {false, true}) {
    EXPECT_EQ(emptied ? runtime_->EmptyCache() : 0, emptied ? mapped - 12 * kMiB : 0);
    Iteration();
    void* const first = Allocate(2 * kMiB);
    places.push_back(Allocate(16 * kMiB));
    EXPECT_TRUE(runtime_->Owns(places.back()));
    runtime_->Free(first);
    runtime_->Free(places.back());
    Churn(1, 64 * kMiB);
    Churn(1, 16 * kMiB);
    EXPECT_EQ(runtime_->Stats().arena_bytes, mapped);
  }
  EXPECT_EQ(places[0], places[1]);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
}

// A framework that empties the cache before it validates, and validates before it trains: what that leaves behind has
// its place, mapped or not, and is not where the training's requests go.
TEST_F(AllocTest, WhatAnEvaluationKeepsHasItsPlaceAfterTheCacheWasEmptied) {
  Start(PlanBuilder().Each(16 * kMiB).Kept(4 * kMiB).Each(16 * kMiB).Build(), /*capacity=*/4 * kGiB,
        /*granularity=*/2 * kMiB, nullptr, /*dynamic=*/true);
  EXPECT_EQ(runtime_->EmptyCache(), 36 * kMiB);
  runtime_->OnMark({.kind = MarkKind::kFence, .edge = MarkEdge::kBegin, .name = "eval"});
  void* const kept = Allocate(4 * kMiB);
  runtime_->OnMark({.kind = MarkKind::kFence, .edge = MarkEdge::kEnd, .name = "eval"});
  EXPECT_EQ(runtime_->Stats().arena_bytes, 4 * kMiB) << "no more than it needs";
  EXPECT_EQ(reinterpret_cast<Address>(kept) - runtime_->arena()->base(), 16 * kMiB);
  Iteration();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(runtime_->Owns(Allocate(16 * kMiB)));
  EXPECT_EQ(runtime_->Stats().engine.planned_hits, 2u);
  EXPECT_EQ(runtime_->Stats().arena_bytes, 36 * kMiB);
}

TEST_F(AllocTest, AnEmptiedCacheIsReasonToTryAgainWhatCouldNotBeMapped) {
  Start(PlanBuilder().Each(kGiB).Each(kGiB).Build(), /*capacity=*/2 * kGiB, /*granularity=*/2 * kMiB);
  Iteration();
  runtime_->EmptyCache();
  PhysicalHandle other = 0;  // somebody else takes the device's memory
  ASSERT_TRUE(driver_->Create(3 * kGiB / 2, &other).ok());
  void* const outside = Allocate(kGiB);
  EXPECT_FALSE(runtime_->Owns(outside));
  ASSERT_TRUE(driver_->Release(other).ok());
  runtime_->EmptyCache();
  void* const planned = Allocate(kGiB);
  EXPECT_TRUE(runtime_->Owns(planned));
  for (void* pointer : {outside, planned}) runtime_->Free(pointer);
}

TEST_F(AllocTest, ALimitHoldsForWhatThePlanMapsAgain) {
  Start(PlanBuilder().Each(kGiB).Each(kGiB).Each(kGiB).Build(), /*capacity=*/4 * kGiB, /*granularity=*/2 * kMiB);
  Iteration();
  void* const first = Allocate(kGiB);
  void* const outside = runtime_->Allocate(kMiB, 0, Origin::kCaptured);
  runtime_->SetHeldLimit(4 * kGiB);
  EXPECT_EQ(runtime_->Stats().arena_bytes, 3 * kGiB) << "all within the limit: nothing goes back";
  runtime_->SetHeldLimit(2 * kGiB + kMiB);
  EXPECT_EQ(runtime_->Stats().arena_bytes, kGiB) << "what lies idle goes back at once";
  void* const second = Allocate(kGiB);
  EXPECT_TRUE(runtime_->Owns(second));
  void* const third = Allocate(kGiB);
  EXPECT_FALSE(runtime_->Owns(third)) << "upstream has a limit of its own";
  EXPECT_EQ(Misses(runtime_->Stats(), MissReason::kUnbacked), 1u);
  EXPECT_LE(runtime_->Stats().arena_bytes + kMiB, 2 * kGiB + kMiB);
  for (void* pointer : {first, second, third}) runtime_->Free(pointer);
  runtime_->SetHeldLimit(0);
  Iteration();
  void* again[3];
  for (void*& pointer : again) pointer = Allocate(kGiB);
  for (void* pointer : again) EXPECT_TRUE(runtime_->Owns(pointer));
  for (void* pointer : again) runtime_->Free(pointer);
  runtime_->Free(outside);
}

TEST_F(AllocTest, WhatCannotBeMappedAgainIsAMissUntilThereIsRoom) {
  Start(PlanBuilder().Each(kGiB).Each(kGiB).Each(kMiB).Build(), /*capacity=*/3 * kGiB, /*granularity=*/2 * kMiB);
  Iteration();
  upstream_.FailNext(1);
  runtime_->Free(Allocate(5 * kKiB));
  ASSERT_EQ(runtime_->Stats().arena_bytes, 0u);
  PhysicalHandle other = 0;  // somebody else takes the device's memory
  ASSERT_TRUE(driver_->Create(5 * kGiB / 2, &other).ok());
  void* const first = Allocate(kGiB);
  void* const second = Allocate(kGiB);
  EXPECT_FALSE(runtime_->Owns(second));
  runtime_->Free(second);
  EXPECT_FALSE(runtime_->Owns(first));
  runtime_->Free(first);
  RuntimeStats stats = runtime_->Stats();
  EXPECT_EQ(Misses(stats, MissReason::kUnbacked), 2u);
  EXPECT_EQ(stats.lent.times_not_mapped, 1u);  // a full device is not asked for as much again in the same iteration
  void* const small = Allocate(kMiB);
  EXPECT_TRUE(runtime_->Owns(small));
  runtime_->Free(small);
  ASSERT_TRUE(driver_->Release(other).ok());
  Iteration();
  void* const again = Allocate(kGiB);
  EXPECT_TRUE(runtime_->Owns(again));
  EXPECT_GT(runtime_->Stats().lent.times_mapped_again, 0u);
  runtime_->Free(again);
}

// The wait was for the whole device.
TEST_F(AllocTest, ABlockThatWasRecordedGivesItsChunkBackBehindAWait) {
  NeverFence fence;
  Start(PlanBuilder().Each(kGiB).Each(3 * kGiB).Build(), /*capacity=*/5 * kGiB, /*granularity=*/2 * kMiB, &fence);
  Iteration();
  void* const shared = Allocate(kGiB);
  runtime_->RecordStream(shared, 7);
  runtime_->Free(shared);
  upstream_.FailNext(1);
  runtime_->Free(Allocate(5 * kKiB));
  EXPECT_EQ(runtime_->Stats().arena_bytes, 0u);
}

// What a listener was told, and what the arena held then.
class ToldChanges final : public ArenaListener {
 public:
  explicit ToldChanges(const Arena& arena) : arena_(arena) {}
  void BeforeArenaChange() noexcept override { before.push_back(arena_.mapped_bytes()); }
  void AfterArenaChange() noexcept override { after.push_back(arena_.mapped_bytes()); }
  std::vector<Bytes> before;
  std::vector<Bytes> after;

 private:
  const Arena& arena_;
};

TEST_F(AllocTest, AListenerIsToldAroundEveryChangeOfTheArena) {
  Start(PlanBuilder().Each(kGiB).Build(), /*capacity=*/2 * kGiB, /*granularity=*/2 * kMiB);
  ToldChanges told(*runtime_->arena());
  runtime_->SetArenaListener(&told);
  Iteration();
  upstream_.FailNext(1);
  runtime_->Free(Allocate(5 * kKiB));
  runtime_->Free(Allocate(kGiB));
  EXPECT_EQ(told.before, (std::vector<Bytes>{kGiB, 0}));
  EXPECT_EQ(told.after, (std::vector<Bytes>{0, kGiB}));
}

TEST_F(AllocTest, ThreadsThatRunOutOfMemoryNeverUnmapEachOthersBlocks) {
  PlanBuilder plan;
  constexpr int kBlocks = 6;
  constexpr Bytes kLeast = 32 * kMiB;  // few chunks: the thread sanitizer pays for every mapping
  for (int i = 0; i < kBlocks; ++i) plan.Each(kLeast + static_cast<Bytes>(i) * kMiB);
  Start(plan.Build(), /*capacity=*/kBlocks * (kLeast + 16 * kMiB), /*granularity=*/2 * kMiB);
  Iteration();
  std::atomic<bool> done{false};
  std::thread starving([&] {
    while (!done.load()) {
      upstream_.FailNext(1);
      try {
        runtime_->Free(Allocate(512));  // too small to count against the plan
      } catch (const std::bad_alloc&) {
      }
    }
  });
  int broken = 0;
  int served = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<void*> blocks;
    for (int i = 0; i < kBlocks; ++i) {
      try {
        blocks.push_back(Allocate(kLeast + static_cast<Bytes>(i) * kMiB));
      } catch (const std::bad_alloc&) {  // turned away by the arena, it met the failure that was meant for the other
        blocks.push_back(nullptr);
        continue;
      }
      FillPattern(blocks.back(), 64 * kKiB, static_cast<std::uint8_t>(i + 1));
      served += runtime_->Owns(blocks.back()) ? 1 : 0;
    }
    for (int i = 0; i < kBlocks; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (blocks[at] == nullptr) continue;
      broken += HasPattern(blocks[at], 64 * kKiB, static_cast<std::uint8_t>(i + 1)) ? 0 : 1;
      runtime_->Free(blocks[at]);
    }
    Iteration();
  }
  done.store(true);
  starving.join();
  EXPECT_EQ(broken, 0);
  EXPECT_GT(served, kBlocks);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
}

TEST_F(AllocTest, AnIdleArenaOfAGivenUpPlanGoesBackBeforeUpstreamFails) {
  PlanBuilder plan;
  plan.Persistent(10 * kKiB);
  for (int i = 0; i < 20; ++i) plan.Each(100 * kKiB);
  Start(plan.Build());
  void* const weights = Allocate(10 * kKiB);
  Iteration();
  Churn(20, 33 * kKiB);
  Iteration();
  runtime_->Free(weights);  // idle from here on, but no mark has come by
  ASSERT_GT(runtime_->Stats().arena_bytes, 0u);
  upstream_.FailNext(1);
  void* const pointer = Allocate(5 * kKiB);
  EXPECT_NE(pointer, nullptr);
  EXPECT_EQ(runtime_->Stats().arena_bytes, 0u);
  runtime_->Free(pointer);
}

}  // namespace
}  // namespace stalloc
