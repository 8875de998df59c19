// Sleep and wake of a device over real bytes of the host: what comes back, what goes to the device, what fails.
#include "allocator/runtime/device_sleep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

#include "allocator/driver/host_watch_memory.h"
#include "allocator/runtime/planned_space.h"
#include "allocator/runtime/sleep_tags.h"
#include "tests/driver/faulty_driver.h"
#include "tests/runtime/alloc_fixture.h"
#include "tests/runtime/pattern.h"
#include "tests/sleep/faulty_copies.h"

namespace stalloc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What a thread allocates as long as it lives has the tag.
class Region {
 public:
  explicit Region(const char* name, bool kept = true) : before_(SleepTags::Enter(*SleepTags::Number(name, kept))) {}
  ~Region() { SleepTags::Enter(before_); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

 private:
  unsigned before_;
};

// Does something of the test's whenever the device is waited for, which cannot be while a capture runs.
class HookedDriver final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  DriverStatus Synchronize() noexcept override {
    if (capturing_) return {DriverCode::kFailed, 900, "Synchronize"};
    if (hook_) hook_();
    return ForwardingDriver::Synchronize();
  }
  void SetCapturing(bool capturing) { capturing_ = capturing; }
  void SetHook(std::function<void()> hook) { hook_ = std::move(hook); }

 private:
  bool capturing_ = false;
  std::function<void()> hook_;
};

TagNames Names(std::vector<std::string> names) { return names; }

class DeviceSleepTest : public testing::Test {
 protected:
  // With a plan, or before there is one.
  void Start(const DevicePlan* plan, Bytes capacity = kGiB, WatchMemory* watch = nullptr) {
    runtime_ = nullptr;
    host_ = HostDriver::Create({.capacity = capacity, .granularity = kPage});
    faulty_ = std::make_unique<FaultyDriver>(*host_);
    driver_ = std::make_unique<HookedDriver>(*faulty_);
    runtime_ = std::make_unique<DeviceRuntime>(DeviceRuntime::Parts{.device = kCpuDevice,
                                                                    .upstream = &upstream_,
                                                                    .driver = driver_.get(),
                                                                    .plan = plan,
                                                                    .awaits_plan = plan == nullptr,
                                                                    .dynamic = true,
                                                                    .watch = watch,
                                                                    .copies = &copies_});
  }
  // Weights of 3 and 5 MiB, and requests of an iteration.
  void StartTraining(Bytes capacity = kGiB, WatchMemory* watch = nullptr) {
    const DevicePlan plan =
        PlanBuilder().Persistent(3 * kMiB).Persistent(5 * kMiB).Each(4 * kMiB).Each(2 * kMiB).Each(700 * kKiB).Build();
    Start(&plan, capacity, watch);
  }
  void* Filled(Bytes bytes, std::uint8_t key) {
    void* const block = runtime_->Allocate(bytes, 0, Origin::kProgram);
    EXPECT_TRUE(runtime_->Owns(block)) << bytes;
    FillPattern(block, bytes, key);
    return block;
  }
  void Weights() {
    first_ = Filled(3 * kMiB, 1);
    second_ = Filled(5 * kMiB, 2);
    runtime_->OnMark(IterationMark(iteration_++));
  }
  void ExpectWeights() {
    EXPECT_TRUE(HasPattern(first_, 3 * kMiB, 1));
    EXPECT_TRUE(HasPattern(second_, 5 * kMiB, 2));
  }
  // An iteration after which the plan's next one is served.
  void Train() {
    void* const a = Filled(4 * kMiB, 3);
    void* const b = Filled(2 * kMiB, 4);
    EXPECT_TRUE(HasPattern(a, 4 * kMiB, 3));
    runtime_->Free(a);
    runtime_->Free(b);
    runtime_->Free(Filled(700 * kKiB, 5));
    runtime_->OnMark(IterationMark(iteration_++));
  }
  SleepFigures Sleep(const SleepOrder& order = {}) {
    const Result<SleepFigures> figures = runtime_->Sleep(order);
    EXPECT_TRUE(figures.ok()) << figures.error();
    return figures.ok() ? figures.value() : SleepFigures{};
  }
  SleepFigures Wake(const TagNames& tags = std::nullopt) {
    const Result<SleepFigures> figures = runtime_->Wake(tags);
    EXPECT_TRUE(figures.ok()) << figures.error();
    return figures.ok() ? figures.value() : SleepFigures{};
  }
  std::string SleepError(const SleepOrder& order = {}) {
    const Result<SleepFigures> figures = runtime_->Sleep(order);
    return figures.ok() ? "" : figures.error();
  }
  std::string WakeError() {
    const Result<SleepFigures> figures = runtime_->Wake(std::nullopt);
    return figures.ok() ? "" : figures.error();
  }
  [[nodiscard]] Bytes Resident() const { return host_->GetCounts().resident_bytes; }
  void ExpectSound() {
    for (const PlannedSpace* const space : runtime_->spaces()) EXPECT_EQ(space->engine().CheckInvariants(), "");
  }

  LogCapture log_;
  FakeUpstream upstream_;
  FaultyCopies copies_;
  std::unique_ptr<HostDriver> host_;
  std::unique_ptr<FaultyDriver> faulty_;
  std::unique_ptr<HookedDriver> driver_;
  std::unique_ptr<DeviceRuntime> runtime_;
  void* first_ = nullptr;
  void* second_ = nullptr;
  int iteration_ = 0;
};

TEST_F(DeviceSleepTest, EverythingGoesAndComesBackToItsAddresses) {
  StartTraining();
  Weights();
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
    EXPECT_EQ(slept.copies, 1u) << "neighbours go in one copy";
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

TEST_F(DeviceSleepTest, SleepingTwiceAndWakingTwiceIsNothing) {
  StartTraining();
  Weights();
  EXPECT_EQ(Wake().blocks, 0u);
  Sleep();
  const SleepFigures again = Sleep();
  EXPECT_EQ(again.blocks, 0u);
  EXPECT_EQ(again.asleep, 8 * kMiB);
  Wake();
  EXPECT_EQ(Wake().blocks, 0u);
  ExpectWeights();
}

// Requests and frees
// ---------------------------------------------------------------------------------------------------

TEST_F(DeviceSleepTest, RequestsWhileEverythingSleepsAreErrorsOrUpstreams) {
  StartTraining();
  Weights();
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
  StartTraining();
  Weights();
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
  StartTraining();
  Weights();
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
  StartTraining();
  Weights();
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

// What lives was chosen before the device was waited for, so that no kernel runs in what seems idle; and nobody is
// placed there any more.
TEST_F(DeviceSleepTest, WhileTheDeviceIsWaitedForNothingIsPlacedAndWhatEndsWasChosen) {
  StartTraining();
  Weights();
  int waits = 0;
  driver_->SetHook([&] {
    if (waits++ > 0) return;
    PlanEngine& engine = runtime_->spaces()[0]->engine();
    EXPECT_EQ(engine.Allocate(4 * kMiB, 0).pointer, nullptr);
    EXPECT_EQ(engine.AllocateUnexpected(2 * kMiB, 0, MissReason::kParallel).pointer, nullptr);
    runtime_->Free(second_);
  });
  const SleepFigures slept = Sleep();
  EXPECT_EQ(waits, 1) << "one wait for all";
  EXPECT_EQ(slept.blocks, 2u);
  EXPECT_EQ(slept.asleep, 3 * kMiB);
  driver_->SetHook(nullptr);
  EXPECT_EQ(Wake().blocks, 1u);
  EXPECT_TRUE(HasPattern(first_, 3 * kMiB, 1));
  ExpectSound();
}

// A thread that asks in the middle of it is served afterwards.
TEST_F(DeviceSleepTest, OtherThreadsAskAndFreeMeanwhile) {
  StartTraining();
  Weights();
  std::atomic<bool> stop{false};
  std::atomic<int> served{0};
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      while (!stop) {
        try {
          const Bytes bytes = 300 * kKiB + static_cast<Bytes>(t) * 100 * kKiB;
          runtime_->Free(runtime_->Allocate(bytes, 0, Origin::kProgram));
          ++served;
        } catch (const AsleepError&) {
          ++refused;
        }
      }
    });
  }
  for (int cycle = 0; cycle < 40 || refused == 0; ++cycle) {
    Sleep();
    EXPECT_EQ(runtime_->arena()->mapped_bytes(), 0u);
    if (cycle % 8 == 0) std::this_thread::yield();
    Wake();
    ExpectWeights();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(served, 0);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(runtime_->Stats().unknown_frees, 0u);
  ExpectSound();
}

// Regions
// --------------------------------------------------------------------------------------------------------------

TEST_F(DeviceSleepTest, OnlyTheNamedSleepAndTheOthersAreServed) {
  StartTraining();
  {
    const Region region("weights");
    first_ = Filled(3 * kMiB, 1);
  }
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
  void* middle = nullptr;
  {
    const Region region("middle");
    middle = Filled(3 * kPage, 2);
  }
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
  StartTraining();
  Weights();
  (void)SleepTags::Number("weights", true);
  EXPECT_THAT(SleepError({.tags = Names({"weigths"}), .keep = {}}),
              AllOf(HasSubstr("no region has the tag 'weigths'"), HasSubstr("weights")));
  EXPECT_THAT(SleepError({.tags = {}, .keep = Names({"nothing at all"})}), HasSubstr("'nothing at all'"));
  ExpectWeights();
  EXPECT_EQ(Sleep({.tags = Names({""}), .keep = {}}).blocks, 2u) << "no region's";
  Wake();
}

// Under the watch
// ------------------------------------------------------------------------------------------------------

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
  StartTraining(kGiB, &memory);
  Weights();
  Sleep();
  runtime_->Free(first_);
  Wake();
  EXPECT_TRUE(HasPattern(second_, 5 * kMiB, 2));
  runtime_->Free(second_);
  EXPECT_EQ(runtime_->Stats().watch.findings, 0u);
}

// What is refused
// ------------------------------------------------------------------------------------------------------

TEST_F(DeviceSleepTest, ACaptureIsNotBroken) {
  StartTraining();
  Weights();
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
  {
    const Region region("shared");
    first_ = Filled(3 * kMiB, 1);
  }
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

// What fails
// -----------------------------------------------------------------------------------------------------------

TEST_F(DeviceSleepTest, TooLittleMemoryOfTheHostLeavesItAwake) {
  StartTraining();
  Weights();
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
  StartTraining(32 * kMiB);
  Weights();
  Sleep();
  MemoryInfo info;
  ASSERT_TRUE(host_->GetMemoryInfo(&info).ok());
  PhysicalHandle others = 0;
  ASSERT_TRUE(host_->Create(info.free - 6 * kMiB, &others).ok());
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
  StartTraining(32 * kMiB);
  Weights();
  const Bytes mapped = runtime_->arena()->mapped_bytes();
  Sleep();
  MemoryInfo info;
  ASSERT_TRUE(host_->GetMemoryInfo(&info).ok());
  PhysicalHandle others = 0;
  ASSERT_TRUE(host_->Create(info.free - 9 * kMiB, &others).ok());
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
    StartTraining();
    Weights();
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

// Processes
// ------------------------------------------------------------------------------------------------------------

TEST_F(DeviceSleepTest, AForkOfASleeperLeavesItAlone) {
  StartTraining();
  Weights();
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
  StartTraining();
  Weights();
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
