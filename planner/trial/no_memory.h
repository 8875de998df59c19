// NoMemory: a device whose memory nobody uses, without limit: for runs that are served on trial.
//
// Every call but Export succeeds; addresses are never dereferenced. Thread-safe. Bytes.
#pragma once

#include <atomic>

#include "allocator/driver/vmm_driver.h"
#include "planner/analysis/held_bytes.h"

namespace stalloc::planner {

class NoMemory final : public VmmDriver {
 public:
  [[nodiscard]] Bytes Granularity() const noexcept override { return kMappingUnit; }
  [[nodiscard]] const char* Name() const noexcept override { return "no memory"; }
  DriverStatus Reserve(Bytes /*bytes*/, Address* address) noexcept override {
    *address = Address{1} << 40;
    return {};
  }
  DriverStatus ReleaseReservation(Address /*address*/, Bytes /*bytes*/) noexcept override { return {}; }
  DriverStatus Create(Bytes /*bytes*/, PhysicalHandle* handle) noexcept override {
    *handle = ++last_;
    return {};
  }
  DriverStatus Release(PhysicalHandle /*handle*/) noexcept override { return {}; }
  DriverStatus Map(Address /*address*/, Bytes /*bytes*/, PhysicalHandle /*handle*/) noexcept override { return {}; }
  DriverStatus Unmap(Address /*address*/, Bytes /*bytes*/) noexcept override { return {}; }
  DriverStatus SetAccess(Address /*address*/, Bytes /*bytes*/) noexcept override { return {}; }
  DriverStatus Export(PhysicalHandle /*handle*/, int* /*descriptor*/) noexcept override {
    return {DriverCode::kFailed, 0, "Export"};
  }
  DriverStatus GetMemoryInfo(MemoryInfo* info) noexcept override {
    *info = {.free = ~Bytes{0}, .total = ~Bytes{0}};
    return {};
  }
  DriverStatus Synchronize() noexcept override { return {}; }

 private:
  std::atomic<PhysicalHandle> last_{0};
};

}  // namespace stalloc::planner
