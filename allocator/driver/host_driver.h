// HostDriver: VmmDriver over memfd and mmap, with the CUDA driver's granularity rules and preconditions.
//
// Physical memory is ranges of one memfd, a handle is such a range, a mapping is MAP_SHARED | MAP_FIXED inside a
// PROT_NONE reservation. So the true arena and page heap run on real bytes without a GPU, and what CUDA would refuse is
// refused here: partial maps and unmaps, maps outside a reservation or over another map, access before SetAccess (a
// fault). Released memory goes back to the system at once (a hole is punched).
//
// fork(): shared mappings would let parent and child see each other's writes, which no user of malloc-like memory
// expects (PyTorch's DataLoader workers read the parent's tensors). A fork handler therefore gives the child a private
// copy of every usable mapping at the same address, holes left out, while the forking thread waits: ordinary
// copy-on-write semantics, paid for at fork time. The child's driver is shut down: memory it inherited stays valid,
// every call gives kShuttingDown. (vfork and posix_spawn copy nothing.)
//
// Thread-safe.
#pragma once

#include <memory>

#include "allocator/driver/vmm_driver.h"

namespace stalloc {

struct HostDriverOptions {
  // Bytes that Create gives out at most. 0: the machine's memory; free is then at most half of what the machine (or the
  // container) has available, however the rest is used.
  Bytes capacity = 0;
  Bytes granularity = Bytes{2} << 20;  // a power of two, at least the system's page
};

class HostDriver final : public VmmDriver {
 public:
  // Null when the options are out of range or the system gives no memfd (errno says why).
  static std::unique_ptr<HostDriver> Create(HostDriverOptions options);
  // Takes back all address ranges, mapped or not.
  ~HostDriver() override;
  HostDriver(const HostDriver&) = delete;
  HostDriver& operator=(const HostDriver&) = delete;

  [[nodiscard]] Bytes Granularity() const noexcept override;
  [[nodiscard]] const char* Name() const noexcept override { return "host"; }

  DriverStatus Reserve(Bytes bytes, Address* address) noexcept override;
  DriverStatus ReleaseReservation(Address address, Bytes bytes) noexcept override;
  DriverStatus Create(Bytes bytes, PhysicalHandle* handle) noexcept override;
  DriverStatus Release(PhysicalHandle handle) noexcept override;
  DriverStatus Map(Address address, Bytes bytes, PhysicalHandle handle) noexcept override;
  DriverStatus Unmap(Address address, Bytes bytes) noexcept override;
  DriverStatus SetAccess(Address address, Bytes bytes) noexcept override;
  // For the whole memfd; its position is where the handle's bytes begin. Does not keep them once the handle is gone.
  DriverStatus Export(PhysicalHandle handle, int* descriptor) noexcept override;
  DriverStatus Retain(Address address, MappedMemory* mapping) noexcept override;
  DriverStatus Copy(Address to, Address from, Bytes bytes) noexcept override;
  DriverStatus Fill(Address address, Bytes bytes, unsigned char value, StreamHandle stream) noexcept override;
  DriverStatus GetMemoryInfo(MemoryInfo* info) noexcept override;
  DriverStatus Synchronize() noexcept override;  // the host has no queue: nothing to wait for

  // What exists now; for tests and leak checks.
  struct Counts {
    std::uint64_t reservations = 0;
    std::uint64_t handles = 0;  // alive, or released but still mapped
    std::uint64_t maps = 0;
    Bytes handle_bytes = 0;
    Bytes resident_bytes = 0;  // pages that the system really holds for us
  };
  [[nodiscard]] Counts GetCounts() const noexcept;

  struct State;  // host_driver_state.h; the fork handlers work on it

 private:
  explicit HostDriver(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace stalloc
