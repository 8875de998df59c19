// RecorderGate: lets any thread call a Recorder until the gate closes, after which the recorder may be destroyed.
//
// Threads of PyTorch and NCCL allocate and free until the process is gone, so a recorder that gets its orderly end at
// exit could be in use. Two relaxed-cost atomic operations per event (Trace only). Thread-safe, except that Close is
// called once.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "allocator/record/recorder.h"

namespace stalloc {

class RecorderGate {
 public:
  explicit RecorderGate(Recorder* recorder) noexcept : recorder_(recorder) {}

  // Calls use(*recorder) unless the gate is closed.
  template <typename Use>
  void Pass(Use&& use) noexcept {
    if (recorder_.load(std::memory_order_relaxed) == nullptr) return;
    inside_.fetch_add(1, std::memory_order_seq_cst);
    // Looked at again: either this sees the null, or Close sees the count.
    Recorder* const recorder = recorder_.load(std::memory_order_seq_cst);
    if (recorder != nullptr) use(*recorder);
    inside_.fetch_sub(1, std::memory_order_release);
  }

  [[nodiscard]] bool open() const noexcept { return recorder_.load(std::memory_order_relaxed) != nullptr; }

  // Returns when nobody is inside any more.
  void Close() noexcept {
    recorder_.store(nullptr, std::memory_order_seq_cst);
    while (inside_.load(std::memory_order_acquire) != 0) std::this_thread::yield();
  }

 private:
  std::atomic<Recorder*> recorder_;
  alignas(64) std::atomic<std::uint32_t> inside_{0};
};

}  // namespace stalloc
