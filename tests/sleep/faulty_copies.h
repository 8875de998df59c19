// FaultyCopies: the host driver's copies, which run as late as they may, fail when told to, and count what is held.
//
// What goes to the host is copied when it is awaited, as far as it is: memory that went before is found out.
#pragma once

#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <utility>

#include "allocator/driver/host_copies.h"

namespace stalloc {

class FaultyCopies final : public DeviceCopies {
 public:
  // The call number `n` from now (0 is the next) fails, of all kinds but GiveHostBack; kNever: none. Where a wait
  // fails, nothing more is copied of what was given before.
  static constexpr int kNever = std::numeric_limits<int>::max();
  void FailCall(int n) { left_ = n; }
  [[nodiscard]] bool fired() const { return left_ < 0; }
  void FailToDevice(bool fails) { fails_to_device_ = fails; }
  // TakeHost gives so many bytes in all.
  void SetHostLimit(Bytes limit) { limit_ = limit; }
  // Runs at each AwaitMark, before it waits.
  void SetHook(std::function<void()> hook) { hook_ = std::move(hook); }

  [[nodiscard]] Bytes held() const { return held_; }
  [[nodiscard]] int times_taken() const { return times_taken_; }
  [[nodiscard]] int to_host() const { return to_host_; }
  [[nodiscard]] int to_device() const { return to_device_; }
  [[nodiscard]] std::size_t under_way() const { return queue_.size(); }

  DriverStatus TakeHost(Bytes bytes, void** memory) noexcept override {
    const std::lock_guard lock(taking_);
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
    if (Fails()) return Failure("ToHost");
    queue_.push_back({to, from, bytes});
    ++given_;
    return {};
  }
  DriverStatus ToDevice(Address to, const void* from, Bytes bytes) noexcept override {
    ++to_device_;
    (void)RunUntil(given_);
    return Fails() || fails_to_device_ ? Failure("ToDevice") : real_.ToDevice(to, from, bytes);
  }
  DriverStatus Fill(Address begin, Bytes bytes) noexcept override {
    return Fails() ? Failure("Fill") : real_.Fill(begin, bytes);
  }
  DriverStatus Await() noexcept override {
    marks_.clear();
    return Fails() ? Broken("Await") : RunUntil(given_);
  }
  DriverStatus Mark() noexcept override {
    if (Fails()) return Failure("Mark");
    marks_.push_back(given_);
    return {};
  }
  DriverStatus AwaitMark() noexcept override {
    if (hook_) hook_();
    const std::size_t until = marks_.front();
    marks_.pop_front();
    return Fails() ? Broken("AwaitMark") : RunUntil(until);
  }
  DriverStatus PutBeforeAll() noexcept override { return Fails() ? Failure("PutBeforeAll") : DriverStatus{}; }

 private:
  struct Copy {
    void* to = nullptr;
    Address from = 0;
    Bytes bytes = 0;
  };

  bool Fails() { return left_ != kNever && left_-- == 0; }
  static DriverStatus Failure(const char* call) { return {DriverCode::kFailed, 700, call}; }
  DriverStatus Broken(const char* call) {
    queue_.clear();
    return Failure(call);
  }
  // What was given up to then.
  DriverStatus RunUntil(std::size_t given) {
    for (; !queue_.empty() && given_ - queue_.size() < given; queue_.pop_front()) {
      const Copy& copy = queue_.front();
      if (const DriverStatus status = real_.ToHost(copy.to, copy.from, copy.bytes); !status.ok()) return status;
    }
    return {};
  }

  HostCopies real_;
  std::mutex taking_;
  std::deque<Copy> queue_;
  std::size_t given_ = 0;          // to the host, ever
  std::deque<std::size_t> marks_;  // given_ at each
  std::function<void()> hook_;
  int left_ = kNever;
  bool fails_to_device_ = false;
  Bytes limit_ = std::numeric_limits<Bytes>::max() / 2;
  Bytes held_ = 0;
  int times_taken_ = 0;
  int to_host_ = 0;
  int to_device_ = 0;
};

}  // namespace stalloc
