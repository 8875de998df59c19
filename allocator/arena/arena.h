// Arena: one contiguous address range of a device, backed by few large physical handles from its base upward.
//
//   base                          mapped_bytes            reserved_bytes
//    |== chunk 0 ==|== chunk 1 ==|== chunk 2 ==|...........|   addresses never move: a plan's offset is valid for life
//
// NCCL registration and RDMA break on ranges that span many handles, so chunks are large. Thread-safe. Does no bookkeeping
// of blocks: which bytes are in use is the engine's business (allocator/engine/occupancy.h).
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "allocator/driver/vmm_driver.h"
#include "proto/model/units.h"

namespace stalloc {

class Arena {
 public:
  // Reserves addresses only. `reserve_bytes` is rounded up to the driver's granularity. Null on failure, `status` says why.
  static std::unique_ptr<Arena> Create(VmmDriver& driver, Bytes reserve_bytes, DriverStatus* status);
  // Unmaps and releases everything. The device must be done with it; failures at driver shutdown are ignored.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Backs [mapped_bytes(), bytes) with one new chunk and makes it usable; nothing to do if bytes <= mapped_bytes().
  // REQUIRES: bytes <= reserved_bytes(). On failure nothing changes (a failed step rolls the earlier ones back).
  DriverStatus GrowTo(Bytes bytes) noexcept;

  // Gives chunks back from the top while they lie wholly at or above `bytes`. REQUIRES: nobody uses those bytes; the caller
  // has synchronised the device. Returns what was given back, bytes.
  Bytes ShrinkTo(Bytes bytes) noexcept;

  [[nodiscard]] Address base() const noexcept { return base_; }
  [[nodiscard]] Bytes reserved_bytes() const noexcept { return reserved_bytes_; }
  [[nodiscard]] Bytes mapped_bytes() const noexcept;
  [[nodiscard]] bool Contains(const void* pointer) const noexcept {
    const auto address = reinterpret_cast<Address>(pointer);
    return address - base_ < reserved_bytes_;
  }

 private:
  struct Chunk {
    Offset offset;
    Bytes bytes;
    PhysicalHandle handle;
  };

  Arena(VmmDriver& driver, Address base, Bytes reserved_bytes);

  VmmDriver& driver_;
  const Address base_;
  const Bytes reserved_bytes_;
  mutable std::mutex mutex_;
  Bytes mapped_bytes_ = 0;
  std::vector<Chunk> chunks_;
};

}  // namespace stalloc
