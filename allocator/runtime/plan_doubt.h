// PlanDoubt: whether the plan that a run begins with serves what the run requests before its first iteration is over.
//
//   set-up  --init ends, or the loop begins-->  first iteration  --the next one begins-->  over
//
// A plan that may be another run's is left as soon as less than half of what it was to serve in the first iteration has
// slots; in set-up, less than an eighth: a run that is resumed loads its checkpoint there as well. Later that is
// Resemblance's to judge; whose plan it is, the package decides between iterations (RunSignature). Where a plan is left
// in the first iteration, weights lie in their slots, next to each other, as in any plan of that model. What an
// optimizer makes at the iteration's end would lie between slots of activations that never come, and keep their chunks.
// Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "allocator/runtime/resemblance.h"
#include "proto/model/trace.h"

namespace stalloc {

class PlanDoubt {
 public:
  // Call before others, where the plan may be another run's.
  void Open() noexcept { open_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool open() const noexcept { return open_.load(std::memory_order_relaxed); }

  // After a request, with all counts so far. True once, where the plan is to be left.
  [[nodiscard]] bool Doubts(const Resemblance::Totals& totals) noexcept {
    const std::uint64_t part = in_loop_.load(std::memory_order_acquire) ? 2 : 8;
    // Counters of several threads: what is expected may be after what was hit.
    const std::uint64_t hits = totals.hits - std::min(totals.hits, set_up_hits_.load(std::memory_order_relaxed));
    const std::uint64_t expected = totals.expected - std::min(totals.expected, set_up_.load(std::memory_order_relaxed));
    return expected >= kFewRequests && hits * part < expected && open_.exchange(false);
  }

  // Marks come one at a time.
  void See(const Mark& mark, const Resemblance::Totals& totals) noexcept {
    if (!open()) return;
    if (!mark.automatic) explicit_kinds_ |= 1u << static_cast<unsigned>(mark.kind);
    const bool begins = mark.edge == MarkEdge::kBegin;
    const bool iteration = mark.kind == MarkKind::kIteration && begins;
    if (iteration && (mark.automatic || begun_)) return open_.store(false, std::memory_order_relaxed);
    begun_ = begun_ || iteration;
    if (!iteration && !(mark.kind == MarkKind::kInit && !begins) && !(mark.kind == MarkKind::kMicrobatch && begins)) {
      return;
    }
    if (in_loop_.load(std::memory_order_relaxed)) return;
    set_up_.store(totals.expected, std::memory_order_relaxed);
    set_up_hits_.store(totals.hits, std::memory_order_relaxed);
    in_loop_.store(true, std::memory_order_release);
  }

  // Bits by MarkKind: the program has placed such marks itself.
  [[nodiscard]] std::uint32_t explicit_kinds() const noexcept {
    return explicit_kinds_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint64_t kFewRequests = 16;

  std::atomic<bool> open_{false};
  std::atomic<bool> in_loop_{false};
  std::atomic<std::uint64_t> set_up_{0};  // requests that the plan was to serve before the loop
  std::atomic<std::uint64_t> set_up_hits_{0};
  std::atomic<std::uint32_t> explicit_kinds_{0};
  bool begun_ = false;  // an iteration was marked; only See looks at it
};

}  // namespace stalloc
