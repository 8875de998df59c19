// The engine on plans of a few entries. tests/engine/engine_stress_test.cc does the same to real bytes, by the
// thousand.
#include "allocator/engine/plan_engine.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/engine/corpus.h"
#include "tests/engine/first_fit_plan.h"

namespace stalloc {
namespace plan_engine_test {

// An address range that nobody touches.
std::byte* const kBase = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);

Mark Iteration(int index = 0) { return {MarkKind::kIteration, MarkEdge::kBegin, Pass::kNone, 0, index, "", false}; }
Mark FenceOf(MarkEdge edge) { return {MarkKind::kFence, edge, Pass::kNone, 0, 0, "eval", false}; }

struct Expected {
  Bytes bytes;
  Offset offset;  // kUnplannedOffset: no slot
};
constexpr Offset kUnplannedOffset = ~Offset{0};

DevicePlan PlanOf(const std::vector<Expected>& requests) {
  DevicePlan plan;
  plan.cycle.emplace_back();
  for (const Expected& request : requests) {
    Entry entry;
    entry.bytes = entry.min_bytes = entry.max_bytes = BlockBytes(request.bytes);
    if (request.offset != kUnplannedOffset) {
      entry.slot = static_cast<std::uint32_t>(plan.slots.size());
      plan.slots.push_back({request.offset, entry.bytes});
      plan.arena_bytes = std::max(plan.arena_bytes, request.offset + entry.bytes);
    }
    plan.cycle[0].entries.push_back(entry);
  }
  return plan;
}

std::uint64_t Misses(const PlanEngine& engine, MissReason reason) {
  return engine.Stats().misses[static_cast<std::size_t>(reason)];
}

// Memory goes by how many streams there are.
TEST(PlanEngineTest, AStreamMayHaveAnyOrdinal) {
  DevicePlan plan = PlanOf({{kMiB, 0}, {2 * kMiB, kMiB}});
  plan.cycle[0].entries[0].stream = 0xfffffff0;
  plan.kept.entries.push_back(plan.cycle[0].entries[1]);
  plan.kept.entries[0].stream = 0xfffffffe;
  PlanEngine engine(plan, kBase, nullptr);
  engine.OnMark(Iteration());
  EXPECT_EQ(engine.Allocate(kMiB, 0).pointer, kBase);
  EXPECT_EQ(engine.Allocate(2 * kMiB, 5).pointer, kBase + kMiB);
  EXPECT_EQ(engine.CheckInvariants(), "");
}

TEST(PlanEngineTest, ServesExpectedRequestsAtTheirOffsets) {
  PlanEngine engine(PlanOf({{kMiB, 0}, {2 * kMiB, kMiB}, {kMiB, 0}}), kBase, nullptr);
  engine.OnMark(Iteration());
  EXPECT_EQ(engine.Allocate(kMiB - 7, 0).pointer, kBase);  // rounds up to the entry's size
  EXPECT_EQ(engine.Allocate(2 * kMiB, 0).pointer, kBase + kMiB);
  EXPECT_EQ(engine.Free(kBase), kMiB);
  EXPECT_EQ(engine.Allocate(kMiB, 0).pointer, kBase);
  const EngineStats stats = engine.Stats();
  EXPECT_EQ(stats.requests, 3u);
  EXPECT_EQ(stats.planned_hits, 3u);
  EXPECT_EQ(stats.live_bytes, 3 * kMiB);
  EXPECT_EQ(stats.peak_live_bytes, 3 * kMiB);
  EXPECT_EQ(stats.live_blocks, 2u);
  EXPECT_EQ(stats.iterations, 1u);
  EXPECT_TRUE(stats.active);
  EXPECT_EQ(engine.CheckInvariants(), "");
}

TEST(PlanEngineTest, ALateFreeSendsTheNextOwnerElsewhere) {
  PlanEngine engine(PlanOf({{kMiB, 0}, {3 * kMiB, 0}, {kMiB, 4 * kMiB}}), kBase, nullptr);
  engine.OnMark(Iteration());
  void* late = engine.Allocate(kMiB, 0).pointer;
  ASSERT_NE(late, nullptr);
  const PlanEngine::Allocation blocked = engine.Allocate(3 * kMiB, 0);
  EXPECT_EQ(blocked.pointer, nullptr);
  EXPECT_EQ(blocked.reason, MissReason::kOccupied);
  EXPECT_NE(engine.Allocate(kMiB, 0).pointer, nullptr);  // the next one is not affected
  EXPECT_EQ(engine.Free(late), kMiB);
  EXPECT_EQ(Misses(engine, MissReason::kOccupied), 1u);
}

TEST(PlanEngineTest, CountsEachMissByItsReason) {
  PlanEngine engine(PlanOf({{512, 0}, {1024, kUnplannedOffset}, {1536, 512}, {2048, 2048}, {2560, 4096}}), kBase,
                    nullptr);
  EXPECT_EQ(engine.Allocate(512, 0).reason, MissReason::kUnknownSize);  // no script before the first mark
  engine.OnMark(Iteration());
  EXPECT_EQ(engine.Allocate(512, 7).reason, MissReason::kNone);  // binds the arena to stream 7
  EXPECT_EQ(engine.Allocate(1024, 7).reason, MissReason::kUnplanned);
  EXPECT_EQ(engine.Allocate(1536, 8).reason, MissReason::kStream);  // no fence to order it by
  EXPECT_EQ(engine.Allocate(99 * 512, 7).reason, MissReason::kUnknownSize);
  engine.OnMark(FenceOf(MarkEdge::kBegin));
  EXPECT_EQ(engine.Allocate(2048, 7).reason, MissReason::kFenced);
  engine.OnMark(FenceOf(MarkEdge::kEnd));
  EXPECT_EQ(engine.Allocate(2048, 7).reason, MissReason::kNone);  // the cursor is where it was
  EXPECT_EQ(engine.Allocate(512, 7).reason, MissReason::kUnmatched);
  engine.Deactivate();
  EXPECT_EQ(engine.Allocate(2560, 7).reason, MissReason::kInactive);
  EXPECT_FALSE(engine.Stats().active);
  for (const MissReason reason : {MissReason::kUnplanned, MissReason::kStream, MissReason::kFenced,
                                  MissReason::kUnmatched, MissReason::kInactive}) {
    EXPECT_EQ(Misses(engine, reason), 1u) << MissReasonName(reason);
  }
  EXPECT_EQ(Misses(engine, MissReason::kUnknownSize), 2u);
  EXPECT_EQ(engine.Stats().planned_hits, 2u);
}

TEST(PlanEngineTest, LiveBlocksSurviveDeactivation) {
  PlanEngine engine(PlanOf({{kMiB, 0}, {kMiB, kMiB}}), kBase, nullptr);
  engine.OnMark(Iteration());
  void* block = engine.Allocate(kMiB, 0).pointer;
  engine.Deactivate();
  EXPECT_EQ(engine.FindLive(block).bytes, kMiB);
  EXPECT_EQ(engine.Free(block), kMiB);
  EXPECT_EQ(engine.Stats().live_bytes, 0u);
}

TEST(PlanEngineTest, AFreeOfWhatIsNotLiveIsCountedAndChangesNothing) {
  PlanEngine engine(PlanOf({{kMiB, 0}}), kBase, nullptr);
  engine.OnMark(Iteration());
  void* block = engine.Allocate(kMiB, 0).pointer;
  EXPECT_EQ(engine.Free(kBase + 512), 0u);       // inside a block
  EXPECT_EQ(engine.Free(kBase + 1), 0u);         // not on a granule
  EXPECT_EQ(engine.Free(kBase - 512), 0u);       // below the arena
  EXPECT_EQ(engine.Free(kBase + 2 * kMiB), 0u);  // above it
  EXPECT_EQ(engine.Free(nullptr), 0u);
  EXPECT_EQ(engine.Free(block), kMiB);
  EXPECT_EQ(engine.Free(block), 0u);  // twice
  EXPECT_EQ(engine.Stats().unknown_frees, 6u);
  EXPECT_EQ(engine.Stats().live_blocks, 0u);
  EXPECT_EQ(engine.CheckInvariants(), "");
}

TEST(PlanEngineTest, FindsABlockByAnyOfItsBytes) {
  PlanEngine engine(PlanOf({{kMiB, kMiB}}), kBase, nullptr);
  engine.OnMark(Iteration());
  engine.Allocate(kMiB - 100, 3);
  const LiveBlock block = engine.FindLive(kBase + kMiB + 12345);
  EXPECT_EQ(block.offset, kMiB);
  EXPECT_EQ(block.bytes, kMiB);
  EXPECT_EQ(block.requested, kMiB - 100);
  EXPECT_EQ(block.stream, 3u);
  EXPECT_FALSE(block.freed_pending);
  EXPECT_EQ(engine.FindLive(kBase).bytes, 0u);
  EXPECT_EQ(engine.FindLive(kBase + 2 * kMiB).bytes, 0u);
  EXPECT_EQ(engine.FindLive(nullptr).bytes, 0u);
}

TEST(PlanEngineTest, ListsLiveBlocksInOrderOfOffset) {
  PlanEngine engine(PlanOf({{512, 4096}, {1024, 0}, {1536, 1024}}), kBase, nullptr);
  engine.OnMark(Iteration());
  for (const Bytes bytes : {512, 1024, 1536}) ASSERT_NE(engine.Allocate(bytes, 0).pointer, nullptr);
  std::vector<Offset> offsets;
  for (const LiveBlock& block : engine.LiveBlocks()) offsets.push_back(block.offset);
  EXPECT_EQ(offsets, (std::vector<Offset>{0, 1024, 4096}));
}

TEST(PlanEngineTest, ResetPeakStartsAnewFromTheLiveBytes) {
  PlanEngine engine(PlanOf({{kMiB, 0}, {kMiB, kMiB}}), kBase, nullptr);
  engine.OnMark(Iteration());
  void* block = engine.Allocate(kMiB, 0).pointer;
  engine.Allocate(kMiB, 0);
  engine.Free(block);
  EXPECT_EQ(engine.Stats().peak_live_bytes, 2 * kMiB);
  engine.ResetPeak();
  EXPECT_EQ(engine.Stats().peak_live_bytes, kMiB);
}

TEST(PlanEngineTest, AVaryingEntryWithASlotIsServedWhileItFits) {
  DevicePlan plan = PlanOf({{512, 0}, {4 * kMiB, kMiB}, {1024, 512}});
  plan.cycle[0].entries[1].entry_class = EntryClass::kDynamic;
  plan.cycle[0].entries[1].min_bytes = kMiB;
  PlanEngine engine(plan, kBase, nullptr);
  for (const Bytes bytes : {2 * kMiB, 5 * kMiB}) {
    engine.OnMark(Iteration());
    void* first = engine.Allocate(512, 0).pointer;
    const PlanEngine::Allocation varying = engine.Allocate(bytes, 0);
    EXPECT_EQ(varying.reason, bytes == 2 * kMiB ? MissReason::kNone : MissReason::kUnplanned);
    void* last = engine.Allocate(1024, 0).pointer;
    EXPECT_EQ(last, kBase + 512);
    engine.Free(first);
    engine.Free(last);
    if (varying.pointer != nullptr) {
      EXPECT_EQ(engine.FindLive(varying.pointer).bytes, bytes);
      engine.Free(varying.pointer);
    }
  }
}

TEST(PlanEngineTest, AVaryingEntrysSlotServesNothingThatIsLargerThanAnyArena) {
  DevicePlan plan = PlanOf({{512, 0}, {4 * kMiB, kMiB}, {1024, 512}});
  plan.cycle[0].entries[1].entry_class = EntryClass::kDynamic;
  plan.cycle[0].entries[1].min_bytes = 512;
  PlanEngine engine(plan, kBase, nullptr);
  engine.OnMark(Iteration());
  (void)engine.Allocate(512, 0);
  EXPECT_EQ(engine.Allocate(Bytes{1} << 45, 0).pointer, nullptr);
}

TEST(PlanEngineTest, AnArenaThatIsTooLargeForItsTablesIsNeverServed) {
  DevicePlan plan = PlanOf({{kMiB, 0}});
  plan.arena_bytes = Bytes{1} << 62;
  PlanEngine engine(plan, kBase, nullptr);
  engine.OnMark(Iteration());
  EXPECT_EQ(engine.Allocate(kMiB, 0).reason, MissReason::kInactive);
}

// A recorded iteration, three times over its own plan: every request is served, at the same place each time.
TEST(PlanEngineTest, ARecordedIterationIsServedWhole) {
  const auto requests = ReadCorpus("gpt_dense").Iteration(2);
  const auto steps = StepsOf(requests);
  const DevicePlan plan = FirstFitPlan(requests);
  PlanEngine engine(plan, kBase, nullptr);
  for (int iteration = 0; iteration < 3; ++iteration) {
    engine.OnMark(Iteration(iteration));
    for (const ReplayStep& step : steps) {
      std::byte* const place = kBase + plan.slots[step.request].offset;
      if (step.allocate) {
        ASSERT_EQ(engine.Allocate(requests[step.request].bytes, 0).pointer, place) << "request " << step.request;
      } else {
        ASSERT_EQ(engine.Free(place), BlockBytes(requests[step.request].bytes));
      }
    }
    ASSERT_EQ(engine.CheckInvariants(), "");
  }
  EXPECT_EQ(engine.Stats().planned_hits, 3 * requests.size());
  EXPECT_EQ(engine.Stats().sync_losses, 0u);
}

// One extra 1 MiB tensor a step, which the published implementation pays for with the rest of the iteration.
TEST(PlanEngineTest, AnExtraTensorEachStepCostsOnlyItself) {
  const auto requests = ReadCorpus("gpt_dense").Iteration(2);
  const auto steps = StepsOf(requests);
  const DevicePlan plan = FirstFitPlan(requests);
  PlanEngine engine(plan, kBase, nullptr);
  std::uint64_t extra = 0;
  for (int iteration = 0; iteration < 5; ++iteration) {
    engine.OnMark(Iteration(iteration));
    std::vector<void*> served(requests.size());
    std::vector<void*> others;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (i == steps.size() / 5 * static_cast<std::size_t>(iteration)) {
        others.push_back(engine.Allocate(kMiB, 0).pointer);
        ++extra;
      }
      const ReplayStep& step = steps[i];
      if (step.allocate) {
        served[step.request] = engine.Allocate(requests[step.request].bytes, 0).pointer;
      } else if (served[step.request] != nullptr) {
        engine.Free(served[step.request]);
      }
    }
    for (void* other : others) {
      if (other != nullptr) engine.Free(other);
    }
  }
  EXPECT_GE(engine.Stats().planned_hits + 5, 5 * requests.size());
  EXPECT_EQ(extra, 5u);
}

TEST(MissReasonTest, EveryReasonHasItsOwnName) {
  std::vector<std::string> names;
  for (int i = 0; i < static_cast<int>(MissReason::kCount); ++i) {
    const std::string name = MissReasonName(static_cast<MissReason>(i));
    EXPECT_NE(name, "?");
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 0) << name;
    names.push_back(name);
  }
}

}  // namespace plan_engine_test
}  // namespace stalloc
