// Copies of a HostDriver's memory: at once, by the calling thread.
#pragma once

#include "allocator/driver/device_copies.h"

namespace stalloc {

class HostCopies final : public DeviceCopies {
 public:
  DriverStatus TakeHost(Bytes bytes, void** memory) noexcept override;
  void GiveHostBack(void* memory, Bytes bytes) noexcept override;
  DriverStatus ToHost(void* to, Address from, Bytes bytes) noexcept override;
  DriverStatus ToDevice(Address to, const void* from, Bytes bytes) noexcept override;
  DriverStatus Fill(Address begin, Bytes bytes) noexcept override;
  DriverStatus Await() noexcept override { return {}; }
  DriverStatus Mark() noexcept override { return {}; }
  DriverStatus AwaitMark() noexcept override { return {}; }
  DriverStatus PutBeforeAll() noexcept override { return {}; }
};

}  // namespace stalloc
