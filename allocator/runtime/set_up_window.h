// SetUpWindow: when a run that has no plan yet requests what probably stays: before its loop, and where optimizers make
// their state.
//
//   open --the loop begins--> closed --a layer mark of no pass begins--> open --it ends--> closed
//
// The loop begins with an iteration, a pass, or the end of init; a backward pass that nothing announced is in the loop.
// Inside a fence the window is closed. Thread-safe.
#pragma once

#include <atomic>
#include <utility>

#include "allocator/base/mutex.h"
#include "proto/model/trace.h"

namespace stalloc {

class SetUpWindow {
 public:
  [[nodiscard]] bool open() const noexcept { return open_.load(std::memory_order_relaxed); }

  // True when it has closed since the last call.
  bool See(const Mark& mark) noexcept {
    const LockGuard lock(mutex_);
    const bool begins = mark.edge == MarkEdge::kBegin;
    switch (mark.kind) {
      case MarkKind::kInit:
        if (!begins) in_set_up_ = false;
        break;
      case MarkKind::kIteration:
      case MarkKind::kMicrobatch:
        in_set_up_ = false;
        making_state_ = 0;
        break;
      case MarkKind::kFence:
        Count(begins, &fences_);
        break;
      case MarkKind::kLayer:
        if (mark.pass == Pass::kOther) Count(begins, &making_state_);
        break;
      case MarkKind::kOptimizer:
        break;
    }
    const bool was_open = Update();
    const bool closed_before = std::exchange(closed_by_pass_, false);
    return (was_open || closed_before) && !open();
  }

  void SeeBackwardPass() noexcept {
    const LockGuard lock(mutex_);
    in_set_up_ = false;
    if (Update() && !open()) closed_by_pass_ = true;
  }

 private:
  // Whether it was open.
  bool Update() noexcept STALLOC_REQUIRES(mutex_) {
    return open_.exchange((in_set_up_ || making_state_ > 0) && fences_ == 0, std::memory_order_relaxed);
  }

  static void Count(bool begins, int* depth) noexcept {
    if (begins) ++*depth;
    if (!begins && *depth > 0) --*depth;  // else an end without a begin
  }

  std::atomic<bool> open_{true};
  Mutex mutex_;  // guards the rest
  bool in_set_up_ STALLOC_GUARDED_BY(mutex_) = true;
  bool closed_by_pass_ STALLOC_GUARDED_BY(mutex_) = false;  // since the last mark
  int making_state_ STALLOC_GUARDED_BY(mutex_) = 0;
  int fences_ STALLOC_GUARDED_BY(mutex_) = 0;
};

}  // namespace stalloc
