// QueuedCopies: copies that a QueuedDevice runs later, as the driver's run.
#pragma once

#include <cstdint>
#include <deque>

#include "allocator/driver/host_copies.h"
#include "tests/runtime/queued_device.h"

namespace stalloc {

class QueuedCopies final : public DeviceCopies {
 public:
  // `device` outlives this.
  explicit QueuedCopies(QueuedDevice& device) : device_(device) {}

  DriverStatus TakeHost(Bytes bytes, void** memory) noexcept override { return host_.TakeHost(bytes, memory); }
  void GiveHostBack(void* memory, Bytes bytes) noexcept override { host_.GiveHostBack(memory, bytes); }
  DriverStatus ToHost(void* to, Address from, Bytes bytes) noexcept override {
    device_.Copy(from, static_cast<std::byte*>(to), bytes, true);
    return {};
  }
  DriverStatus ToDevice(Address to, const void* from, Bytes bytes) noexcept override {
    device_.Copy(to, const_cast<std::byte*>(static_cast<const std::byte*>(from)), bytes, false);
    return {};
  }
  DriverStatus Fill(Address, Bytes) noexcept override { return {DriverCode::kFailed, 0, "Fill"}; }
  DriverStatus Await() noexcept override {
    marks_.clear();
    device_.AwaitCopies(device_.copies_given());
    return {};
  }
  DriverStatus Mark() noexcept override {
    marks_.push_back(device_.copies_given());
    return {};
  }
  DriverStatus AwaitMark() noexcept override {
    device_.AwaitCopies(marks_.front());
    marks_.pop_front();
    return {};
  }
  DriverStatus PutBeforeAll() noexcept override {
    device_.PutBehindCopies();
    return {};
  }

 private:
  QueuedDevice& device_;
  HostCopies host_;
  std::deque<std::uint64_t> marks_;
};

}  // namespace stalloc
