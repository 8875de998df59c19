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

TEST(SlotStreamsTest, OfSeveralStreamsNoSlotIsPrivate) {
  DevicePlan plan = PlanOf({{0, 2048}, {4096, 2048}, {1536, 2560}}, {0, 0, 1});
  plan.stream_edges.push_back({0, 2, 0, 1});
  EXPECT_EQ(FlagsOfSlots(plan), (std::vector<std::uint16_t>{LiveRecord::kHandedOver, 0, 0}));
  EXPECT_EQ(CountStreams(plan), 2u);
}

TEST(SlotStreamsTest, ASlotOfTwoStreamsIsNotPrivate) {
  DevicePlan plan = PlanOf({{0, 512}}, {0});
  EXPECT_EQ(FlagsOfSlots(plan), (std::vector<std::uint16_t>{LiveRecord::kPrivate}));
  Script warmup;
  warmup.entries.resize(2);
  warmup.entries[0].slot = 0;
  warmup.entries[0].stream = 3;
  plan.prologue.push_back(warmup);
  EXPECT_EQ(FlagsOfSlots(plan), (std::vector<std::uint16_t>{0}));
  EXPECT_EQ(CountStreams(plan), 4u);
}

}  // namespace slot_streams_test
}  // namespace stalloc
