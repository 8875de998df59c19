// RunSignature: the sizes that a run requests in its set-up and in its first iterations. It identifies the run of a
// plan.
//
//   set-up  --init ends, or the loop begins-->  iteration 0  --an iteration begins-->  iteration 1 ... --> closed
//
// Counted are requests of more than 512 bytes that a plan could serve: none of fences, captures and parallel regions,
// whose order and number say nothing. Sizes are bytes, rounded as blocks are. Threads may interleave in any way: counts
// do not depend on it, nor does `order`, which adds up what followed what on each thread. Thread-safe; no heap memory
// but in Json. A closed one costs a request one load.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "allocator/base/open_table.h"
#include "allocator/base/spin_mutex.h"
#include "proto/model/trace.h"
#include "proto/model/units.h"

namespace stalloc {

class RunSignature {
 public:
  static constexpr std::size_t kMostPhases = 9;    // set-up and eight iterations
  static constexpr std::size_t kMostSizes = 4096;  // of one phase that are distinguished

  [[nodiscard]] bool open() const noexcept { return open_.load(std::memory_order_relaxed); }
  // A request was served; `live`: bytes that live on the device with it.
  void Add(DeviceIndex device, Bytes requested, Bytes live) noexcept;
  // In the order in which the run makes them.
  void See(const Mark& mark) noexcept;
  // Nothing more is counted; what was, stays.
  void Close() noexcept { open_.store(false, std::memory_order_relaxed); }

  // {"set_up": PHASE, "iterations": [PHASE, ...]}, up to the one that runs. PHASE: "requests", their "bytes", the
  // "growth" of what lives (of the device that grows most), "order" (16 hexadecimal digits), "sizes": [bytes, count,
  // ...] ascending, and "others": [requests, bytes] of further sizes.
  [[nodiscard]] std::string Json() const;

 private:
  static constexpr std::size_t kDevices = 16;  // later ones count as the last
  static constexpr Bytes kNotBegun = ~Bytes{0};

  struct Sums {
    std::uint64_t requests = 0;
    Bytes bytes = 0;
    Bytes growth = 0;
    std::uint64_t order = 0;
    std::uint64_t other_requests = 0;
    Bytes other_bytes = 0;
  };
  struct Phase : Sums {
    Phase() noexcept { began_with.fill(kNotBegun); }

    std::array<Bytes, kDevices> began_with;       // bytes that lived on each device
    OpenTable<std::uint64_t> counts{kMostSizes};  // by block bytes
  };
  struct Figures;  // of a phase, for Json

  void Begin(std::size_t phase) noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] std::vector<Figures> Copy() const;

  std::atomic<bool> open_{true};
  mutable SpinMutex mutex_;  // guards the rest
  std::size_t phase_ STALLOC_GUARDED_BY(mutex_) = 0;
  int fences_ STALLOC_GUARDED_BY(mutex_) = 0;
  bool explicit_ STALLOC_GUARDED_BY(mutex_) = false;  // the program marks its iterations
  std::array<Phase, kMostPhases> phases_ STALLOC_GUARDED_BY(mutex_);
};

}  // namespace stalloc
