#include "allocator/engine/order/slot_streams.h"

#include <gtest/gtest.h>

#include <random>
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

TEST(SlotStreamsTest, WhatAnotherStreamsSlotTouchesIsNotPrivate) {
  // Stream 0: [0, 4) and [8, 12); stream 1: [3, 8).
  DevicePlan plan = PlanOf({{0, 2048}, {4096, 2048}, {1536, 2560}}, {0, 0, 1});
  plan.stream_edges.push_back({0, 2, 0, 1});
  EXPECT_EQ(FlagsOfSlots(plan), (std::vector<std::uint16_t>{LiveRecord::kHandedOver, LiveRecord::kPrivate, 0}));
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

TEST(SlotStreamsTest, AgreesWithEveryPairOfSlots) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<Slot> slots;
    std::vector<std::uint32_t> streams;
    for (std::size_t i = 0, count = random() % 12 + 1; i < count; ++i) {
      slots.push_back({512 * (random() % 40), 512 * (random() % 6 + 1)});
      streams.push_back(static_cast<std::uint32_t>(random() % 3));
    }
    const DevicePlan plan = PlanOf(slots, streams);
    const std::vector<std::uint16_t> flags = FlagsOfSlots(plan);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      bool alone = streams[i] == MainStream(plan);
      for (std::size_t j = 0; j < slots.size(); ++j) {
        const bool meet = slots[i].offset < slots[j].offset + slots[j].capacity &&
                          slots[j].offset < slots[i].offset + slots[i].capacity;
        alone = alone && (streams[i] == streams[j] || !meet);
      }
      EXPECT_EQ(flags[i], alone ? LiveRecord::kPrivate : 0) << "round " << round << " slot " << i;
    }
  }
}

}  // namespace slot_streams_test
}  // namespace stalloc
