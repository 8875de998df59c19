// What sleeps by its region, what is dropped, and what the watch sees of it.
#include "allocator/driver/host_watch_memory.h"
#include "tests/runtime/device_sleep_fixture.h"

namespace stalloc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(DeviceSleepTest, OnlyTheNamedSleepAndTheOthersAreServed) {
  StartTraining();
  first_ = FilledIn("weights", 3 * kMiB, 1);
  second_ = Filled(5 * kMiB, 2);
  runtime_->OnMark(IterationMark(iteration_++));
  const SleepFigures slept = Sleep({.tags = Names({"weights"}), .keep = {}});
  EXPECT_EQ(slept.blocks, 1u);
  EXPECT_EQ(slept.asleep, 3 * kMiB);
  EXPECT_EQ(slept.copied, 3 * kMiB) << "it lies in chunks of its own";
  EXPECT_TRUE(HasPattern(second_, 5 * kMiB, 2));
  Train();
  Train();
  EXPECT_TRUE(HasPattern(second_, 5 * kMiB, 2));
  Wake(Names({"weights"}));
  ExpectWeights();
  Train();
}

// Orders of other processes ask in this way what sleeps.
TEST_F(DeviceSleepTest, ASleepOfNoneChangesNothing) {
  StartTraining();
  first_ = FilledIn("weights", 3 * kMiB, 1);
  const unsigned before = SleepTags::Enter(126);  // another thread's, of a region that began this moment
  second_ = Filled(5 * kMiB, 2);
  SleepTags::Enter(before);
  runtime_->OnMark(IterationMark(iteration_++));
  const SleepOrder none = {.tags = Names({}), .keep = Names({})};
  SleepFigures figures = Sleep(none);
  EXPECT_EQ(figures.blocks, 0u);
  EXPECT_EQ(figures.asleep, 0u);
  EXPECT_EQ(figures.given_back, 0u);
  EXPECT_TRUE(HasPattern(second_, 5 * kMiB, 2));
  Sleep();
  figures = Sleep(none);
  EXPECT_EQ(figures.asleep, 8 * kMiB);
  EXPECT_THROW(runtime_->Allocate(4 * kMiB, 0, Origin::kProgram), AsleepError) << "everything sleeps on";
  EXPECT_EQ(Wake().blocks, 2u);
  ExpectWeights();
  Train();
}

TEST_F(DeviceSleepTest, WakesByNameOneAfterTheOther) {
  StartTraining();
  {
    const Region region("weights");
    first_ = Filled(3 * kMiB, 1);
    const Region inner("state");
    second_ = Filled(5 * kMiB, 2);
  }
  runtime_->OnMark(IterationMark(iteration_++));
  Sleep();
  EXPECT_EQ(Wake(Names({"state"})).blocks, 1u);
  EXPECT_TRUE(HasPattern(second_, 5 * kMiB, 2));
  Train();  // a wake of some serves again
  EXPECT_EQ(Sleep({.tags = Names({"state"}), .keep = {}}).copied, 5 * kMiB);
  EXPECT_EQ(Wake().blocks, 2u);
  ExpectWeights();
  Train();
}

// While a block sleeps its neighbours in a chunk do not.
TEST_F(DeviceSleepTest, ChunksOfOthersStay) {
  const DevicePlan plan =
      PlanBuilder().Persistent(kPage / 2).Persistent(3 * kPage).Persistent(kPage / 2).Each(kMiB).Build();
  Start(&plan);
  void* const before = Filled(kPage / 2, 1);
  void* const middle = FilledIn("middle", 3 * kPage, 2);
  void* const behind = Filled(kPage / 2, 3);
  const SleepFigures slept = Sleep({.tags = Names({"middle"}), .keep = {}});
  EXPECT_EQ(slept.kept, 3 * kPage);
  EXPECT_EQ(slept.copied, 2 * kPage) << "the rest lies in its neighbours' chunks";
  EXPECT_EQ(slept.given_back, 2 * kPage);
  EXPECT_TRUE(HasPattern(before, kPage / 2, 1));
  EXPECT_TRUE(HasPattern(behind, kPage / 2, 3));
  Wake();
  EXPECT_TRUE(HasPattern(middle, 3 * kPage, 2));
}

// The place of a block that ended in its sleep is another's by the time the rest wakes.
TEST_F(DeviceSleepTest, AWakeWritesNothingOverBlocksThatCameMeanwhile) {
  Start(nullptr);
  void* ended = nullptr;
  {
    const Region region("cache");
    ended = Filled(4 * kMiB, 1);
    first_ = Filled(3 * kMiB, 1);
  }
  second_ = Filled(5 * kMiB, 2);
  Sleep({.tags = Names({"cache"}), .keep = {}});
  runtime_->Free(ended);
  void* const next = Filled(4 * kMiB, 9);
  EXPECT_EQ(next, ended) << "the tightest room";
  Wake();
  EXPECT_TRUE(HasPattern(next, 4 * kMiB, 9));
  ExpectWeights();
  // And asleep itself, it is kept as its own.
  Sleep();
  Wake();
  EXPECT_TRUE(HasPattern(next, 4 * kMiB, 9));
  ExpectWeights();
}

TEST_F(DeviceSleepTest, WhatNeedNotBeKeptIsDropped) {
  StartTraining();
  first_ = Filled(3 * kMiB, 1);
  {
    const Region region("kv_cache", /*kept=*/false);
    second_ = Filled(5 * kMiB, 2);
  }
  SleepFigures slept = Sleep();
  EXPECT_EQ(slept.copied, 3 * kMiB);
  EXPECT_EQ(slept.dropped, 5 * kMiB);
  EXPECT_EQ(Resident(), 0u);
  EXPECT_EQ(Wake().dropped, 5 * kMiB);
  EXPECT_TRUE(HasPattern(first_, 3 * kMiB, 1));
  FillPattern(second_, 5 * kMiB, 2);
  slept = Sleep({.tags = {}, .keep = Names({"kv_cache"})});
  EXPECT_EQ(slept.copied, 5 * kMiB) << "what is named is kept, and nothing else";
  EXPECT_EQ(slept.dropped, 3 * kMiB);
  Wake();
  EXPECT_TRUE(HasPattern(second_, 5 * kMiB, 2));
  EXPECT_EQ(Sleep({.tags = {}, .keep = Names({})}).copied, 0u);
  Wake();
}

TEST_F(DeviceSleepTest, ANameThatNoRegionHasIsAnError) {
  StartWithWeights();
  (void)SleepTags::Number("weights", true);
  EXPECT_THAT(SleepError({.tags = Names({"weigths"}), .keep = {}}),
              AllOf(HasSubstr("no region has the tag 'weigths'"), HasSubstr("weights")));
  EXPECT_THAT(SleepError({.tags = {}, .keep = Names({"nothing at all"})}), HasSubstr("'nothing at all'"));
  ExpectWeights();
  EXPECT_EQ(Sleep({.tags = Names({""}), .keep = {}}).blocks, 2u) << "no region's";
  Wake();
}

TEST_F(DeviceSleepTest, DroppedBytesAreThePatternUnderTheWatch) {
  HostWatchMemory memory;
  StartTraining(kGiB, &memory);
  first_ = Filled(3 * kMiB - 100, 1);
  {
    const Region region("gradients", /*kept=*/false);
    second_ = Filled(5 * kMiB - 100, 2);
  }
  Sleep();
  Wake();
  EXPECT_TRUE(HasPattern(first_, 3 * kMiB - 100, 1));
  EXPECT_TRUE(HasPattern(second_, 5 * kMiB - 100, 0xff)) << "NaN until it is written";
  runtime_->Free(first_);
  runtime_->Free(second_);
  EXPECT_EQ(runtime_->Stats().watch.findings, 0u) << "tails came back with their blocks";
}

TEST_F(DeviceSleepTest, AWatchedBlockMayEndInItsSleep) {
  HostWatchMemory memory;
  StartWithWeights(kGiB, &memory);
  Sleep();
  runtime_->Free(first_);
  Wake();
  EXPECT_TRUE(HasPattern(second_, 5 * kMiB, 2));
  runtime_->Free(second_);
  EXPECT_EQ(runtime_->Stats().watch.findings, 0u);
}

}  // namespace
}  // namespace stalloc
