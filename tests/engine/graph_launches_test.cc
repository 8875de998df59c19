// Slots in graphs' pools, and the launches of the graphs.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "allocator/engine/plan_engine.h"
#include "tests/engine/fake_fence.h"

namespace stalloc {
namespace graph_launches_test {

constexpr Bytes kPool = 64 * kBlock;
constexpr Offset kLentBegin = 1024 * kBlock;
constexpr StreamHandle kEager = 7;
constexpr StreamHandle kOther = 8;
using Launch = PlanEngine::Launch;

GranuleRange Range(Offset begin, Offset end) {
  return {WholeGranules(kLentBegin + begin), WholeGranules(kLentBegin + end)};
}
void* PlaceAt(Offset offset) { return kBase + kLentBegin + offset; }

// One request of one block, which lies at the pool's begin, and one of two blocks behind it.
DevicePlan LentPlan() {
  DevicePlan plan;
  plan.arena_bytes = 16 * kBlock;
  plan.lent_pools = {{.number = 1, .requests = 1, .layout = 1, .bytes = kPool, .first_pieces = {}}};
  plan.lent_slots = {{0, kBlock}, {kBlock, 2 * kBlock}};
  plan.cycle.emplace_back();
  for (std::uint32_t i = 0; i < 2; ++i) {
    Entry entry;
    entry.bytes = entry.min_bytes = entry.max_bytes = (i + 1) * kBlock;
    entry.expected_life = 1;
    entry.lent_slot = i;
    plan.cycle[0].entries.push_back(entry);
  }
  return plan;
}

class GraphLaunchesTest : public testing::Test {
 protected:
  GraphLaunchesTest()
      : engine_(LentPlan(), kBase, &fence_,
                {.limit_bytes = kLentBegin,
                 .mapped_bytes = 16 * kBlock,
                 .lent_begin = kLentBegin,
                 .lent_bytes = 2 * kPool}) {
    engine_.OnMark(MarkOf(MarkKind::kIteration));
  }
  ~GraphLaunchesTest() override { EXPECT_EQ(engine_.CheckInvariants(), ""); }

  void Open(std::vector<GranuleRange> given = {}) {
    const GranuleRange all = Range(0, kPool);
    ASSERT_TRUE(engine_.OpenLent(0, {&all, 1}, given, /*graphs=*/1));
  }
  [[nodiscard]] Launch Run(const GraphRanges& graph, StreamHandle stream = kEager) {
    const Launch launch = engine_.BeginLaunch(0, graph, stream);
    if (launch == Launch::kReady) engine_.EndLaunch(graph);
    return launch;
  }

  FakeFence fence_;
  PlanEngine engine_;
  const GraphRanges all_{.own = {Range(0, kPool)}, .gives = {}, .takes = {}};
};

TEST_F(GraphLaunchesTest, AnOpenPoolServesItsSlots) {
  const auto closed = engine_.Allocate(kBlock, kEager);
  EXPECT_NE(closed.pointer, PlaceAt(0));
  if (closed.pointer != nullptr) engine_.Free(closed.pointer);
  Open();
  ASSERT_EQ(Run(all_), Launch::kReady);
  const auto second = engine_.Allocate(2 * kBlock, kEager);
  EXPECT_EQ(second.pointer, PlaceAt(kBlock));
  EXPECT_EQ(second.reason, MissReason::kNone);
  engine_.Free(second.pointer);
  EXPECT_EQ(engine_.Stats().lent_hits, 1u);
  engine_.CloseLent(0);
  engine_.OnMark(MarkOf(MarkKind::kIteration));
  EXPECT_NE(engine_.Allocate(kBlock, kEager).pointer, PlaceAt(0));
}

// Nobody else's blocks can be moved away while a graph is launched.
TEST_F(GraphLaunchesTest, OnlyThreadsThatLaunchItsGraphsAreServed) {
  Open();
  EXPECT_NE(engine_.Allocate(kBlock, kEager).pointer, PlaceAt(0));
  std::thread([this] { EXPECT_EQ(Run(all_), Launch::kReady); }).join();
  EXPECT_NE(engine_.Allocate(2 * kBlock, kEager).pointer, PlaceAt(kBlock));
}

TEST_F(GraphLaunchesTest, WhatALaunchNeedsIsClosedUntilItEnds) {
  Open();
  ASSERT_EQ(engine_.BeginLaunch(0, all_, kEager), Launch::kReady);
  EXPECT_NE(engine_.Allocate(kBlock, kEager).pointer, PlaceAt(0));
  engine_.EndLaunch(all_);
  EXPECT_EQ(engine_.Allocate(2 * kBlock, kEager).pointer, PlaceAt(kBlock));
  EXPECT_EQ(engine_.Stats().live_blocks, engine_.LiveBlocks().size()) << "a launch is no block";
}

TEST_F(GraphLaunchesTest, ABlockIsInTheWayOfALaunchThatNeedsItsBytes) {
  Open();
  ASSERT_EQ(Run(all_), Launch::kReady);
  const auto block = engine_.Allocate(kBlock, kEager);
  ASSERT_EQ(block.pointer, PlaceAt(0));
  EXPECT_EQ(engine_.LentBlocks(0).size(), 1u);
  EXPECT_EQ(Run(all_), Launch::kBlocksInTheWay);
  EXPECT_EQ(Run({.own = {Range(kBlock, kPool)}, .gives = {}, .takes = {}}), Launch::kReady);
  engine_.Free(block.pointer);
  EXPECT_EQ(Run(all_), Launch::kReady);
}

TEST_F(GraphLaunchesTest, NothingIsPlacedWhereOwnMemoryIsWithdrawn) {
  Open();
  ASSERT_EQ(Run(all_), Launch::kReady);
  ASSERT_TRUE(engine_.Withdraw(kLentBegin + 2 * kBlock, kBlock));
  for (const bool is_backed : {false, true}) {
    const auto first = engine_.Allocate(kBlock, kEager);
    EXPECT_EQ(first.pointer, PlaceAt(0));
    const auto second = engine_.Allocate(2 * kBlock, kEager);
    EXPECT_EQ(second.pointer == PlaceAt(kBlock), is_backed);
    engine_.Free(first.pointer);
    if (second.pointer != nullptr) engine_.Free(second.pointer);
    engine_.Restore(kLentBegin + 2 * kBlock, kBlock);
    engine_.OnMark(MarkOf(MarkKind::kIteration));
  }
}

// A block of the slot's size lives at launches elsewhere; those in the slot do not.
TEST_F(GraphLaunchesTest, SizesThatLastElsewhereKeepNoSlotFromItsRequest) {
  constexpr Bytes kLarge = 2048 * kBlockAlignment;
  DevicePlan plan = LentPlan();
  plan.arena_bytes = 2 * kLarge;
  plan.lent_pools[0].bytes = 2 * kLarge;
  plan.lent_slots = {{0, kLarge}};
  plan.cycle[0].entries.resize(1);
  Entry& entry = plan.cycle[0].entries[0];
  entry.bytes = entry.min_bytes = entry.max_bytes = kLarge;
  PlanEngine engine(
      plan, kBase, &fence_,
      {.limit_bytes = 4 * kLarge, .mapped_bytes = 2 * kLarge, .lent_begin = 4 * kLarge, .lent_bytes = 2 * kLarge});
  const GranuleRange all{WholeGranules(4 * kLarge), WholeGranules(6 * kLarge)};
  const GraphRanges graph{.own = {all}, .gives = {}, .takes = {}};
  ASSERT_TRUE(engine.OpenLent(0, {&all, 1}, {}, /*graphs=*/1));
  engine.OnMark(MarkOf(MarkKind::kIteration));
  const auto lasting = engine.Allocate(kLarge, kEager);  // before any launch: elsewhere
  ASSERT_NE(lasting.pointer, nullptr);
  ASSERT_NE(lasting.pointer, kBase + 4 * kLarge);
  for (int iteration = 0; iteration < 2; ++iteration) {
    engine.OnMark(MarkOf(MarkKind::kIteration));
    ASSERT_EQ(engine.BeginLaunch(0, graph, kEager), Launch::kReady);
    engine.EndLaunch(graph);
    const auto planned = engine.Allocate(kLarge, kEager);
    EXPECT_EQ(planned.pointer, kBase + 4 * kLarge) << iteration;
    if (iteration == 0) engine.Free(planned.pointer);
  }
  EXPECT_EQ(engine.BeginLaunch(0, graph, kEager), Launch::kBlocksInTheWay);
}

TEST_F(GraphLaunchesTest, StreamsWaitForEachOther) {
  Open();
  ASSERT_EQ(Run(all_, kEager), Launch::kReady);
  EXPECT_EQ(fence_.TakeWaits(), Waits{});
  const auto block = engine_.Allocate(kBlock, kEager);
  ASSERT_EQ(block.pointer, PlaceAt(0));
  EXPECT_EQ(fence_.TakeWaits(), Waits{}) << "in the order of the stream";
  engine_.Free(block.pointer);
  ASSERT_EQ(Run(all_, kOther), Launch::kReady);
  EXPECT_EQ(fence_.TakeWaits(), (Waits{{kOther, kEager}}));
  ASSERT_EQ(engine_.Allocate(2 * kBlock, kEager).pointer, PlaceAt(kBlock));
  EXPECT_EQ(fence_.TakeWaits(), (Waits{{kEager, kOther}}));
}

// A block of the launch's own stream that another one uses, too.
TEST_F(GraphLaunchesTest, ALaunchWaitsForStreamsThatWereRecorded) {
  Open();
  ASSERT_EQ(Run(all_), Launch::kReady);
  const auto block = engine_.Allocate(kBlock, kEager);
  ASSERT_EQ(block.pointer, PlaceAt(0));
  engine_.RecordStream(block.pointer, kOther);
  engine_.Free(block.pointer);
  ASSERT_EQ(Run(all_), Launch::kReady);
  EXPECT_EQ(fence_.TakeWaits(), (Waits{{kEager, kOther}}));
}

TEST_F(GraphLaunchesTest, AWaitThatCannotBeGivenRefusesTheLaunch) {
  Open();
  ASSERT_EQ(Run(all_), Launch::kReady);
  const auto block = engine_.Allocate(kBlock, kEager);
  ASSERT_EQ(block.pointer, PlaceAt(0));
  engine_.Free(block.pointer);
  fence_.SetCapturing(true);
  EXPECT_EQ(Run(all_, kOther), Launch::kNotOrdered);
  fence_.SetCapturing(false);
  EXPECT_EQ(Run(all_, kOther), Launch::kReady);
}

class CarriedTest : public GraphLaunchesTest {
 protected:
  // The first slot's bytes are carried, the rest is dead.
  const GraphRanges giver_{.own = {Range(kBlock, kPool)}, .gives = {Range(0, kBlock)}, .takes = {}};
  const GraphRanges taker_{.own = {Range(0, kPool)}, .gives = {}, .takes = {{Range(0, kBlock), 3}}};
};

TEST_F(CarriedTest, WhatIsCarriedIsClosedUntilItIsTaken) {
  Open();
  ASSERT_EQ(Run(giver_), Launch::kReady);
  EXPECT_NE(engine_.Allocate(kBlock, kEager).pointer, PlaceAt(0));
  const auto beside = engine_.Allocate(2 * kBlock, kEager);
  EXPECT_EQ(beside.pointer, PlaceAt(kBlock)) << "the giver's dead bytes serve meanwhile";
  engine_.Free(beside.pointer);
  ASSERT_EQ(Run(taker_), Launch::kReady);
  engine_.OnMark(MarkOf(MarkKind::kIteration));
  EXPECT_EQ(engine_.Allocate(kBlock, kEager).pointer, PlaceAt(0));
}

TEST_F(CarriedTest, WhatWasGivenBeforeThePoolOpenedIsClosed) {
  Open({Range(0, kBlock)});
  ASSERT_EQ(Run({.own = {Range(kBlock, kPool)}, .gives = {}, .takes = {}}), Launch::kReady);
  EXPECT_NE(engine_.Allocate(kBlock, kEager).pointer, PlaceAt(0));
  ASSERT_EQ(Run(taker_), Launch::kReady);
}

TEST_F(CarriedTest, ATakerWithoutItsGiverIsRefusedOnceItsBytesWereUsed) {
  Open();
  ASSERT_EQ(Run(giver_), Launch::kReady);
  ASSERT_EQ(Run(taker_), Launch::kReady);
  EXPECT_EQ(Run(taker_), Launch::kReady) << "nobody was there meanwhile";
  EXPECT_EQ(engine_.GiverOfUsed(taker_), 0u);
  const auto block = engine_.Allocate(kBlock, kEager);
  ASSERT_EQ(block.pointer, PlaceAt(0));
  EXPECT_EQ(Run(taker_), Launch::kCarriedGone);
  engine_.Free(block.pointer);
  EXPECT_EQ(Run(taker_), Launch::kCarriedGone);
  EXPECT_EQ(engine_.GiverOfUsed(taker_), 3u);
  engine_.CloseLent(0);
  EXPECT_FALSE(engine_.NoteLaunch(taker_));
  EXPECT_TRUE(engine_.NoteLaunch(giver_));
  EXPECT_TRUE(engine_.NoteLaunch(taker_));
}

TEST_F(CarriedTest, WhatWasOverwrittenBehindATakerIsGone) {
  Open();
  ASSERT_EQ(Run(giver_), Launch::kReady);
  ASSERT_EQ(Run(taker_), Launch::kReady);
  engine_.NoteOverwritten(giver_);
  EXPECT_EQ(Run(taker_), Launch::kReady) << "the giver takes nothing";
  engine_.NoteOverwritten(taker_);
  EXPECT_EQ(Run(taker_), Launch::kCarriedGone);
  EXPECT_EQ(engine_.GiverOfUsed(taker_), 3u);
  ASSERT_EQ(Run(giver_), Launch::kReady);
  EXPECT_EQ(Run(taker_), Launch::kReady);
}

TEST_F(CarriedTest, AnotherGraphTakesTheBytesOver) {
  Open();
  ASSERT_EQ(Run(giver_), Launch::kReady);
  ASSERT_EQ(Run(giver_), Launch::kReady) << "once more";
  ASSERT_EQ(Run(all_), Launch::kReady);
  EXPECT_EQ(engine_.Allocate(kBlock, kEager).pointer, PlaceAt(0)) << "nothing is carried any more";
}

TEST_F(GraphLaunchesTest, APoolDoesNotOpenOverABlock) {
  Open();
  ASSERT_EQ(Run(all_), Launch::kReady);
  const auto block = engine_.Allocate(kBlock, kEager);
  ASSERT_EQ(block.pointer, PlaceAt(0));
  engine_.CloseLent(0);
  const GranuleRange all = Range(0, kPool);
  EXPECT_FALSE(engine_.OpenLent(0, {&all, 1}, {}, 1));
  engine_.Free(block.pointer);
  EXPECT_TRUE(engine_.OpenLent(0, {&all, 1}, {}, 1));
}

// A slot of an MiB at the arena's begin, whose memory may be elsewhere, and an open pool of two.
class UnmappedSlotTest : public testing::Test {
 protected:
  static constexpr Bytes kSlot = 2048 * kBlockAlignment;

  // `life`: of the slot's block, in requests; 0: not known.
  static DevicePlan Plan(std::uint64_t life) {
    DevicePlan plan = TurnsPlan(1, 1);
    plan.slots[0].capacity = plan.arena_bytes = kSlot;
    Entry& entry = plan.cycle[0].entries[0];
    entry.bytes = entry.min_bytes = entry.max_bytes = kSlot;
    entry.expected_life = life;
    return plan;
  }

  void Start(std::uint64_t life) {
    engine_.emplace(
        Plan(life), kBase, nullptr,
        DynamicSpaceOptions{
            .limit_bytes = 2 * kSlot, .mapped_bytes = kSlot, .lent_begin = 2 * kSlot, .lent_bytes = 4 * kSlot});
    const std::optional<PlanEngine::LentPlace> place = engine_->AddLentPool(2 * kSlot);
    ASSERT_TRUE(place.has_value());
    EXPECT_EQ(place->begin, 2 * kSlot);
    EXPECT_FALSE(engine_->AddLentPool(4 * kSlot).has_value()) << "there are no addresses for it";
    const GranuleRange all{WholeGranules(2 * kSlot), WholeGranules(4 * kSlot)};
    const GraphRanges graph{.own = {all}, .gives = {}, .takes = {}};
    ASSERT_TRUE(engine_->OpenLent(place->pool, {&all, 1}, {}, /*graphs=*/1));
    for (int launch = 0; launch < 2; ++launch) {
      ASSERT_EQ(engine_->BeginLaunch(place->pool, graph, 7), Launch::kReady);
      engine_->EndLaunch(graph);
    }
  }
  PlanEngine::Allocation RequestInNewIteration() {
    engine_->OnMark(MarkOf(MarkKind::kIteration));
    return engine_->Allocate(kSlot, 7);
  }

  std::optional<PlanEngine> engine_;
};

TEST_F(UnmappedSlotTest, APoolServesItsRequestBeforeMemoryIsMapped) {
  Start(/*life=*/1);
  const auto mapped = RequestInNewIteration();
  EXPECT_EQ(mapped.pointer, kBase);
  engine_->Free(mapped.pointer);
  ASSERT_TRUE(engine_->Withdraw(0, kSlot));
  const auto lent = RequestInNewIteration();
  EXPECT_EQ(lent.pointer, kBase + 2 * kSlot);
  EXPECT_EQ(lent.reason, MissReason::kNone);
}

TEST_F(UnmappedSlotTest, NoPoolServesWhatOutlivesTheIteration) {
  for (const std::uint64_t life : {0u, 2u}) {  // 0: for good
    Start(life);
    ASSERT_TRUE(engine_->Withdraw(0, kSlot));
    EXPECT_EQ(RequestInNewIteration().pointer, nullptr) << "nobody maps memory here";
  }
}

}  // namespace graph_launches_test
}  // namespace stalloc
