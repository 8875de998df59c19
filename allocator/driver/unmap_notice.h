// UnmapNotice: a driver that says which addresses lose their memory, before they do, and is another driver otherwise.
#pragma once

#include "allocator/driver/vmm_driver.h"

namespace stalloc {

class UnmapListener {
 public:
  virtual ~UnmapListener() = default;
  // Called by the thread that unmaps, with the locks of whoever asked for it. The call may fail afterwards.
  virtual void BeforeUnmap(Address address, Bytes bytes) noexcept = 0;
};

class UnmapNotice final : public VmmDriver {
 public:
  // Both outlive this.
  UnmapNotice(VmmDriver& driver, UnmapListener& listener) noexcept : driver_(driver), listener_(listener) {}

  [[nodiscard]] Bytes Granularity() const noexcept override { return driver_.Granularity(); }
  [[nodiscard]] const char* Name() const noexcept override { return driver_.Name(); }
  DriverStatus Reserve(Bytes bytes, Address* address) noexcept override { return driver_.Reserve(bytes, address); }
  DriverStatus ReleaseReservation(Address address, Bytes bytes) noexcept override {
    return driver_.ReleaseReservation(address, bytes);
  }
  DriverStatus Create(Bytes bytes, PhysicalHandle* handle) noexcept override { return driver_.Create(bytes, handle); }
  DriverStatus Release(PhysicalHandle handle) noexcept override { return driver_.Release(handle); }
  DriverStatus Map(Address address, Bytes bytes, PhysicalHandle handle) noexcept override {
    return driver_.Map(address, bytes, handle);
  }
  DriverStatus Unmap(Address address, Bytes bytes) noexcept override {
    listener_.BeforeUnmap(address, bytes);
    return driver_.Unmap(address, bytes);
  }
  DriverStatus SetAccess(Address address, Bytes bytes) noexcept override { return driver_.SetAccess(address, bytes); }
  DriverStatus GetMemoryInfo(MemoryInfo* info) noexcept override { return driver_.GetMemoryInfo(info); }
  DriverStatus Synchronize() noexcept override { return driver_.Synchronize(); }

 private:
  VmmDriver& driver_;
  UnmapListener& listener_;
};

}  // namespace stalloc
