// DriverUnderTest: a VmmDriver and the way to its bytes, so that one suite runs over host and device memory.
#pragma once

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

  void WriteWord(Address address, std::uint64_t word) const { write(address, &word, sizeof(word)); }
  [[nodiscard]] std::uint64_t ReadWord(Address address) const {
    std::uint64_t word = 0;
    read(&word, address, sizeof(word));
    return word;
  }
};

inline DriverUnderTest HostUnderTest(HostDriverOptions options) {
  return {HostDriver::Create(options), "no memfd",
          [](Address to, const void* from, Bytes bytes) { std::memcpy(reinterpret_cast<void*>(to), from, bytes); },
          [](void* to, Address from, Bytes bytes) { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); }};
}

}  // namespace stalloc
