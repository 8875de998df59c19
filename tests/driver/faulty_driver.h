// FaultyDriver: passes every call on to a real driver, except the one that it is told to fail; counts what is alive.
//
// Release, Unmap and ReleaseReservation can be told to fail like any other call. Counts are of what the caller holds by
// the statuses that it was given. Thread-safe if the driver below is.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <unordered_map>

#include "allocator/driver/vmm_driver.h"

namespace stalloc {

class FaultyDriver final : public VmmDriver {
 public:
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  explicit FaultyDriver(VmmDriver& real) : real_(real) {}

  // The call number `n` from now (0 is the next) fails with `code`, and `count` - 1 calls after it.
  void FailCall(std::uint64_t n, DriverCode code = DriverCode::kFailed, std::uint64_t count = 1) {
    calls_ = 0;
    code_ = code;
    fail_from_ = n;
    fail_to_ = count > kNever - n ? kNever : n + count;
  }
  void FailNothing() { FailCall(kNever, DriverCode::kFailed, 0); }
  // Calls since FailCall or FailNothing.
  [[nodiscard]] std::uint64_t calls() const { return calls_; }
  // A call has been failed since then.
  [[nodiscard]] bool fired() const { return calls_ > fail_from_; }

  struct Counts {
    std::int64_t reservations = 0;
    std::int64_t handles = 0;
    std::int64_t mapped_bytes = 0;
    Bytes handle_bytes = 0;
    bool operator==(const Counts&) const = default;
  };
  [[nodiscard]] Counts counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

  [[nodiscard]] Bytes Granularity() const noexcept override { return real_.Granularity(); }
  [[nodiscard]] const char* Name() const noexcept override { return "faulty"; }

  DriverStatus Reserve(Bytes bytes, Address* address) noexcept override {
    return Pass(
        "Reserve", [&] { return real_.Reserve(bytes, address); }, [&] { ++counts_.reservations; });
  }
  DriverStatus ReleaseReservation(Address address, Bytes bytes) noexcept override {
    return Pass(
        "ReleaseReservation", [&] { return real_.ReleaseReservation(address, bytes); },
        [&] { --counts_.reservations; });
  }
  DriverStatus Create(Bytes bytes, PhysicalHandle* handle) noexcept override {
    return Pass(
        "Create", [&] { return real_.Create(bytes, handle); },
        [&] {
          ++counts_.handles;
          counts_.handle_bytes += bytes;
          sizes_[*handle] = bytes;
        });
  }
  DriverStatus Retain(Address address, MappedMemory* mapping) noexcept override {
    return Pass(
        "Retain", [&] { return real_.Retain(address, mapping); },
        [&] {
          ++counts_.handles;
          counts_.handle_bytes += mapping->bytes;
          sizes_[mapping->handle] = mapping->bytes;
        });
  }
  DriverStatus Copy(Address to, Address from, Bytes bytes) noexcept override {
    return Pass(
        "Copy", [&] { return real_.Copy(to, from, bytes); }, [] {});
  }
  DriverStatus Fill(Address address, Bytes bytes, unsigned char value, StreamHandle stream) noexcept override {
    return Pass(
        "Fill", [&] { return real_.Fill(address, bytes, value, stream); }, [] {});
  }
  DriverStatus Release(PhysicalHandle handle) noexcept override {
    return Pass(
        "Release", [&] { return real_.Release(handle); },
        [&] {
          --counts_.handles;
          counts_.handle_bytes -= sizes_[handle];
          sizes_.erase(handle);
        });
  }
  DriverStatus Map(Address address, Bytes bytes, PhysicalHandle handle) noexcept override {
    return Pass(
        "Map", [&] { return real_.Map(address, bytes, handle); },
        [&] { counts_.mapped_bytes += static_cast<std::int64_t>(bytes); });
  }
  DriverStatus Unmap(Address address, Bytes bytes) noexcept override {
    return Pass(
        "Unmap", [&] { return real_.Unmap(address, bytes); },
        [&] { counts_.mapped_bytes -= static_cast<std::int64_t>(bytes); });
  }
  DriverStatus SetAccess(Address address, Bytes bytes) noexcept override {
    return Pass(
        "SetAccess", [&] { return real_.SetAccess(address, bytes); }, [] {});
  }
  DriverStatus Export(PhysicalHandle handle, int* descriptor) noexcept override {
    return Pass(
        "Export", [&] { return real_.Export(handle, descriptor); }, [&] { ++exports_; });
  }
  // Descriptors given so far.
  [[nodiscard]] int exports() const {
    const std::lock_guard lock(mutex_);
    return exports_;
  }
  DriverStatus GetMemoryInfo(MemoryInfo* info) noexcept override {
    return Pass(
        "GetMemoryInfo", [&] { return real_.GetMemoryInfo(info); }, [] {});
  }
  DriverStatus Synchronize() noexcept override {
    return Pass(
        "Synchronize", [&] { return real_.Synchronize(); }, [] {});
  }

 private:
  template <typename Call, typename Count>
  DriverStatus Pass(const char* name, Call call, Count count) {
    const std::uint64_t number = calls_++;
    if (number >= fail_from_ && number < fail_to_) {
      return {code_, 0, name};
    }
    const DriverStatus status = call();
    if (status.ok()) {
      const std::lock_guard lock(mutex_);
      count();
    }
    return status;
  }

  VmmDriver& real_;
  std::atomic<std::uint64_t> calls_{0};
  std::uint64_t fail_from_ = kNever;
  std::uint64_t fail_to_ = kNever;
  DriverCode code_ = DriverCode::kFailed;
  mutable std::mutex mutex_;
  Counts counts_;
  int exports_ = 0;
  std::unordered_map<PhysicalHandle, Bytes> sizes_;
};

}  // namespace stalloc
