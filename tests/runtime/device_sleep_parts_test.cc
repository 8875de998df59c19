// Memory goes back part by part while the rest is copied, and what that means for a sleep that fails on its way.
#include <algorithm>
#include <deque>

#include "allocator/driver/host_copies.h"
#include "tests/runtime/device_sleep_fixture.h"

namespace stalloc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A device whose copies and calls take time, by a clock of its own: microseconds.
struct SimulatedTime {
  double host = 0;
  double copied = 0;  // when the last copy that was given is done
};

class TimedDriver final : public ForwardingDriver {
 public:
  TimedDriver(VmmDriver& driver, SimulatedTime& time, double unmap)
      : ForwardingDriver(driver), time_(time), unmap_(unmap) {}
  DriverStatus Unmap(Address address, Bytes bytes) noexcept override {
    time_.host += unmap_;
    return ForwardingDriver::Unmap(address, bytes);
  }

 private:
  SimulatedTime& time_;
  const double unmap_;
};

class TimedCopies final : public DeviceCopies {
 public:
  // `page`: what a copy of kPage takes.
  TimedCopies(SimulatedTime& time, double page) : time_(time), page_(page) {}
  DriverStatus TakeHost(Bytes bytes, void** memory) noexcept override { return real_.TakeHost(bytes, memory); }
  void GiveHostBack(void* memory, Bytes bytes) noexcept override { real_.GiveHostBack(memory, bytes); }
  DriverStatus ToHost(void* to, Address from, Bytes bytes) noexcept override {
    time_.copied = std::max(time_.copied, time_.host) + page_ * static_cast<double>(bytes) / kPage;
    return real_.ToHost(to, from, bytes);
  }
  DriverStatus ToDevice(Address to, const void* from, Bytes bytes) noexcept override {
    return real_.ToDevice(to, from, bytes);
  }
  DriverStatus Fill(Address begin, Bytes bytes) noexcept override { return real_.Fill(begin, bytes); }
  DriverStatus Mark() noexcept override {
    marks_.push_back(time_.copied);
    return {};
  }
  DriverStatus AwaitMark() noexcept override {
    time_.host = std::max(time_.host, marks_.front());
    marks_.pop_front();
    return {};
  }
  DriverStatus Await() noexcept override {
    time_.host = std::max(time_.host, time_.copied);
    return {};
  }
  DriverStatus PutBeforeAll() noexcept override { return {}; }

 private:
  SimulatedTime& time_;
  const double page_;
  HostCopies real_;
  std::deque<double> marks_;
};

class SleepPartsTest : public DeviceSleepTest {
 protected:
  // At the wait for a part's copies, counted from 0: something of the test's, and the wait fails.
  void FailAtPart(int part, std::function<void()> meanwhile = nullptr) {
    copies_.SetHook([this, part, meanwhile = std::move(meanwhile), count = 0]() mutable {
      if (count++ != part) return;
      if (meanwhile) meanwhile();
      copies_.FailCall(0);
    });
  }
  void Heal() {
    copies_.SetHook(nullptr);
    copies_.FailCall(FaultyCopies::kNever);
  }
  // Another process has all that the device has left.
  void FillDevice() {
    MemoryInfo info;
    ASSERT_TRUE(host_->GetMemoryInfo(&info).ok());
    ASSERT_TRUE(host_->Create(info.free, &others_).ok());
  }
  void EmptyDevice() { ASSERT_TRUE(host_->Release(std::exchange(others_, 0)).ok()); }

  PhysicalHandle others_ = 0;
};

TEST_F(SleepPartsTest, MemoryGoesBackWhileTheRestIsCopied) {
  StartWithWeights();
  struct Moment {
    std::size_t under_way;
    Bytes resident;
  };
  std::vector<Moment> moments;
  copies_.SetHook([&] { moments.push_back({copies_.under_way(), Resident()}); });
  const SleepFigures slept = Sleep();
  ASSERT_GE(moments.size(), 8u);
  EXPECT_EQ(slept.copied, 8 * kMiB);
  EXPECT_EQ(moments.front().under_way, slept.copies) << "all are given before the first wait";
  EXPECT_EQ(moments.front().resident, 8 * kMiB) << "what was idle has gone meanwhile";
  for (std::size_t i = 1; i < moments.size(); ++i) {
    EXPECT_LT(moments[i].resident, moments[i - 1].resident) << i;
  }
  EXPECT_GT(moments[moments.size() / 2].under_way, 2u);
  copies_.SetHook(nullptr);
  Wake();
  ExpectWeights();
}

// Chunks that take as long to unmap as to copy, as those of 2 MiB on an H200: all but one part of them hides.
TEST_F(SleepPartsTest, UnmappingHidesBehindTheCopies) {
  constexpr double kUnmap = 36;
  constexpr double kCopy = 38;
  const auto host = HostDriver::Create({.capacity = kGiB, .granularity = kPage});
  SimulatedTime time;
  TimedDriver driver(*host, time, kUnmap);
  TimedCopies copies(time, kCopy);
  DeviceRuntime runtime(DeviceRuntime::Parts{.device = kCpuDevice,
                                             .upstream = &upstream_,
                                             .driver = &driver,
                                             .awaits_plan = true,
                                             .dynamic = true,
                                             .copies = &copies});
  constexpr double kPages = 512;
  ASSERT_TRUE(runtime.Owns(runtime.Allocate(static_cast<Bytes>(kPages) * kPage, 0, Origin::kProgram)));
  time = {};
  ASSERT_TRUE(runtime.Sleep({}).ok());
  EXPECT_GE(time.host, kPages * kCopy);
  EXPECT_LE(time.host, kPages * kCopy + 16 * kUnmap) << "one after the other: " << kPages * (kCopy + kUnmap);
}

TEST_F(SleepPartsTest, WhatHasGoneComesBackWhereALaterCopyFails) {
  for (int part = 0;; ++part) {
    StartWithWeights();
    const Bytes mapped = runtime_->arena()->mapped_bytes();
    FailAtPart(part);
    const std::string error = SleepError();
    Heal();
    if (error.empty()) {
      EXPECT_GE(part, 8) << "parts";
      break;
    }
    EXPECT_THAT(error, AllOf(HasSubstr("AwaitMark gave 700"), ::testing::Not(HasSubstr("brought back"))));
    ExpectWeights();
    EXPECT_EQ(runtime_->ReleaseHostPool(), 8 * kMiB) << "nobody's bytes are kept";
    Train();
    EXPECT_EQ(runtime_->arena()->mapped_bytes(), mapped);
    EXPECT_EQ(Sleep().copied, 8 * kMiB);
    Wake();
    ExpectWeights();
    ExpectSound();
  }
}

TEST_F(SleepPartsTest, WhatOneArenaHasGivenComesBackWhereACopyOfAnotherFails) {
  const DevicePlan plan = PlanBuilder().Each(4 * kMiB).Build();
  int part = 0;
  for (bool fails = true; fails; ++part) {
    Start(nullptr);
    first_ = Filled(3 * kMiB, 1);
    ASSERT_EQ(runtime_->TakePlan(plan, 0), "");
    runtime_->OnMark(IterationMark(0));
    void* const block = Filled(4 * kMiB, 2);
    FailAtPart(part);
    fails = !runtime_->Sleep({}).ok();
    Heal();
    if (!fails) Wake();
    EXPECT_TRUE(HasPattern(first_, 3 * kMiB, 1)) << part;
    EXPECT_TRUE(HasPattern(block, 4 * kMiB, 2)) << part;
    ExpectSound();
  }
  EXPECT_GT(part, 3 + 4) << "parts of both arenas";
}

// The bytes are at the host, and nowhere else.
TEST_F(SleepPartsTest, WhatFindsNoWayBackSleepsUntilItIsWoken) {
  for (int part = 1; part < 8; ++part) {
    StartWithWeights(32 * kMiB);
    FailAtPart(part, [this] { FillDevice(); });
    const std::string error = SleepError();
    Heal();
    EXPECT_THAT(error, AllOf(HasSubstr("sleep: stalloc.wake()"), HasSubstr("MiB had gone to the host"))) << part;
    // The second block is whole until a part of it has gone, and the first is not.
    if (part <= 3) {
      EXPECT_TRUE(HasPattern(second_, 5 * kMiB, 2)) << part;
    }
    EXPECT_THAT(WakeError(), HasSubstr("free: others hold it"));
    EmptyDevice();
    EXPECT_GT(Wake().copied, 0u);
    ExpectWeights();
    EXPECT_EQ(runtime_->ReleaseHostPool(), 8 * kMiB);
    Train();
    Sleep();
    Wake();
    ExpectWeights();
    ExpectSound();
    if (testing::Test::HasFailure()) FAIL() << "part " << part;
  }
}

TEST_F(SleepPartsTest, WhatCannotBeCopiedBackSleepsUntilItIsWoken) {
  StartWithWeights();
  FailAtPart(5);
  copies_.FailToDevice(true);
  EXPECT_THAT(SleepError(), HasSubstr("could not be brought back"));
  copies_.FailToDevice(false);
  Heal();
  Wake();
  ExpectWeights();
  Train();
  ExpectSound();
}

TEST_F(SleepPartsTest, WhatWasDroppedIsThereAfterASleepThatFails) {
  int part = 0;
  for (bool fails = true; fails; ++part) {
    StartTraining();
    first_ = Filled(3 * kMiB, 1);
    {
      const Region region("cache", /*kept=*/false);
      second_ = Filled(5 * kMiB, 2);
    }
    FailAtPart(part);
    fails = !runtime_->Sleep({}).ok();
    Heal();
    if (fails) ExpectWeights();
  }
  EXPECT_GT(part, 4) << "three mebibytes are copied, in as many parts";
}

TEST_F(SleepPartsTest, ABlockMayEndWhileItIsCopied) {
  for (const bool fails : {false, true}) {
    StartWithWeights();
    int count = 0;
    copies_.SetHook([&] {
      if (count++ != 4) return;
      runtime_->Free(first_);
      if (fails) copies_.FailCall(0);
    });
    EXPECT_EQ(SleepError().empty(), !fails);
    Heal();
    EXPECT_EQ(Wake().blocks, fails ? 0u : 1u);
    EXPECT_TRUE(HasPattern(second_, 5 * kMiB, 2));
    EXPECT_EQ(runtime_->ReleaseHostPool(), 8 * kMiB) << "nobody's bytes are kept";
    EXPECT_EQ(runtime_->Stats().unknown_frees, 0u);
    ExpectSound();
  }
}

// Chunks that the driver does not let go stay, and their bytes are at the host as well.
TEST_F(SleepPartsTest, ChunksThatTheDriverKeepsAreUsedAgain) {
  for (std::uint64_t call = 0; call < 200; call += 7) {
    StartWithWeights();
    faulty_->FailCall(call, DriverCode::kFailed, 9);
    const bool slept = runtime_->Sleep({}).ok();
    faulty_->FailNothing();
    if (slept) Wake();
    ExpectWeights();
    Train();
    ExpectWeights();
    ExpectSound();
    if (testing::Test::HasFailure()) FAIL() << "call " << call;
  }
}

// What is mapped under a sleeping block for a neighbour is not its bytes: those are at the host.
TEST_F(SleepPartsTest, BytesAtTheHostAreNotSavedAnewFromWhatAnotherHadMapped) {
  Start(nullptr);
  void* ended = nullptr;
  {
    const Region region("cache");
    first_ = Filled(3 * kMiB + kPage / 2, 1);
    ended = Filled(4 * kMiB - kPage / 2, 2);
  }
  second_ = Filled(5 * kMiB, 2);
  Sleep({.tags = Names({"cache"}), .keep = {}});
  runtime_->Free(ended);
  void* const next = Filled(4 * kMiB - kPage / 2, 9);
  ASSERT_EQ(next, ended) << "the tightest room, which begins in a chunk of the sleeping block";
  Sleep();
  EXPECT_EQ(Resident(), 0u);
  Wake();
  EXPECT_TRUE(HasPattern(first_, 3 * kMiB + kPage / 2, 1));
  EXPECT_TRUE(HasPattern(next, 4 * kMiB - kPage / 2, 9));
  EXPECT_TRUE(HasPattern(second_, 5 * kMiB, 2));
}

// A sleep of some leaves what shares a chunk with others where it is. When these sleep as well, it must go with them.
TEST_F(SleepPartsTest, WhatStayedBesideOthersGoesWithThem) {
  const DevicePlan plan =
      PlanBuilder().Persistent(kPage / 2).Persistent(3 * kPage).Persistent(kPage / 2).Each(kMiB).Build();
  Start(&plan);
  void* const before = Filled(kPage / 2, 1);
  void* const middle = FilledIn("middle", 3 * kPage, 2);
  void* const behind = Filled(kPage / 2, 3);
  EXPECT_EQ(Sleep({.tags = Names({"middle"}), .keep = {}}).copied, 2 * kPage);
  EXPECT_EQ(Sleep().copied, 2 * kPage) << "both others, and what lies beside them";
  EXPECT_EQ(Resident(), 0u);
  Wake();
  EXPECT_TRUE(HasPattern(before, kPage / 2, 1));
  EXPECT_TRUE(HasPattern(middle, 3 * kPage, 2));
  EXPECT_TRUE(HasPattern(behind, kPage / 2, 3));
}

}  // namespace
}  // namespace stalloc
