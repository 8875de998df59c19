// FreeMemory: whether the device has memory that nobody lacks, so that an arena may take more of it instead of moving
// what it has (README, A free card and a full one).
//
//   free  ---- fewer than `keep` bytes would be left ---->  full
//         <--- twice as many are left, queried once an iteration
//
// The driver is requested a large step at a time; what this arena takes meanwhile is counted here, what other processes
// take is seen at the next step. Not thread-safe, but for is_free(). Sizes are bytes.
#pragma once

#include <algorithm>
#include <atomic>

#include "allocator/backing/tuning.h"
#include "allocator/driver/vmm_driver.h"

namespace stalloc {

class FreeMemory {
 public:
  // `keep`: bytes that stay free for others; kDefaultKeep: as large as tuning.h says. The driver outlives this.
  static constexpr Bytes kDefaultKeep = ~Bytes{0};
  FreeMemory(VmmDriver& driver, Bytes keep) noexcept : driver_(driver), keep_(keep) {
    (void)Query(0, [](Bytes) { return true; });
    left_ = 0;
    queried_ = false;
  }

  // The arena may take so much more. Then it is counted as taken. `may_hold(bytes)`: so does the program's own limit.
  template <typename MayHold>
  [[nodiscard]] bool Take(Bytes bytes, MayHold&& may_hold) noexcept {
    if (bytes > left_ && !Query(bytes, may_hold)) return false;
    left_ -= bytes;
    return true;
  }
  // What might be taken could not be had.
  void Refused() noexcept {
    free_.store(false, std::memory_order_relaxed);
    queried_ = true;
    left_ = 0;
  }
  // A full device is queried again: an iteration begins, or a cache was emptied.
  void QueryAgain() noexcept { queried_ = false; }
  // The same, at once: where everything finds a place nobody else queries.
  template <typename MayHold>
  void AskNow(MayHold&& may_hold) noexcept {
    QueryAgain();
    if (!is_free()) (void)Query(0, may_hold);
  }
  // The user has said how much others need.
  [[nodiscard]] bool is_keep_given() const noexcept { return keep_ != kDefaultKeep; }
  // As it was last known; from any thread.
  [[nodiscard]] bool is_free() const noexcept { return free_.load(std::memory_order_relaxed); }

  // Free bytes of the device beyond those that stay free for others. `keep`: as for the constructor.
  [[nodiscard]] static Bytes Left(const MemoryInfo& device, Bytes keep) noexcept {
    return device.free - std::min(device.free, Kept(device, keep));
  }

 private:
  template <typename MayHold>
  [[nodiscard]] bool Query(Bytes bytes, MayHold&& may_hold) noexcept {
    if (!is_free() && queried_) return false;
    queried_ = true;
    MemoryInfo device;
    if (!driver_.GetMemoryInfo(&device).ok()) return false;
    const Bytes keep = Kept(device, keep_);
    const Bytes beyond = is_free() ? 0 : keep;  // that has to be left before it counts as free again
    const bool has = device.free >= keep + beyond + bytes && may_hold(bytes + beyond);
    free_.store(has, std::memory_order_relaxed);
    left_ = has ? std::max(bytes, (device.free - keep) / tuning::kStepParts) : 0;
    return has;
  }
  static Bytes Kept(const MemoryInfo& device, Bytes keep) noexcept {
    return keep != kDefaultKeep ? keep : std::max(tuning::kKeptFreeBytes, device.total / tuning::kKeptFreeParts);
  }

  VmmDriver& driver_;
  const Bytes keep_;
  Bytes left_ = 0;  // that may be taken without a query
  bool queried_ = false;
  std::atomic<bool> free_{true};
};

}  // namespace stalloc
