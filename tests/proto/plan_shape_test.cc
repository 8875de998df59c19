#include "proto/model/plan_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "proto/model/pool_layout.h"
#include "tests/proto/random_formats.h"

namespace stalloc {
namespace {

using testing::HasSubstr;

// One device, two slots, one cycle script of two entries; two lent pools with a slot that lies in both.
Plan SmallPlan() {
  DevicePlan device;
  device.device = 0;
  device.arena_bytes = 4096;
  device.slots = {{.offset = 0, .capacity = 1024}, {.offset = 1024, .capacity = 3072}};
  device.streams = {{.ordinal = 0, .device = 0, .handle = 0}, {.ordinal = 1, .device = 0, .handle = 7}};
  Entry entry;
  entry.bytes = entry.min_bytes = entry.max_bytes = 1024;
  entry.slot = 0;
  Script script;
  script.entries = {entry, entry};
  script.entries[1].slot = kNoSlot;
  script.phases = {{.mark = {}, .first_entry = 0}, {.mark = {}, .first_entry = 1}};
  device.cycle = {script};
  device.lent_pools = {{.number = 2, .requests = 5, .layout = 7, .bytes = 2048, .first_pieces = {}},
                       {.number = 1, .requests = 1, .layout = 9, .bytes = 1024, .first_pieces = {}}};
  device.lent_slots = {{.offset = 1024, .capacity = 1536}};
  device.stream_edges = {{.from_slot = 0, .to_slot = 1, .from_stream = 0, .to_stream = 1}};
  Plan plan;
  plan.devices = {device};
  return plan;
}

constexpr Bytes kOwn = LentPool::kOwnUnit;

struct Case {
  const char* name;
  std::function<void(DevicePlan*)> damage;
  const char* expected;
};

class PlanShapeTest : public testing::TestWithParam<Case> {};

TEST_P(PlanShapeTest, ViolationIsNamedWithItsPlaceAndValues) {
  Plan plan = SmallPlan();
  ASSERT_TRUE(CheckPlanShape(plan).ok()) << CheckPlanShape(plan).error();
  GetParam().damage(&plan.devices[0]);
  const Status status = CheckPlanShape(plan);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error(), HasSubstr(GetParam().expected));
}

INSTANTIATE_TEST_SUITE_P(
    Rules, PlanShapeTest,
    testing::Values(
        Case{"Device", [](DevicePlan* d) { d->device = -2; }, "device -2: expected -1 (CPU) or a device's index"},
        Case{"Arena", [](DevicePlan* d) { d->arena_bytes = 4097; }, "arena_bytes 4097 is not a multiple of 512"},
        Case{"NoCycle", [](DevicePlan* d) { d->cycle.clear(); }, "device 0: expected at least one cycle script"},
        Case{"NoTurns", [](DevicePlan* d) { d->turns = 0; }, "expected turns to divide the cycle's 1 scripts, found 0"},
        Case{"Turns", [](DevicePlan* d) { d->turns = 2; }, "expected turns to divide the cycle's 1 scripts, found 2"},
        Case{"TurnsDiffer",
             [](DevicePlan* d) {
               d->turns = 2;
               d->cycle.push_back(d->cycle[0]);
               d->cycle[1].entries.pop_back();
             },
             "cycle script 1: expected as many entries as its first turn has"},
        Case{"StreamTwice", [](DevicePlan* d) { d->streams[1].ordinal = 0; }, "stream ordinal 0 is listed twice"},
        Case{"Offset", [](DevicePlan* d) { d->slots[1].offset = 100; }, "slot 1: offset 100 is not a multiple of 512"},
        Case{"Capacity", [](DevicePlan* d) { d->slots[0].capacity = 0; }, "slot 0: capacity 0 is not a positive"},
        Case{"CapacityUnaligned", [](DevicePlan* d) { d->slots[0].capacity = 1000; },
             "capacity 1000 is not a positive"},
        Case{"Beyond", [](DevicePlan* d) { d->slots[1].capacity = 3584; }, "reach beyond the arena's 4096 bytes"},
        Case{"BeyondWrapping", [](DevicePlan* d) { d->slots[1].capacity = ~Bytes{511}; }, "reach beyond the arena's"},
        Case{"PhaseRange", [](DevicePlan* d) { d->cycle[0].phases[1].first_entry = 3; }, "phase 1: first_entry 3 of 2"},
        Case{"PhaseOrder", [](DevicePlan* d) { d->cycle[0].phases[0].first_entry = 2; }, "1 after 2 is not ascending"},
        Case{"EntryZero", [](DevicePlan* d) { d->cycle[0].entries[1].bytes = 0; }, "cycle script 0, entry 1: bytes 0"},
        Case{"EntryUnaligned", [](DevicePlan* d) { d->cycle[0].entries[0].bytes = 513; }, "entry 0: bytes 513 is not"},
        Case{"MinAbove", [](DevicePlan* d) { d->cycle[0].entries[0].min_bytes = 2048; }, "found 2048, 1024, 1024"},
        Case{"MaxBelow", [](DevicePlan* d) { d->cycle[0].entries[0].max_bytes = 512; }, "found 1024, 1024, 512"},
        Case{"EntryStream", [](DevicePlan* d) { d->cycle[0].entries[0].stream = 2; }, "stream ordinal 2 is not listed"},
        Case{"EntrySlot", [](DevicePlan* d) { d->cycle[0].entries[0].slot = 2; }, "entry 0: slot 2 of 2"},
        Case{"EntryTooBig", [](DevicePlan* d) { d->slots[0].capacity = 512; }, "bytes 1024 in slot 0 of capacity 512"},
        Case{"Prologue",
             [](DevicePlan* d) {
               d->prologue = d->cycle;
               d->prologue[0].entries[0].slot = 9;
             },
             "prologue script 0, entry 0: slot 9 of 2"},
        Case{"LentSlotOffset", [](DevicePlan* d) { d->lent_slots[0].offset = 1; }, "lent slot 0: offset 1 is not"},
        Case{"LentSlotBeyond", [](DevicePlan* d) { d->lent_slots[0].offset = 2048; },
             "lent slot 0: offset 2048 and capacity 1536 reach beyond the lent pools' 3072 bytes"},
        Case{"LentPoolTwice", [](DevicePlan* d) { d->lent_pools[1].number = 2; }, "lent pool 1: number 2 is listed"},
        Case{"LentPoolNumber", [](DevicePlan* d) { d->lent_pools[1].number = 0; },
             "lent pool 1: expected a number and requests above 0, found 0 and 1"},
        Case{"LentPoolRequests", [](DevicePlan* d) { d->lent_pools[0].requests = 0; }, "above 0, found 2 and 0"},
        Case{"LentPoolBytes", [](DevicePlan* d) { d->lent_pools[0].bytes = 1000; },
             "lent pool 0: expected a positive multiple of 512 bytes"},
        Case{"LentPoolPiece", [](DevicePlan* d) { d->lent_pools[1].first_pieces = {0}; },
             "lent pool 1: expected first pieces below 0, found 0"},
        Case{"LentPoolPieceTwice",
             [](DevicePlan* d) {
               d->lent_pools[0].bytes = 2 * PoolLayout::kExtentUnit;
               d->lent_pools[0].first_pieces = {1, 1};
             },
             "lent pool 0: piece 1 is listed twice"},
        Case{"LentPoolsTooLarge", [](DevicePlan* d) { d->lent_pools[1].bytes = ~Bytes{511}; }, "lent pool 1: expected"},
        Case{"OwnOffset",
             [](DevicePlan* d) {
               d->lent_pools[0].own = {{512, kOwn}};
             },
             "lent pool 0: expected own bytes in multiples of 2097152 that begin in [0, 2048], found offset 512 and "},
        Case{"OwnNothing",
             [](DevicePlan* d) {
               d->lent_pools[0].own = {{0, 0}};
             },
             "found offset 0 and capacity 0"},
        Case{"OwnCapacity",
             [](DevicePlan* d) {
               d->lent_pools[0].own = {{0, kOwn + 512}};
             },
             "and capacity 2097664"},
        Case{"OwnTooLarge",
             [](DevicePlan* d) {
               d->lent_pools[0].own = {{0, ~(kOwn - 1)}};
             },
             "expected own bytes"},
        Case{"OwnOverlaps",
             [](DevicePlan* d) {
               d->lent_pools[1].bytes = 4 * kOwn;
               d->lent_pools[1].own = {{0, 2 * kOwn}, {kOwn, kOwn}};
             },
             "that begin in [4194304, 8388608], found offset 2097152 and capacity 2097152"},
        Case{"OwnApart",
             [](DevicePlan* d) {
               d->lent_pools[0].own = {{kOwn, kOwn}};
             },
             "found offset 2097152 and"},
        Case{"LentSlotBeyondOwn",
             [](DevicePlan* d) {
               d->lent_pools[1].own = {{0, kOwn}};
               d->lent_slots[0] = {2048 + kOwn - 512, 1024};
             },
             "reach beyond the lent pools' 2099200 bytes"},
        Case{"EntryLentSlot", [](DevicePlan* d) { d->cycle[0].entries[1].lent_slot = 1; }, "lent slot 1 of 1"},
        Case{"EntryTooBigToBeLent",
             [](DevicePlan* d) {
               d->cycle[0].entries[1].lent_slot = 0;
               d->lent_slots[0].capacity = 512;
             },
             "bytes 1024 in lent slot 0 of capacity 512"},
        Case{"EntryTwoPlaces", [](DevicePlan* d) { d->cycle[0].entries[0].lent_slot = 0; },
             "cycle script 0, entry 0: expected a slot or a lent slot, found both, 0 and 0"},
        Case{"KeptLent",
             [](DevicePlan* d) {
               d->kept.entries = {d->cycle[0].entries[1]};
               d->kept.entries[0].lent_slot = 0;
             },
             "kept, entry 0: expected no lent slot, for its block stays, found 0"},
        Case{"EdgeSlot", [](DevicePlan* d) { d->stream_edges[0].to_slot = 2; }, "stream edge 0: slot 2 of 2"},
        Case{"EdgeStream", [](DevicePlan* d) { d->stream_edges[0].to_stream = 5; }, "stream ordinal 5 is not listed"}),
    [](const testing::TestParamInfo<Case>& each) { return each.param.name; });

TEST(PlanShapeWholeTest, PlanWithoutDevicesOrWithADeviceTwiceIsRefused) {
  EXPECT_THAT(CheckPlanShape(Plan{}).error(), HasSubstr("at least one device"));
  Plan plan = SmallPlan();
  plan.devices.push_back(plan.devices[0]);
  EXPECT_THAT(CheckPlanShape(plan).error(), HasSubstr("device 0 is listed twice"));
}

TEST(PlanShapeWholeTest, PlanThatListsNoStreamsKnowsTheDefaultOne) {
  Plan plan = SmallPlan();
  plan.devices[0].streams.clear();
  plan.devices[0].stream_edges.clear();
  EXPECT_TRUE(CheckPlanShape(plan).ok());
}

TEST(PlanShapeWholeTest, ALentSlotMayLieInOwnBytes) {
  Plan plan = SmallPlan();
  DevicePlan& device = plan.devices[0];
  device.lent_pools[0].bytes = 2 * kOwn;
  device.lent_pools[0].own = {{0, kOwn}, {2 * kOwn, kOwn}};
  EXPECT_EQ(device.lent_pools[0].extent(), 3 * kOwn);
  EXPECT_EQ(device.lent_pools[0].own_bytes(), 2 * kOwn);
  device.lent_slots[0] = {kOwn, 2 * kOwn + 1024};
  EXPECT_TRUE(CheckPlanShape(plan).ok()) << CheckPlanShape(plan).error();
  device.lent_slots[0].capacity += 512;
  EXPECT_FALSE(CheckPlanShape(plan).ok());
}

TEST(PlanShapeWholeTest, RandomPlansPass) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Status status = CheckPlanShape(RandomFormats(seed).MakePlan());
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status.error();
  }
}

}  // namespace
}  // namespace stalloc
