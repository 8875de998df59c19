// How often a runtime called its driver, by kind of call: on a device each costs its host microseconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace stalloc::bench {

enum class DriverCall : std::uint8_t {
  kCreate,  // of physical memory
  kMap,
  kSetAccess,
  kUnmap,
  kRelease,
  kSynchronize,  // waits for the device
  kEventRecord,
  kStreamWait,
  kEventQuery,
  kCount
};
inline constexpr std::size_t kDriverCalls = static_cast<std::size_t>(DriverCall::kCount);

using DriverCallCounts = std::array<std::uint64_t, kDriverCalls>;

[[nodiscard]] constexpr const char* DriverCallName(DriverCall call) {
  constexpr std::array<const char*, kDriverCalls> kNames = {
      "create", "map", "set_access", "unmap", "release", "synchronize", "event_record", "stream_wait", "event_query"};
  return kNames[static_cast<std::size_t>(call)];
}

}  // namespace stalloc::bench
