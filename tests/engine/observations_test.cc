// What the engine has seen of a plan's entries after runs that depart from it.
#include "allocator/engine/follow/observations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "allocator/engine/plan_engine.h"

namespace stalloc {
namespace observations_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// An address range that nobody touches.
std::byte* const kBase = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);

Mark Iteration() { return {MarkKind::kIteration, MarkEdge::kBegin, Pass::kNone, 0, 0, "", false}; }

constexpr Offset kNoPlace = ~Offset{0};
struct Expected {
  Bytes bytes = 0;
  Offset offset = kNoPlace;
  bool varies = false;
  std::uint64_t life = 1;
};

Entry EntryOf(const Expected& request, DevicePlan* plan) {
  Entry entry;
  entry.bytes = entry.min_bytes = entry.max_bytes = request.bytes;
  entry.expected_life = request.life;
  if (request.varies) entry.entry_class = EntryClass::kDynamic;
  if (request.offset == kNoPlace) return entry;
  entry.slot = static_cast<std::uint32_t>(plan->slots.size());
  plan->slots.push_back({request.offset, request.bytes});
  plan->arena_bytes = std::max(plan->arena_bytes, request.offset + request.bytes);
  return entry;
}

DevicePlan PlanOf(const std::vector<Expected>& init, const std::vector<Expected>& requests) {
  DevicePlan plan;
  plan.device = 3;
  plan.prologue.emplace_back();
  plan.cycle.emplace_back();
  for (const Expected& request : init) plan.prologue[0].entries.push_back(EntryOf(request, &plan));
  for (const Expected& request : requests) plan.cycle[0].entries.push_back(EntryOf(request, &plan));
  return plan;
}

class ObservationsTest : public ::testing::Test {
 protected:
  // With 64 MiB mapped, so that nothing is in want of room.
  void Serve(const DevicePlan& plan) {
    engine_ = std::make_unique<PlanEngine>(plan, kBase, nullptr,
                                           DynamicSpaceOptions{64 * kMiB, 64 * kMiB, /*least_bytes=*/kMiB});
  }
  void Mark() { engine_->OnMark(Iteration()); }
  void* Take(Bytes bytes) {
    void* const pointer = engine_->Allocate(bytes, 0).pointer;
    EXPECT_NE(pointer, nullptr) << bytes;
    return pointer;
  }
  void Miss(Bytes bytes) { EXPECT_EQ(engine_->Allocate(bytes, 0).pointer, nullptr) << bytes; }
  void Give(void* pointer) { EXPECT_NE(engine_->Free(pointer), 0u); }
  void TakeAndGive(Bytes bytes) { Give(Take(bytes)); }
  [[nodiscard]] std::vector<ObservedEntry> Seen() const { return engine_->Observed().entries; }

  std::unique_ptr<PlanEngine> engine_;
};

TEST_F(ObservationsTest, SizesAndTheLongestLifeOfAnEntryThatVaries) {
  Serve(PlanOf({{kMiB, 0}}, {{8 * kMiB, 0}, {4 * kMiB, kNoPlace, true}, {2 * kMiB, 8 * kMiB}}));
  Mark();
  TakeAndGive(8 * kMiB);
  void* const first = Take(3 * kMiB - 100);  // rounded up
  TakeAndGive(2 * kMiB);
  Give(first);  // two requests after its own
  Mark();
  TakeAndGive(8 * kMiB);
  TakeAndGive(6 * kMiB);
  TakeAndGive(2 * kMiB);
  EXPECT_THAT(Seen(), ElementsAre(ObservedEntry{1, 1, 3 * kMiB, 6 * kMiB, 2, 2, 0}));
  EXPECT_EQ(engine_->Observed().device, 3);
  EXPECT_THAT(engine_->Observed().script_entries, ElementsAre(1, 3));
}

TEST_F(ObservationsTest, ASlotWithRoomForOtherSizesTellsThemToo) {
  Serve(PlanOf({}, {{8 * kMiB, 0}, {4 * kMiB, 8 * kMiB, true}, {2 * kMiB, 12 * kMiB}}));
  Mark();
  TakeAndGive(8 * kMiB);
  EXPECT_EQ(Take(3 * kMiB), kBase + 8 * kMiB);
  EXPECT_EQ(engine_->Stats().planned_hits, 2u);
  Give(kBase + 8 * kMiB);
  EXPECT_THAT(Seen(), ElementsAre(ObservedEntry{1, 1, 3 * kMiB, 3 * kMiB, 1, 1, 0}));
}

TEST_F(ObservationsTest, WhatTheArenaDoesNotServeIsAMiss) {
  Serve(PlanOf({}, {{8 * kMiB, 0}, {kMiB, kNoPlace, true}, {2 * kMiB, 8 * kMiB}}));
  Mark();
  TakeAndGive(8 * kMiB);
  Miss(kMiB / 2);  // below least_bytes
  EXPECT_THAT(Seen(), ElementsAre(ObservedEntry{1, 1, kMiB / 2, kMiB / 2, 0, 1, 1}));
  Mark();
  TakeAndGive(8 * kMiB);
  TakeAndGive(2 * kMiB - 512);
  EXPECT_THAT(Seen(), ElementsAre(ObservedEntry{1, 1, kMiB / 2, 2 * kMiB - 512, 1, 2, 1}));
}

TEST_F(ObservationsTest, ABlockInTheWayOfItsSlotsNextOwnerTellsItsLife) {
  Serve(PlanOf({}, {{8 * kMiB, 0}, {3 * kMiB, 0}, {5 * kMiB, 8 * kMiB}, {4 * kMiB, kNoPlace, true}}));
  Mark();
  void* const late = Take(8 * kMiB);
  TakeAndGive(3 * kMiB);  // beside the slots
  EXPECT_EQ(engine_->Stats().dynamic_hits, 1u);
  TakeAndGive(5 * kMiB);
  Give(late);
  EXPECT_THAT(Seen(), ElementsAre(ObservedEntry{1, 0, 8 * kMiB, 8 * kMiB, 3, 1, 0},
                                  ObservedEntry{1, 1, 3 * kMiB, 3 * kMiB, 1, 1, 0}));
}

TEST_F(ObservationsTest, LivesGoOnRoundTheCycleButNotLongerThanARound) {
  Serve(PlanOf({}, {{8 * kMiB, 0}, {4 * kMiB, kNoPlace, true, 3}, {2 * kMiB, 8 * kMiB}}));
  const auto iteration = [&] {
    Mark();
    TakeAndGive(8 * kMiB);
    void* const block = Take(4 * kMiB);
    TakeAndGive(2 * kMiB);
    return block;
  };
  void* const over_the_end = iteration();
  Mark();
  TakeAndGive(8 * kMiB);
  Give(over_the_end);  // the two last entries, and the first of the next round
  EXPECT_THAT(Seen(), ElementsAre(ObservedEntry{1, 1, 4 * kMiB, 4 * kMiB, 3, 1, 0}));
  void* const kept = iteration();
  iteration();
  Give(kept);
  EXPECT_THAT(Seen(), ElementsAre(ObservedEntry{1, 1, 4 * kMiB, 4 * kMiB, 3, 2, 0}));
}

TEST_F(ObservationsTest, OutOfSyncNothingIsCertain) {
  Serve(PlanOf({}, {{8 * kMiB, 0}, {4 * kMiB, kNoPlace, true}, {2 * kMiB, 8 * kMiB}, {kMiB, 10 * kMiB}}));
  Mark();
  engine_->Free(engine_->Allocate(kMiB, 0).pointer);  // a size of the script, but not here
  ASSERT_FALSE(engine_->Position().in_sync);
  for (int i = 0; i < 3; ++i) engine_->Free(engine_->Allocate(5 * kMiB, 0).pointer);
  ASSERT_FALSE(engine_->Position().in_sync);
  EXPECT_THAT(Seen(), IsEmpty());
}

TEST_F(ObservationsTest, WhatIsServedAsPlannedTellsNothing) {
  Serve(PlanOf({}, {{8 * kMiB, 0}, {2 * kMiB, 8 * kMiB}, {4 * kMiB, kNoPlace, true}}));
  for (int i = 0; i < 3; ++i) {
    Mark();
    void* const kept = Take(8 * kMiB);
    TakeAndGive(2 * kMiB);
    Give(kept);
  }
  EXPECT_EQ(engine_->Stats().planned_hits, 6u);
  EXPECT_THAT(Seen(), IsEmpty());
}

TEST_F(ObservationsTest, APlanWhereNothingVariesIsNotWatched) {
  Serve(PlanOf({}, {{8 * kMiB, 0}, {3 * kMiB, 0}, {5 * kMiB, 8 * kMiB}}));
  Mark();
  void* const late = Take(8 * kMiB);
  TakeAndGive(3 * kMiB);
  Give(late);
  EXPECT_EQ(engine_->Stats().dynamic_hits, 1u);
  EXPECT_THAT(Seen(), IsEmpty());
}

}  // namespace observations_test
}  // namespace stalloc
