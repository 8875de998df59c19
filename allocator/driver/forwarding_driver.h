// ForwardingDriver: another driver's calls as they are; for those that change some of them.
#pragma once

#include "allocator/driver/vmm_driver.h"

namespace stalloc {

class ForwardingDriver : public VmmDriver {
 public:
  // `driver` outlives this.
  explicit ForwardingDriver(VmmDriver& driver) noexcept : driver_(driver) {}

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
  DriverStatus Unmap(Address address, Bytes bytes) noexcept override { return driver_.Unmap(address, bytes); }
  DriverStatus SetAccess(Address address, Bytes bytes) noexcept override { return driver_.SetAccess(address, bytes); }
  DriverStatus Export(PhysicalHandle handle, int* descriptor) noexcept override {
    return driver_.Export(handle, descriptor);
  }
  DriverStatus Retain(Address address, MappedMemory* mapping) noexcept override {
    return driver_.Retain(address, mapping);
  }
  DriverStatus Copy(Address to, Address from, Bytes bytes) noexcept override { return driver_.Copy(to, from, bytes); }
  DriverStatus Fill(Address address, Bytes bytes, unsigned char value, StreamHandle stream) noexcept override {
    return driver_.Fill(address, bytes, value, stream);
  }
  DriverStatus GetMemoryInfo(MemoryInfo* info) noexcept override { return driver_.GetMemoryInfo(info); }
  DriverStatus Synchronize() noexcept override { return driver_.Synchronize(); }
  DriverStatus SynchronizeOthers() noexcept override { return driver_.SynchronizeOthers(); }

 private:
  VmmDriver& driver_;
};

}  // namespace stalloc
