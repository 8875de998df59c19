// AllocTest: a DeviceRuntime in Alloc, over the host driver, real bytes and a hand-made plan.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "allocator/driver/forwarding_driver.h"
#include "allocator/driver/host_driver.h"
#include "allocator/runtime/device_runtime.h"
#include "tests/runtime/fake_upstream.h"
#include "tests/runtime/log_capture.h"
#include "tests/runtime/plan_builder.h"

namespace stalloc {

inline constexpr Bytes kPage = 64 * kKiB;

inline std::uint64_t Misses(const RuntimeStats& stats, MissReason reason) {
  return stats.engine.misses[static_cast<std::size_t>(reason)];
}

// Its device cannot be waited for while a capture runs.
class CapturingDriver final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  DriverStatus Synchronize() noexcept override {
    return capturing_ ? DriverStatus{DriverCode::kFailed, 900, "Synchronize"} : ForwardingDriver::Synchronize();
  }
  void SetCapturing(bool capturing) { capturing_ = capturing; }

 private:
  bool capturing_ = false;
};

class AllocTest : public ::testing::Test {
 protected:
  void Start(const DevicePlan& plan, Bytes capacity = 0, Bytes granularity = kPage, StreamFence* fence = nullptr,
             bool dynamic = false) {
    StartWith(&plan, capacity, granularity, fence, dynamic);
  }
  // Without a plan: null.
  void StartWith(const DevicePlan* plan, Bytes capacity = 0, Bytes granularity = kPage, StreamFence* fence = nullptr,
                 bool dynamic = false) {
    StartRuntime(
        {.fence = fence, .plan = plan, .replaceable = replaceable_, .dynamic = dynamic, .keep_free = keep_free_},
        capacity, granularity);
  }
  // `parts`: what the runtime has besides device, upstream and driver.
  void StartRuntime(DeviceRuntime::Parts parts, Bytes capacity = 0, Bytes granularity = kPage) {
    runtime_ = nullptr;
    driver_ = HostDriver::Create({.capacity = capacity, .granularity = granularity});
    ASSERT_NE(driver_, nullptr);
    device_ = std::make_unique<CapturingDriver>(*driver_);
    parts.device = kCpuDevice;
    parts.upstream = &upstream_;
    parts.driver = device_.get();
    runtime_ = std::make_unique<DeviceRuntime>(parts);
  }
  void* Allocate(Bytes bytes) { return runtime_->Allocate(bytes, 0, Origin::kProgram); }
  // `count` requests of `bytes` and their frees.
  void Churn(int count, Bytes bytes) {
    for (int i = 0; i < count; ++i) runtime_->Free(Allocate(bytes));
  }
  void Iteration() { runtime_->OnMark(IterationMark(iteration_++)); }

  LogCapture log_;
  FakeUpstream upstream_;
  std::unique_ptr<HostDriver> driver_;
  std::unique_ptr<CapturingDriver> device_;  // over driver_
  std::unique_ptr<DeviceRuntime> runtime_;
  int iteration_ = 0;
  bool replaceable_ = false;
  Bytes keep_free_ = FreeMemory::kDefaultKeep;
};

// A fence whose events are never done.
class NeverFence final : public StreamFence {
 public:
  Event Record(StreamHandle) noexcept override { return ++events_; }
  Event RecordAll() noexcept override { return ++events_; }
  bool Wait(StreamHandle, Event) noexcept override { return true; }
  bool Done(Event) noexcept override { return false; }
  void Recycle(Event) noexcept override {}

 private:
  std::atomic<Event> events_{0};
};

}  // namespace stalloc
