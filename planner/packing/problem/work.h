// Work: what searches spend instead of time, so that a packing is the same however loaded the machine is, and however
// many threads there are.
//
// A unit is about a nanosecond of one core of 2025. What a search does is counted where its loops are: lists looked at,
// nodes, blocks, each with its weight. A budget is charged by the one thread that leads a search, between what it hands
// out: what is handed out has a limit that was decided before, and what it took does not depend on the thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace stalloc::planner {

using Work = std::uint64_t;

inline constexpr Work kUnlimitedWork = ~Work{0};
inline constexpr Work kWorkPerSecond = 1'000'000'000;

// For so many seconds. REQUIRES: seconds >= 0.
[[nodiscard]] constexpr Work WorkOfSeconds(double seconds) {
  constexpr double kMost = 1e10;  // seconds; the whole range is not much more
  return static_cast<Work>(std::min(seconds, kMost) * static_cast<double>(kWorkPerSecond));
}

// Of a pass that sorts all blocks, for each.
inline constexpr Work kWorkOfSort = 100;

// What is left of it may be read by anybody as long as nobody charges it.
class Budget {
 public:
  // `stop` may be null.
  Budget(Work limit, const std::atomic<bool>* stop) : limit_(limit), stop_(stop) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  void Charge(Work work) { spent_ += std::min(work, kUnlimitedWork - spent_); }
  [[nodiscard]] Work spent() const { return spent_; }
  [[nodiscard]] Work left() const { return limit_ - std::min(limit_, spent_); }
  // Thread-safe.
  [[nodiscard]] bool IsStopped() const { return stop_ != nullptr && stop_->load(std::memory_order_relaxed); }
  [[nodiscard]] bool IsOver() const { return spent_ >= limit_ || IsStopped(); }

 private:
  const Work limit_;
  const std::atomic<bool>* const stop_;
  Work spent_ = 0;
};

}  // namespace stalloc::planner
