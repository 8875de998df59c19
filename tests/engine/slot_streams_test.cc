#include "allocator/engine/order/slot_streams.h"

#include <gtest/gtest.h>

#include <vector>

#include "allocator/engine/bytes/occupancy.h"

namespace stalloc {
namespace slot_streams_test {

DevicePlan PlanOf(const std::vector<Slot>& slots, const std::vector<std::uint32_t>& streams) {
  DevicePlan plan;
  plan.slots = slots;
  plan.cycle.emplace_back();
  for (std::uint32_t i = 0; i < slots.size(); ++i) {
    Entry entry;
    entry.slot = i;
    entry.stream = streams[i];
    plan.cycle[0].entries.push_back(entry);
  }
  return plan;
}

std::vector<std::uint16_t> FlagsOf(const DevicePlan& plan) { return FlagsOfSlots(plan, PlanStreams(plan)); }

TEST(SlotStreamsTest, OfSeveralStreamsNoSlotIsPrivate) {
  DevicePlan plan = PlanOf({{0, 2048}, {4096, 2048}, {1536, 2560}}, {0, 0, 1});
  plan.stream_edges.push_back({0, 2, 0, 1});
  EXPECT_EQ(FlagsOf(plan), (std::vector<std::uint16_t>{LiveRecord::kHandedOver, 0, 0}));
  EXPECT_EQ(PlanStreams(plan).size(), 2u);
}

TEST(SlotStreamsTest, ASlotOfTwoStreamsIsNotPrivate) {
  DevicePlan plan = PlanOf({{0, 512}}, {0});
  EXPECT_EQ(FlagsOf(plan), (std::vector<std::uint16_t>{LiveRecord::kPrivate}));
  Script warmup;
  warmup.entries.resize(2);
  warmup.entries[0].slot = 0;
  warmup.entries[0].stream = 3;
  plan.prologue.push_back(warmup);
  EXPECT_EQ(FlagsOf(plan), (std::vector<std::uint16_t>{0}));
  EXPECT_EQ(PlanStreams(plan).size(), 2u);
}

// As a second device's plan has them, or a broken file.
TEST(SlotStreamsTest, StreamsAreNumberedWhateverTheirOrdinals) {
  const PlanStreams streams(PlanOf({{0, 512}, {512, 512}, {1024, 512}}, {0xfffffffe, 7, 0xfffffffe}));
  EXPECT_EQ(streams.size(), 2u);
  EXPECT_EQ(streams.NumberOf(7), 0u);
  EXPECT_EQ(streams.NumberOf(0xfffffffe), 1u);
  for (const std::uint32_t other : {0u, 8u, 0xffffffffu}) EXPECT_EQ(streams.NumberOf(other), kNoStream) << other;
  const DevicePlan of_one = PlanOf({{0, 512}}, {3});
  EXPECT_EQ(FlagsOf(of_one), (std::vector<std::uint16_t>{LiveRecord::kPrivate})) << "it is the plan's only stream";
}

}  // namespace slot_streams_test
}  // namespace stalloc
