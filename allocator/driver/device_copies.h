// DeviceCopies: brings bytes of a device to memory of the host and back, and pins that memory. For sleep and wake.
//
// Copies are given to the device in order, on a stream of their own; the host waits for them only in Await. Not
// thread-safe: one sleep or wake of a device runs at a time. noexcept.
#pragma once

#include "allocator/driver/vmm_driver.h"
#include "proto/model/units.h"

namespace stalloc {

class DeviceCopies {
 public:
  virtual ~DeviceCopies() = default;

  // Memory of the host that copies run to and from at full speed. kOutOfMemory, and nothing is taken, where the host
  // has less than that left. Several threads may be in here.
  virtual DriverStatus TakeHost(Bytes bytes, void** memory) noexcept = 0;
  // REQUIRES: what TakeHost gave, and no copy uses it any more.
  virtual void GiveHostBack(void* memory, Bytes bytes) noexcept = 0;

  // Given after the device was waited for, or to memory that nobody uses yet: they are ordered after nothing else.
  virtual DriverStatus ToHost(void* to, Address from, Bytes bytes) noexcept = 0;
  virtual DriverStatus ToDevice(Address to, const void* from, Bytes bytes) noexcept = 0;
  // With WatchMemory::kPattern.
  virtual DriverStatus Fill(Address begin, Bytes bytes) noexcept = 0;

  // Returns when all that was given here is done; no mark is left.
  virtual DriverStatus Await() noexcept = 0;
  // Marks what was given here so far. AwaitMark returns when all that was given before the oldest mark is done, and
  // removes it; a failure may be of any copy. REQUIRES of AwaitMark: there is one.
  virtual DriverStatus Mark() noexcept = 0;
  virtual DriverStatus AwaitMark() noexcept = 0;
  // Whatever the device is given from now on, by whichever thread, on whichever stream, runs after all that was given
  // here. The host waits only if the device cannot be made to wait.
  virtual DriverStatus PutBeforeAll() noexcept = 0;
};

}  // namespace stalloc
