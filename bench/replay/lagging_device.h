// LaggingDevice: a device that lags its host by N requests, as one that computes is: an event is done when
// so many requests have come since it was recorded, or when somebody has waited for the device. With a lag of 0 all is
// done at once.
//
// A driver in front of another one, and the fence of its streams; counts the calls of both. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "allocator/driver/forwarding_driver.h"
#include "allocator/driver/stream_fence.h"
#include "bench/replay/driver_calls.h"

namespace stalloc::bench {

class LaggingDevice final : public ForwardingDriver, public StreamFence {
 public:
  // `driver` outlives this.
  LaggingDevice(VmmDriver& driver, std::uint64_t lag) : ForwardingDriver(driver), lag_(lag) {}

  // The host comes to another request.
  void Advance() {
    ++now_;
    for (; !recorded_.empty() && recorded_.front() + lag_ <= now_; recorded_.pop_front()) ++done_;
  }

  DriverStatus Create(Bytes bytes, PhysicalHandle* handle) noexcept override {
    Count(DriverCall::kCreate);
    return ForwardingDriver::Create(bytes, handle);
  }
  DriverStatus Release(PhysicalHandle handle) noexcept override {
    Count(DriverCall::kRelease);
    return ForwardingDriver::Release(handle);
  }
  DriverStatus Map(Address address, Bytes bytes, PhysicalHandle handle) noexcept override {
    Count(DriverCall::kMap);
    return ForwardingDriver::Map(address, bytes, handle);
  }
  DriverStatus Unmap(Address address, Bytes bytes) noexcept override {
    Count(DriverCall::kUnmap);
    return ForwardingDriver::Unmap(address, bytes);
  }
  DriverStatus SetAccess(Address address, Bytes bytes) noexcept override {
    Count(DriverCall::kSetAccess);
    return ForwardingDriver::SetAccess(address, bytes);
  }
  DriverStatus Synchronize() noexcept override {
    Count(DriverCall::kSynchronize);
    CatchUp();
    return ForwardingDriver::Synchronize();
  }

  Event Record(StreamHandle /*stream*/) noexcept override {
    Count(DriverCall::kEventRecord);
    recorded_.push_back(now_);
    if (lag_ == 0) CatchUp();
    return ++last_;
  }
  Event RecordAll() noexcept override { return Record(0); }
  bool Wait(StreamHandle /*stream*/, Event /*event*/) noexcept override {
    Count(DriverCall::kStreamWait);
    return true;
  }
  bool Done(Event event) noexcept override {
    Count(DriverCall::kEventQuery);
    return event <= done_;
  }
  void Recycle(Event /*event*/) noexcept override {}

  [[nodiscard]] const DriverCallCounts& calls() const noexcept { return calls_; }

 private:
  void Count(DriverCall call) noexcept { ++calls_[static_cast<std::size_t>(call)]; }
  void CatchUp() noexcept {
    done_ += recorded_.size();
    recorded_.clear();
  }

  const std::uint64_t lag_;
  std::uint64_t now_ = 0;               // requests so far
  std::deque<std::uint64_t> recorded_;  // when, of events that are not done; in order
  Event last_ = 0;
  Event done_ = 0;  // the last one
  DriverCallCounts calls_{};
};

}  // namespace stalloc::bench
