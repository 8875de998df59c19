// What is refused, and what fails: nothing is lost.
#include "tests/runtime/device_sleep_fixture.h"

namespace stalloc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(DeviceSleepTest, ACaptureIsNotBroken) {
  StartWithWeights();
  driver_->SetCapturing(true);
  EXPECT_THAT(SleepError(), AllOf(HasSubstr("does not sleep"), HasSubstr("captured")));
  driver_->SetCapturing(false);
  ExpectWeights();
  Train();
  Sleep();
  Wake();
  ExpectWeights();
}

TEST_F(DeviceSleepTest, BlocksOfOtherProcessesAreNamed) {
  StartTraining();
  first_ = FilledIn("shared", 3 * kMiB, 1);
  second_ = Filled(5 * kMiB, 2);
  ASSERT_TRUE(runtime_->Export(first_).ok());
  char address[32];
  std::snprintf(address, sizeof(address), "%p", first_);
  EXPECT_THAT(SleepError(), AllOf(HasSubstr("CUDA IPC"), HasSubstr(address), HasSubstr("3145728 bytes")));
  ExpectWeights();
  EXPECT_EQ(Sleep({.tags = Names({""}), .keep = {}}).blocks, 1u) << "the others may";
  EXPECT_FALSE(runtime_->Export(second_).ok()) << "asleep";
  Wake();
  ExpectWeights();
  runtime_->Free(first_);
  Sleep();
  Wake();
  EXPECT_TRUE(HasPattern(second_, 5 * kMiB, 2));
}

TEST_F(DeviceSleepTest, WithoutAnArenaItSaysSo) {
  runtime_ = std::make_unique<DeviceRuntime>(
      DeviceRuntime::Parts{.device = kCpuDevice, .upstream = &upstream_, .copies = &copies_});
  EXPECT_THAT(SleepError(), HasSubstr("there is no arena"));
  EXPECT_THAT(WakeError(), HasSubstr("there is no arena"));
}

TEST_F(DeviceSleepTest, NoPlanIsTakenUpMeanwhile) {
  Start(nullptr);
  first_ = Filled(3 * kMiB, 1);
  Sleep();
  const DevicePlan plan = PlanBuilder().Each(kMiB).Build();
  EXPECT_EQ(runtime_->TakePlan(plan, 0), "this device is asleep");
  Wake();
  EXPECT_EQ(runtime_->TakePlan(plan, 0), "");
  runtime_->OnMark(IterationMark(0));
  void* const block = Filled(kMiB, 2);
  EXPECT_EQ(Sleep().blocks, 2u) << "of both arenas";
  EXPECT_EQ(Resident(), 0u);
  Wake();
  EXPECT_TRUE(HasPattern(first_, 3 * kMiB, 1));
  EXPECT_TRUE(HasPattern(block, kMiB, 2));
}

TEST_F(DeviceSleepTest, TooLittleMemoryOfTheHostLeavesItAwake) {
  StartWithWeights();
  copies_.SetHostLimit(4 * kMiB);
  EXPECT_THAT(SleepError(), AllOf(HasSubstr("8 MiB of page-locked memory"), HasSubstr("does not sleep")));
  EXPECT_EQ(copies_.held(), 0u);
  ExpectWeights();
  Train();
  copies_.SetHostLimit(kGiB);
  EXPECT_TRUE(runtime_->ReserveHostPool(8 * kMiB).ok());
  EXPECT_EQ(copies_.times_taken(), 1);
  Sleep();
  EXPECT_EQ(copies_.times_taken(), 1) << "it was there";
  Wake();
  ExpectWeights();
}

TEST_F(DeviceSleepTest, ADeviceThatIsFullAtTheWakeIsTriedAgain) {
  StartWithWeights(32 * kMiB);
  Sleep();
  const PhysicalHandle others = TakeAllBut(6 * kMiB);
  for (int tries = 0; tries < 2; ++tries) {
    EXPECT_THAT(WakeError(), AllOf(HasSubstr("it needs 8.00 MiB"), HasSubstr("has 6.00 MiB free"), HasSubstr("again")));
    EXPECT_THROW(runtime_->Allocate(4 * kMiB, 0, Origin::kProgram), AsleepError);
  }
  ASSERT_TRUE(host_->Release(others).ok());
  Wake();
  ExpectWeights();
  Train();
}

// Room for what lives, but not for all that was mapped: the rest comes when it is needed.
TEST_F(DeviceSleepTest, WhatIsIdleNeedNotComeBackAtOnce) {
  StartWithWeights(32 * kMiB);
  const Bytes mapped = runtime_->arena()->mapped_bytes();
  Sleep();
  const PhysicalHandle others = TakeAllBut(9 * kMiB);
  EXPECT_LT(Wake().arena, mapped);
  ExpectWeights();
  ASSERT_TRUE(host_->Release(others).ok());
  Train();
  ExpectWeights();
}

// Each call of driver and copies fails once: nothing is lost, and the next try works.
TEST_F(DeviceSleepTest, WhicheverCallFailsNothingIsLost) {
  int failed_sleeps = 0;
  int failed_wakes = 0;
  for (int call = 0; call < 400; ++call) {
    StartWithWeights();
    const bool of_copies = call % 2 == 0;
    const auto fail = [&](DriverCode code) {
      if (of_copies) return copies_.FailCall(call / 2);
      faulty_->FailCall(static_cast<std::uint64_t>(call / 2), code);
    };
    const auto fired = [&] { return of_copies ? copies_.fired() : faulty_->fired(); };
    const auto heal = [&] {
      copies_.FailCall(FaultyCopies::kNever);
      faulty_->FailNothing();
    };
    fail(DriverCode::kFailed);
    bool slept = runtime_->Sleep({}).ok();
    const bool sleep_fired = fired();
    heal();
    if (!slept) {
      ++failed_sleeps;
      ExpectWeights();
      Train();
      Sleep();
    }
    fail(DriverCode::kOutOfMemory);
    const bool woke = runtime_->Wake(std::nullopt).ok();
    const bool wake_fired = fired();
    heal();
    if (!woke) {
      ++failed_wakes;
      EXPECT_THROW(runtime_->Allocate(4 * kMiB, 0, Origin::kProgram), AsleepError);
      Wake();
    }
    ExpectWeights();
    Train();
    ExpectWeights();
    ExpectSound();
    if (testing::Test::HasFailure()) FAIL() << "call " << call;
    if (!sleep_fired && !wake_fired && call > 20) break;
  }
  EXPECT_GT(failed_sleeps, 3);
  EXPECT_GT(failed_wakes, 1);
}

}  // namespace
}  // namespace stalloc
