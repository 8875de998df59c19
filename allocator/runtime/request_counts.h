// RequestCounts: what a DeviceRuntime counts of its requests in addition to the engine's own statistics.
//
// A request costs two relaxed atomic additions at most. Hit rates are about requests over 512 B ("large"): smaller ones
// are cheap wherever they lie. What is fenced costs one addition more. Thread-safe; Iteration() and Fence() come from
// the thread of the loop.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/engine/plan_engine.h"
#include "allocator/runtime/device_runtime.h"
#include "allocator/runtime/resemblance.h"
#include "proto/model/units.h"

namespace stalloc {

class RequestCounts {
 public:
  void Request(Bytes requested) noexcept { Bump(IsLarge(requested) ? large_ : small_); }

  // What the engine answered. `placed`: it is in the arena, or too small for that. `known_size`: the plan has it, or
  // ones like it that vary. Such a size, but not here, is no sign of another model as long as it is placed: experts
  // come in another order each time.
  void Planned(Bytes requested, MissReason reason, bool placed, bool known_size) noexcept {
    if (!IsLarge(requested)) return;
    if (reason == MissReason::kFenced || (reason != MissReason::kNone && InFence())) Bump(large_fenced_);
    const bool out_of_order =
        reason == MissReason::kUnmatched || reason == MissReason::kOccupied || reason == MissReason::kUnknownSize;
    if (reason == MissReason::kNone) {
      Bump(large_hits_);
    } else if (reason == MissReason::kUnplanned || reason == MissReason::kFenced || reason == MissReason::kUnbacked ||
               (placed && known_size && out_of_order)) {
      Bump(large_not_for_plan_);
    } else if (!placed) {
      Bump(large_elsewhere_);
    }
  }
  // A request that no plan expects: kCapturing, which the engine never sees, or kParallel.
  void Withheld(Bytes requested, MissReason reason) noexcept {
    if (reason == MissReason::kCapturing) Bump(captured_);
    if (!IsLarge(requested)) return;
    Bump(large_not_for_plan_);
    if (InFence()) Bump(large_fenced_);
  }
  void UpstreamServed() noexcept { Bump(upstream_); }

  // An iteration begins; the second one starts the steady counts.
  void Iteration() noexcept {
    if (iterations_.fetch_add(1, std::memory_order_relaxed) == 1) BeginSteady();
  }
  // What is counted as steady begins now.
  void BeginSteady() noexcept {
    steady_from_.store(Read(large_), std::memory_order_relaxed);
    steady_from_hits_.store(Read(large_hits_), std::memory_order_relaxed);
    steady_from_fenced_.store(Read(large_fenced_), std::memory_order_relaxed);
  }

  // A fence begins or ends; one may lie inside another, and an end may lack its begin. The engine knows of fences
  // itself, but not of what never reaches it, and of none once it has given up.
  void Fence(MarkEdge edge) noexcept {
    if (edge == MarkEdge::kBegin) {
      Bump(fences_open_);
    } else if (InFence()) {
      fences_open_.fetch_sub(1, std::memory_order_relaxed);
    }
  }

  [[nodiscard]] std::uint64_t iterations() const noexcept { return Read(iterations_); }

  // Large requests that the plan was to serve, so far.
  [[nodiscard]] Resemblance::Totals Expected() const noexcept {
    return {.expected = Read(large_) - Read(large_not_for_plan_),
            .hits = Read(large_hits_),
            .requests = Read(large_),
            .elsewhere = Read(large_elsewhere_)};
  }

  void AddTo(RuntimeStats* stats) const noexcept {
    stats->requests = Read(small_) + Read(large_);
    stats->upstream = Read(upstream_);
    stats->iterations = Read(iterations_);
    stats->engine.misses[static_cast<std::size_t>(MissReason::kCapturing)] += Read(captured_);
    if (stats->iterations < 2) return;
    // Before the number of all: other threads go on.
    const std::uint64_t hits = Read(large_hits_) - Read(steady_from_hits_);
    const std::uint64_t fenced = Read(large_fenced_) - Read(steady_from_fenced_);
    stats->steady = {Read(large_) - Read(steady_from_) - fenced, hits, fenced};
  }

 private:
  using Counter = std::atomic<std::uint64_t>;

  static bool IsLarge(Bytes requested) noexcept { return requested > 512; }
  static void Bump(Counter& counter) noexcept { counter.fetch_add(1, std::memory_order_relaxed); }
  static std::uint64_t Read(const Counter& counter) noexcept { return counter.load(std::memory_order_relaxed); }
  [[nodiscard]] bool InFence() const noexcept { return Read(fences_open_) > 0; }

  // Touched by every hit; the rest only by misses and marks.
  alignas(64) Counter small_{0};
  Counter large_{0};
  Counter large_hits_{0};
  alignas(64) Counter large_not_for_plan_{0};
  Counter large_elsewhere_{0};
  Counter large_fenced_{0};
  Counter upstream_{0};
  Counter captured_{0};
  Counter iterations_{0};
  Counter steady_from_{0};
  Counter steady_from_hits_{0};
  Counter steady_from_fenced_{0};
  Counter fences_open_{0};
};

}  // namespace stalloc
