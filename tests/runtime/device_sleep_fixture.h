// DeviceSleepTest: a device over real bytes of the host, with weights and a plan; its driver and copies fail when told.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "allocator/runtime/device_sleep.h"
#include "allocator/runtime/planned_space.h"
#include "allocator/runtime/sleep_tags.h"
#include "tests/driver/faulty_driver.h"
#include "tests/runtime/alloc_fixture.h"
#include "tests/runtime/pattern.h"
#include "tests/sleep/faulty_copies.h"

namespace stalloc {

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
  DriverStatus SynchronizeOthers() noexcept override {
    ++others_waited_;
    return others_run_ ? DriverStatus{DriverCode::kFailed, 700, "SynchronizeOthers"} : DriverStatus{};
  }
  void SetOthersRun(bool run) { others_run_ = run; }
  [[nodiscard]] int others_waited() const { return others_waited_; }
  void SetCapturing(bool capturing) { capturing_ = capturing; }
  void SetHook(std::function<void()> hook) { hook_ = std::move(hook); }

 private:
  bool capturing_ = false;
  bool others_run_ = false;  // and cannot be waited for
  int others_waited_ = 0;
  std::function<void()> hook_;
};

inline TagNames Names(std::vector<std::string> names) { return names; }

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
  void* FilledIn(const char* tag, Bytes bytes, std::uint8_t key) {
    const Region region(tag);
    return Filled(bytes, key);
  }
  // Memory of the device for others, but for `left` bytes.
  PhysicalHandle TakeAllBut(Bytes left) {
    MemoryInfo info;
    EXPECT_TRUE(host_->GetMemoryInfo(&info).ok());
    PhysicalHandle others = 0;
    EXPECT_TRUE(host_->Create(info.free - left, &others).ok());
    return others;
  }
  void Weights() {
    first_ = Filled(3 * kMiB, 1);
    second_ = Filled(5 * kMiB, 2);
    runtime_->OnMark(IterationMark(iteration_++));
  }
  void StartWithWeights(Bytes capacity = kGiB, WatchMemory* watch = nullptr) {
    StartTraining(capacity, watch);
    Weights();
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

}  // namespace stalloc
