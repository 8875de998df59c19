// GraphPoison: fills what graphs' pools have idle with 0xff, so that a program which reads it sees NaN
// (STALLOC_GRAPHS=poison). It proves that what is lent, or would be, is needed by nobody.
//
// After each launch what that launch alone needed, and what it took, is filled, lent or not; before a pool is lent all
// that no graph gives to another. What is given is left alone until it is taken. Fills are at the pool's own addresses.
// False: it is not filled, and a warning says so; then the pool must not be lent.
//
// Thread-safe, noexcept. The caller holds the pool's launch mutex, so that no launch comes between.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "allocator/base/log.h"
#include "allocator/driver/vmm_driver.h"
#include "allocator/graphs/graph_pool.h"
#include "proto/model/units.h"

namespace stalloc {

class GraphPoison {
 public:
  static constexpr unsigned char kByte = 0xff;  // NaN in every type of floating point, -1 in every signed integer

  // `driver` outlives this.
  GraphPoison(DeviceIndex device, VmmDriver& driver) noexcept : device_(device), driver_(driver) {}

  // After all that the stream was given so far; the host does not wait. `stream` is not captured.
  [[nodiscard]] bool AfterLaunch(const GraphPool& pool, GraphId graph, StreamHandle stream) noexcept;
  // Returns when it is done. REQUIRES: the device is done with the pool.
  [[nodiscard]] bool BeforeLending(const GraphPool& pool, StreamHandle stream) noexcept;

  // So far, each time counted.
  [[nodiscard]] Bytes filled_bytes() const noexcept { return filled_.load(std::memory_order_relaxed); }

 private:
  // Throws std::bad_alloc.
  [[nodiscard]] DriverStatus Fill(const PoolCatalog& catalog, std::span<const ByteRange> ranges, StreamHandle stream);
  [[nodiscard]] DriverStatus Fill(const ByteRange& range, StreamHandle stream) noexcept;
  [[nodiscard]] bool Report(const GraphPool& pool, const DriverStatus& status) noexcept;

  const DeviceIndex device_;
  VmmDriver& driver_;
  std::atomic<Bytes> filled_{0};
  std::atomic<bool> is_reported_{false};
  LogThrottle failures_{3};
};

}  // namespace stalloc
