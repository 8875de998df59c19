// FaultyCopies: the host driver's copies, which fail when told to, and count what is held.
#pragma once

#include <limits>

#include "allocator/driver/host_copies.h"

namespace stalloc {

class FaultyCopies final : public DeviceCopies {
 public:
  // The call number `n` from now (0 is the next) fails, of all kinds but GiveHostBack; kNever: none.
  static constexpr int kNever = std::numeric_limits<int>::max();
  void FailCall(int n) { left_ = n; }
  [[nodiscard]] bool fired() const { return left_ < 0; }
  // TakeHost gives so many bytes in all.
  void SetHostLimit(Bytes limit) { limit_ = limit; }

  [[nodiscard]] Bytes held() const { return held_; }
  [[nodiscard]] int times_taken() const { return times_taken_; }
  [[nodiscard]] int to_host() const { return to_host_; }
  [[nodiscard]] int to_device() const { return to_device_; }

  DriverStatus TakeHost(Bytes bytes, void** memory) noexcept override {
    if (Fails() || held_ + bytes > limit_) return {DriverCode::kOutOfMemory, 12, "TakeHost"};
    const DriverStatus status = real_.TakeHost(bytes, memory);
    if (status.ok()) held_ += bytes;
    if (status.ok()) ++times_taken_;
    return status;
  }
  void GiveHostBack(void* memory, Bytes bytes) noexcept override {
    held_ -= bytes;
    real_.GiveHostBack(memory, bytes);
  }
  DriverStatus ToHost(void* to, Address from, Bytes bytes) noexcept override {
    ++to_host_;
    return Fails() ? Failure("ToHost") : real_.ToHost(to, from, bytes);
  }
  DriverStatus ToDevice(Address to, const void* from, Bytes bytes) noexcept override {
    ++to_device_;
    return Fails() ? Failure("ToDevice") : real_.ToDevice(to, from, bytes);
  }
  DriverStatus Fill(Address begin, Bytes bytes) noexcept override {
    return Fails() ? Failure("Fill") : real_.Fill(begin, bytes);
  }
  DriverStatus Await() noexcept override { return Fails() ? Failure("Await") : DriverStatus{}; }
  DriverStatus PutBeforeAll() noexcept override { return Fails() ? Failure("PutBeforeAll") : DriverStatus{}; }

 private:
  bool Fails() { return left_ != kNever && left_-- == 0; }
  static DriverStatus Failure(const char* call) { return {DriverCode::kFailed, 700, call}; }

  HostCopies real_;
  int left_ = kNever;
  Bytes limit_ = std::numeric_limits<Bytes>::max() / 2;
  Bytes held_ = 0;
  int times_taken_ = 0;
  int to_host_ = 0;
  int to_device_ = 0;
};

}  // namespace stalloc
