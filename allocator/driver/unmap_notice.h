// UnmapNotice: a driver that says which addresses lose their memory, before they do, and is another driver otherwise.
#pragma once

#include "allocator/driver/forwarding_driver.h"

namespace stalloc {

class UnmapListener {
 public:
  virtual ~UnmapListener() = default;
  // Called by the thread that unmaps, with the locks of its caller. The call may fail afterwards.
  virtual void BeforeUnmap(Address address, Bytes bytes) noexcept = 0;
};

class UnmapNotice final : public ForwardingDriver {
 public:
  // Both outlive this.
  UnmapNotice(VmmDriver& driver, UnmapListener& listener) noexcept : ForwardingDriver(driver), listener_(listener) {}

  DriverStatus Unmap(Address address, Bytes bytes) noexcept override {
    listener_.BeforeUnmap(address, bytes);
    return ForwardingDriver::Unmap(address, bytes);
  }

 private:
  UnmapListener& listener_;
};

}  // namespace stalloc
