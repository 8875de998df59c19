#include "allocator/driver/host_copies.h"

#include <cerrno>
#include <cstring>

#include "allocator/driver/host_memory.h"
#include "allocator/driver/watch_memory.h"

namespace stalloc {

DriverStatus HostCopies::TakeHost(Bytes bytes, void** memory) noexcept {
  *memory = MapHostMemory(bytes);
  return *memory != nullptr ? DriverStatus{} : DriverStatus{DriverCode::kOutOfMemory, errno, "mmap"};
}

void HostCopies::GiveHostBack(void* memory, Bytes bytes) noexcept { UnmapHostMemory(memory, bytes); }

DriverStatus HostCopies::ToHost(void* to, Address from, Bytes bytes) noexcept {
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return {};
}

DriverStatus HostCopies::ToDevice(Address to, const void* from, Bytes bytes) noexcept {
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return {};
}

DriverStatus HostCopies::Fill(Address begin, Bytes bytes) noexcept {
  std::memset(reinterpret_cast<void*>(begin), WatchMemory::kPattern, bytes);
  return {};
}

}  // namespace stalloc
