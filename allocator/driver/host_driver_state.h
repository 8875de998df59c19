// HostDriver::State: what a HostDriver knows of its reservations, maps and handles, and the fork handlers over it.
//
// Internal to host_driver.cc and host_fork.cc. Guarded by `mutex`, which a fork holds from before it to after it in
// both processes. Bytes.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

#include "allocator/driver/host_driver.h"
#include "allocator/driver/host_file.h"

namespace stalloc {

struct HostDriver::State {
  struct Handle {
    Offset offset = 0;  // in the file
    Bytes bytes = 0;
    std::uint64_t maps = 0;
    std::uint64_t owners = 1;  // Create and Retain less Release

    [[nodiscard]] bool released() const noexcept { return owners == 0; }
  };
  struct Mapping {
    Bytes bytes = 0;
    PhysicalHandle handle = 0;
    bool usable = false;
  };

  Bytes capacity = 0;
  bool is_machine = false;  // the capacity is the machine's memory
  Bytes granularity = 0;

  mutable std::mutex mutex;
  HostFile file;
  bool forked = false;                    // in a child: nothing is served any more
  std::map<Address, Bytes> reservations;  // base -> bytes
  std::map<Address, Mapping> mappings;    // by address, disjoint
  std::unordered_map<PhysicalHandle, Handle> handles;
  PhysicalHandle next_handle = 1;
  Bytes handle_bytes = 0;

  [[nodiscard]] bool Aligned(Address address, Bytes bytes) const noexcept {
    return bytes > 0 && bytes % granularity == 0 && address % granularity == 0 && address + bytes > address;
  }
  // The range lies in one reservation.
  [[nodiscard]] bool Reserved(Address address, Bytes bytes) const noexcept;
  // Some map holds a byte of the range.
  [[nodiscard]] bool AnyMapped(Address address, Bytes bytes) const noexcept;
  // The range is a union of whole maps, without gaps.
  [[nodiscard]] bool WholeMaps(Address address, Bytes bytes) const noexcept;
  // Forgets one map of the handle; the memory of a released one goes back with its last map.
  void DropMap(PhysicalHandle handle) noexcept;
  void GiveBackIfDead(PhysicalHandle handle) noexcept;
};

// Fork handlers see every registered state. Both are thread-safe.
void RegisterForFork(HostDriver::State* state);
void UnregisterForFork(HostDriver::State* state) noexcept;

}  // namespace stalloc
