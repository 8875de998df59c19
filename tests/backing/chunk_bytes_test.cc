#include "allocator/backing/chunk_bytes.h"

#include <gtest/gtest.h>

#include "allocator/driver/host_driver.h"
#include "tests/runtime/plan_builder.h"

namespace stalloc {
namespace {

DevicePlan PlanOfHeight(Bytes height, EntryClass entry_class) {
  DevicePlan plan;
  plan.arena_bytes = height;
  plan.cycle.emplace_back();
  plan.cycle[0].entries.emplace_back();
  plan.cycle[0].entries[0].entry_class = entry_class;
  return plan;
}

TEST(ChunkBytesOfTest, AnEightThousandthOfTheArenaAndWhereSizesVaryNoLessThanFourMiB) {
  const auto bytes = [](Bytes height, EntryClass entry_class) {
    return ChunkBytesOf(PlanOfHeight(height, entry_class));
  };
  EXPECT_EQ(bytes(26 * kGiB, EntryClass::kStatic), 2 * kMiB);
  EXPECT_EQ(bytes(12 * kGiB, EntryClass::kStatic), 1 * kMiB);
  EXPECT_EQ(bytes(12 * kGiB, EntryClass::kDynamic), 4 * kMiB);
  EXPECT_EQ(bytes(140 * kGiB, EntryClass::kOptional), 16 * kMiB);
  EXPECT_EQ(bytes(3 * kGiB, EntryClass::kDynamic), 2 * kMiB) << "a 1024th at most";
}

TEST(ChunkBytesOfTest, WhereTheDeviceHasHalfAsMuchLeftAFiveHundredthUpTo32MiB) {
  const auto bytes = [](Bytes height, Bytes left) {
    return ChunkBytesOf(PlanOfHeight(height, EntryClass::kDynamic), left);
  };
  EXPECT_EQ(bytes(8 * kGiB, 4 * kGiB), 16 * kMiB);
  EXPECT_EQ(bytes(8 * kGiB, 4 * kGiB - 1), 4 * kMiB);
  EXPECT_EQ(bytes(70 * kGiB, 40 * kGiB), 32 * kMiB);
  EXPECT_EQ(bytes(600 * kGiB, 400 * kGiB), 64 * kMiB) << "an 8192nd is more";
}

// Weights in the lower half; in the upper one what comes and goes.
class MapPlanTest : public testing::Test {
 protected:
  static constexpr Bytes kHeight = 32 * kMiB;
  static constexpr Bytes kSmall = 4 * kKiB;
  static constexpr Bytes kResting = 32 * kKiB;

  DriverStatus MapOn(Bytes capacity) {
    driver_ = HostDriver::Create({.capacity = capacity, .granularity = kSmall});
    const DevicePlan plan = PlanBuilder().Persistent(kHeight / 2).Each(kHeight / 4).Each(kHeight / 4).Build();
    DriverStatus status;
    arena_ = Arena::Create(*driver_, kHeight, &status, ChunkBytesOf(plan));
    return MapPlan(*arena_, plan);
  }

  std::unique_ptr<HostDriver> driver_;
  std::unique_ptr<Arena> arena_;
};

TEST_F(MapPlanTest, WhatStaysLiesInLargeChunksAndWhatComesAndGoesInSmallOnes) {
  ASSERT_TRUE(MapOn(kHeight).ok());
  EXPECT_EQ(arena_->mapped_bytes(), kHeight);
  for (const Arena::Range& chunk : arena_->Chunks()) {
    ASSERT_EQ(chunk.bytes, chunk.offset < kHeight / 2 ? kResting : kSmall) << chunk.offset;
  }
}

// Nothing of the cycle lies between two blocks that stay: its memory can go elsewhere.
TEST_F(MapPlanTest, GapsOfWhatStaysLieInSmallChunks) {
  driver_ = HostDriver::Create({.capacity = kHeight, .granularity = kSmall});
  PlanBuilder builder;
  builder.Persistent(kHeight / 4).Init(kResting).Persistent(kHeight / 4).Each(kHeight / 2 - kResting);
  const DevicePlan plan = builder.Build();
  DriverStatus status;
  arena_ = Arena::Create(*driver_, kHeight, &status, ChunkBytesOf(plan));
  ASSERT_TRUE(MapPlan(*arena_, plan).ok());
  for (const Arena::Range& chunk : arena_->Chunks()) {
    const bool is_gap = chunk.offset >= kHeight / 4 && chunk.offset < kHeight / 4 + kResting;
    const bool rests = chunk.offset < kHeight / 2 + kResting && !is_gap;
    ASSERT_EQ(chunk.bytes, rests ? kResting : kSmall) << chunk.offset;
  }
}

TEST_F(MapPlanTest, OnADeviceThatIsTooSmallAPartIsMapped) {
  EXPECT_EQ(MapOn(kHeight - kSmall).code, DriverCode::kOutOfMemory);
  EXPECT_EQ(arena_->mapped_bytes(), kHeight / 2) << "what stays; a step that fails is undone";
  EXPECT_EQ(driver_->GetCounts().handle_bytes, kHeight / 2);
}

}  // namespace
}  // namespace stalloc
