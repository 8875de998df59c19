// What sleeps comes back to its addresses; requests, frees and forks meanwhile.
#include <sys/wait.h>
#include <unistd.h>

#include "tests/runtime/device_sleep_fixture.h"

namespace stalloc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(DeviceSleepTest, EverythingGoesAndComesBackToItsAddresses) {
  StartWithWeights();
  Train();
  const std::vector<Arena::Range> chunks = runtime_->arena()->Chunks();
  const auto sizes = [](const std::vector<Arena::Range>& ranges) {
    std::vector<std::pair<Offset, Bytes>> all;
    for (const Arena::Range& range : ranges) all.emplace_back(range.offset, range.bytes);
    return all;
  };
  upstream_.Cache(7 * kMiB);
  const Bytes mapped = runtime_->arena()->mapped_bytes();
  for (int cycle = 0; cycle < 3; ++cycle) {
    const SleepFigures slept = Sleep();
    EXPECT_EQ(slept.blocks, 2u);
    EXPECT_EQ(slept.kept, 8 * kMiB);
    EXPECT_EQ(slept.copied, 8 * kMiB);
    EXPECT_EQ(slept.copies, 8u) << "of a mebibyte, 16 of this device's pages";
    EXPECT_EQ(slept.dropped, 0u);
    EXPECT_EQ(slept.given_back, mapped) << "idle memory as well";
    EXPECT_EQ(slept.asleep, 8 * kMiB);
    EXPECT_EQ(slept.arena, 0u);
    EXPECT_EQ(slept.upstream_reserved, 0u) << "what it cached went back";
    EXPECT_EQ(slept.host_pool, 8 * kMiB);
    EXPECT_EQ(Resident(), 0u);
    const SleepFigures woken = Wake();
    EXPECT_EQ(woken.copied, 8 * kMiB);
    EXPECT_EQ(woken.asleep, 0u);
    EXPECT_EQ(woken.arena, mapped);
    EXPECT_EQ(sizes(runtime_->arena()->Chunks()), sizes(chunks));
    ExpectWeights();
    Train();
    ExpectWeights();
  }
  EXPECT_EQ(copies_.times_taken(), 1) << "one pool for all sleeps";
  EXPECT_EQ(runtime_->ReleaseHostPool(), 8 * kMiB);
  EXPECT_EQ(copies_.held(), 0u);
  EXPECT_EQ(runtime_->Stats().engine.misses[static_cast<std::size_t>(MissReason::kUnbacked)], 0u);
  EXPECT_EQ(runtime_->Stats().upstream, 0u) << "all iterations were served as planned";
  ExpectSound();
}

TEST_F(DeviceSleepTest, ARunWithoutAPlanYetSleepsAsWell) {
  Start(nullptr);
  first_ = Filled(3 * kMiB, 1);
  second_ = Filled(5 * kMiB, 2);
  EXPECT_EQ(Sleep().copied, 8 * kMiB);
  EXPECT_EQ(Resident(), 0u);
  Wake();
  ExpectWeights();
  runtime_->OnMark(IterationMark(0));
  void* const transient = runtime_->Allocate(kMiB, 0, Origin::kProgram);
  EXPECT_FALSE(runtime_->Owns(transient)) << "of the loop: upstream's";
  const Region region("cache");
  EXPECT_TRUE(runtime_->Owns(runtime_->Allocate(kMiB, 0, Origin::kProgram))) << "what is to sleep is the arena's";
  runtime_->Free(transient);
}

// Their kernels read these blocks, too.
TEST_F(DeviceSleepTest, OtherDevicesAreWaitedForBeforeMemoryGoes) {
  StartWithWeights();
  const Bytes mapped = runtime_->arena()->mapped_bytes();
  driver_->SetOthersRun(true);
  EXPECT_THAT(SleepError(), HasSubstr("the device cannot be waited for"));
  EXPECT_EQ(runtime_->arena()->mapped_bytes(), mapped);
  ExpectWeights();
  driver_->SetOthersRun(false);
  EXPECT_EQ(Sleep().arena, 0u);
  EXPECT_EQ(driver_->others_waited(), 2);
  Wake();
  ExpectWeights();
  ExpectSound();
}

TEST_F(DeviceSleepTest, SleepingTwiceAndWakingTwiceIsNothing) {
  StartWithWeights();
  EXPECT_EQ(Wake().blocks, 0u);
  Sleep();
  const SleepFigures again = Sleep();
  EXPECT_EQ(again.blocks, 0u);
  EXPECT_EQ(again.asleep, 8 * kMiB);
  Wake();
  EXPECT_EQ(Wake().blocks, 0u);
  ExpectWeights();
}

TEST_F(DeviceSleepTest, RequestsWhileEverythingSleepsAreErrorsOrUpstreams) {
  StartWithWeights();
  Sleep();
  try {
    runtime_->Allocate(4 * kMiB, 0, Origin::kProgram);
    ADD_FAILURE() << "there is no memory";
  } catch (const AsleepError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("the CPU is asleep"), HasSubstr("4.00 MiB"), HasSubstr("stalloc.wake()")));
  }
  void* const small = runtime_->Allocate(1000, 0, Origin::kProgram);
  void* const captured = runtime_->Allocate(4 * kMiB, 0, Origin::kCaptured);
  EXPECT_FALSE(runtime_->Owns(small));
  EXPECT_FALSE(runtime_->Owns(captured));
  runtime_->Free(small);
  runtime_->Free(captured);
  EXPECT_EQ(Resident(), 0u);
  Wake();
  ExpectWeights();
  Train();
}

TEST_F(DeviceSleepTest, WhatIsAskedForOutsideIsUpstreams) {
  StartWithWeights();
  const unsigned before = SleepTags::Enter(SleepTags::kOutside);
  void* const outside = runtime_->Allocate(4 * kMiB, 0, Origin::kProgram);
  EXPECT_FALSE(runtime_->Owns(outside));
  Sleep();
  void* const asleep = runtime_->Allocate(2 * kMiB, 0, Origin::kProgram);
  FillPattern(outside, 4 * kMiB, 1);
  Wake();
  SleepTags::Enter(before);
  runtime_->Free(outside);
  runtime_->Free(asleep);
  Train();
  ExpectWeights();
}

TEST_F(DeviceSleepTest, BytesThatSleepCanBeReadAtTheHost) {
  StartWithWeights();
  std::vector<char> bytes(kMiB);
  const auto read = [&](const void* from) { return runtime_->ReadAsleep(from, bytes.size(), bytes.data()); };
  EXPECT_THAT(read(first_).error(), HasSubstr("no block sleeps there"));
  Sleep();
  EXPECT_TRUE(read(static_cast<char*>(first_) + 1000).ok());
  EXPECT_TRUE(HasPattern(bytes.data(), bytes.size(), 1));
  EXPECT_TRUE(read(second_).ok());
  EXPECT_TRUE(HasPattern(bytes.data(), bytes.size(), 2));
  EXPECT_THAT(read(static_cast<char*>(first_) + 3 * kMiB - 100).error(), HasSubstr("shorter"));
  Wake();
  Sleep({.tags = {}, .keep = Names({})});
  EXPECT_THAT(read(first_).error(), HasSubstr("not all of its bytes"));
  Wake();
}

TEST_F(DeviceSleepTest, WhatIsFreedInItsSleepIsGone) {
  StartWithWeights();
  Sleep();
  runtime_->Free(second_);
  const SleepFigures woken = Wake();
  EXPECT_EQ(woken.blocks, 1u);
  EXPECT_EQ(woken.copied, 3 * kMiB);
  EXPECT_TRUE(HasPattern(first_, 3 * kMiB, 1));
  EXPECT_EQ(runtime_->ReleaseHostPool(), 8 * kMiB) << "nobody's bytes are kept";
  EXPECT_EQ(runtime_->Stats().unknown_frees, 0u);
  ExpectSound();
}

TEST_F(DeviceSleepTest, AForkOfASleeperLeavesItAlone) {
  StartWithWeights();
  Sleep();
  const pid_t child = fork();
  if (child == 0) {
    runtime_->BecomeInert();
    const Result<SleepFigures> woken = runtime_->Wake(std::nullopt);
    runtime_->Free(first_);
    _exit(!woken.ok() && woken.error().find("forked") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  Wake();
  ExpectWeights();
}

TEST_F(DeviceSleepTest, AForkOfAWokenOneHasItsOwnCopy) {
  StartWithWeights();
  Sleep();
  Wake();
  const pid_t child = fork();
  if (child == 0) {
    const bool reads = HasPattern(first_, 3 * kMiB, 1) && HasPattern(second_, 5 * kMiB, 2);
    FillPattern(first_, 3 * kMiB, 9);
    _exit(reads ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  ExpectWeights();
}

}  // namespace
}  // namespace stalloc
