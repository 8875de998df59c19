// DriverUnderTest: a VmmDriver and the way to its bytes, so that one suite runs over host and device memory.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "allocator/driver/host_driver.h"
#include "allocator/driver/vmm_driver.h"

namespace stalloc {

struct DriverUnderTest {
  std::unique_ptr<VmmDriver> driver;  // null: not on this machine
  std::string absent_because;
  std::function<void(Address to, const void* from, Bytes bytes)> write;
  std::function<void(void* to, Address from, Bytes bytes)> read;
  // Maps the memory of a descriptor that Export gave, as another process would; 0 on failure. `unmap` takes it back.
  std::function<Address(int descriptor, Bytes bytes)> map_exported;
  std::function<void(Address address, Bytes bytes)> unmap_exported;

  void WriteWord(Address address, std::uint64_t word) const { write(address, &word, sizeof(word)); }
  [[nodiscard]] std::uint64_t ReadWord(Address address) const {
    std::uint64_t word = 0;
    read(&word, address, sizeof(word));
    return word;
  }
};

// The descriptor's position is where the memory begins.
inline Address MapHostExported(int descriptor, Bytes bytes) {
  const off_t position = lseek(descriptor, 0, SEEK_CUR);
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, position);
  return mapped == MAP_FAILED ? 0 : reinterpret_cast<Address>(mapped);
}

inline DriverUnderTest HostUnderTest(HostDriverOptions options) {
  return {HostDriver::Create(options),
          "no memfd",
          [](Address to, const void* from, Bytes bytes) { std::memcpy(reinterpret_cast<void*>(to), from, bytes); },
          [](void* to, Address from, Bytes bytes) { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); },
          &MapHostExported,
          [](Address address, Bytes bytes) { munmap(reinterpret_cast<void*>(address), bytes); }};
}

}  // namespace stalloc
