// VmmDriver: the virtual-memory calls that an arena is built from, on one device.
//
// Two implementations hold the same contract (tests/driver/driver_conformance.h runs over both): CudaDriver over the
// CUDA driver API, HostDriver over memfd and mmap with the same granularity rules. All calls are thread-safe, none
// allocates from the allocators under test, none throws. A failed call changes nothing.
//
// States of an address range:   unknown --Reserve--> reserved --Map--> mapped --SetAccess--> usable
//                               usable/mapped --Unmap--> reserved --ReleaseReservation--> unknown
// States of a handle:           Create --> alive (maps may refer to it) --Release--> gone once its last map is gone
#pragma once

#include <cstdint>

#include "proto/model/units.h"

namespace stalloc {

using Address = std::uint64_t;         // a device (or host) virtual address
using PhysicalHandle = std::uint64_t;  // opaque; 0 is none

enum class DriverCode : std::uint8_t {
  kOk,
  kOutOfMemory,   // the device cannot give that much now
  kInvalid,       // a precondition did not hold
  kUnavailable,   // no driver or no such device
  kShuttingDown,  // the driver is unloading; at exit this counts as success
  kFailed,        // anything else; `native` has the driver's own code
};

struct [[nodiscard]] DriverStatus {
  DriverCode code = DriverCode::kOk;
  int native = 0;         // CUresult or errno
  const char* call = "";  // static string: the call that failed

  [[nodiscard]] bool ok() const { return code == DriverCode::kOk; }
};

struct MemoryInfo {
  Bytes free = 0;
  Bytes total = 0;
};

// A mapping of any owner.
struct MappedMemory {
  Address address = 0;  // of the whole mapping
  Bytes bytes = 0;
  PhysicalHandle handle = 0;
};

class VmmDriver {
 public:
  virtual ~VmmDriver() = default;

  // Every size, address and offset below is a multiple of this (2 MiB on current GPUs). Bytes.
  [[nodiscard]] virtual Bytes Granularity() const noexcept = 0;
  [[nodiscard]] virtual const char* Name() const noexcept = 0;

  // Takes `bytes` of address space, aligned to Granularity(), without memory.
  virtual DriverStatus Reserve(Bytes bytes, Address* address) noexcept = 0;
  // REQUIRES: exactly a range that Reserve gave, nothing mapped in it.
  virtual DriverStatus ReleaseReservation(Address address, Bytes bytes) noexcept = 0;

  // Takes physical memory. kOutOfMemory when the device (or the test's cap) has less.
  virtual DriverStatus Create(Bytes bytes, PhysicalHandle* handle) noexcept = 0;
  // The memory goes back when the last mapping of the handle is gone.
  virtual DriverStatus Release(PhysicalHandle handle) noexcept = 0;

  // Puts the whole handle (`bytes` as created) at `address`. One handle may be mapped at several addresses.
  // REQUIRES: [address, address+bytes) reserved and not mapped.
  virtual DriverStatus Map(Address address, Bytes bytes, PhysicalHandle handle) noexcept = 0;
  // REQUIRES: the range is a union of whole earlier maps, and no kernel uses it any more.
  virtual DriverStatus Unmap(Address address, Bytes bytes) noexcept = 0;
  // Makes a mapped range readable and writable by this device (and by peers that were enabled).
  virtual DriverStatus SetAccess(Address address, Bytes bytes) noexcept = 0;

  // Gives a file descriptor by which another process maps the handle's memory. It is the caller's to close: a device's
  // memory does not go back before. kFailed where memory cannot leave the process. REQUIRES: the handle is alive.
  virtual DriverStatus Export(PhysicalHandle handle, int* descriptor) noexcept = 0;

  // The mapping in which the address lies, of this process, of any owner. The handle is the caller's to Release, as
  // if Create had given it. kUnavailable where the driver does not say, kInvalid where nothing is mapped.
  virtual DriverStatus Retain(Address /*address*/, MappedMemory* /*mapping*/) noexcept {
    return {DriverCode::kUnavailable, 0, "Retain"};
  }
  // Copies between usable ranges that do not overlap, after all that the device was given so far, and returns when it
  // is done. kFailed, at once, while the device cannot be waited for.
  virtual DriverStatus Copy(Address /*to*/, Address /*from*/, Bytes /*bytes*/) noexcept {
    return {DriverCode::kUnavailable, 0, "Copy"};
  }

  // Sets each byte of a usable range to `value`, as work of the stream, which is not captured: the host does not wait.
  virtual DriverStatus Fill(Address /*address*/, Bytes /*bytes*/, unsigned char /*value*/,
                            StreamHandle /*stream*/) noexcept {
    return {DriverCode::kUnavailable, 0, "Fill"};
  }

  virtual DriverStatus GetMemoryInfo(MemoryInfo* info) noexcept = 0;
  // Returns when the device has finished all work given to it so far. kFailed, at once, while it cannot be waited for
  // (a stream is captured).
  virtual DriverStatus Synchronize() noexcept = 0;
  // The same of all other devices that this process uses: their streams may read and write this one's memory.
  virtual DriverStatus SynchronizeOthers() noexcept { return {}; }
};

}  // namespace stalloc
