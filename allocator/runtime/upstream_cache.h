// UpstreamCache: when upstream is to give back what it caches, for an arena that comes to hold what upstream did.
//
// A page of upstream's goes back only once no block lives in it, and each release waits for the device. Before there is
// a plan, one is worth that when a page more is cached than the last one left. What lived when a plan was taken up goes
// bit by bit, and a small block may be the last in its page: so whenever some of it has gone, twice as much after each
// release that was for nothing. The number of releases is bounded, whatever else upstream serves.
//
// Thread-safe; of two threads that release at once one does so for nothing. Sizes are bytes.
#pragma once

#include <algorithm>
#include <atomic>

#include "proto/model/units.h"

namespace stalloc {

class UpstreamCache {
 public:
  static constexpr Bytes kPage = Bytes{20} << 20;  // of the native allocator's expandable segments
  static constexpr Bytes kSome = Bytes{2} << 20;

  struct Figures {
    Bytes held = 0;
    Bytes live = 0;  // of its blocks
    [[nodiscard]] Bytes cached() const noexcept { return held - std::min(held, live); }
  };

  // More is cached than the last release left.
  [[nodiscard]] bool HasMore(const Figures& now) const noexcept {
    return now.cached() >= kept_.load(std::memory_order_relaxed) + kPage;
  }
  // Some of what lived when the plan was taken up has gone since the last release. False where none was taken up.
  [[nodiscard]] bool HasLess(const Figures& now) const noexcept {
    const Bytes some = some_.load(std::memory_order_relaxed);
    return now.cached() >= kPage && now.live + some <= lived_.load(std::memory_order_relaxed);
  }

  // Of what is cached now, what no release could give back: blocks live in its pages.
  [[nodiscard]] Bytes Kept(const Figures& now) const noexcept {
    return std::min(now.cached(), kept_.load(std::memory_order_relaxed));
  }

  // A release is over.
  void Released(const Figures& before, const Figures& now) noexcept {
    const Bytes some = some_.load(std::memory_order_relaxed);
    some_.store(now.held < before.held ? kSome : std::min(2 * some, kPage), std::memory_order_relaxed);
    kept_.store(now.cached(), std::memory_order_relaxed);
    lived_.store(std::min(lived_.load(std::memory_order_relaxed), now.live), std::memory_order_relaxed);
  }
  // The same, where a plan is taken up.
  void BeginPlan(const Figures& now) noexcept {
    some_.store(kSome, std::memory_order_relaxed);
    kept_.store(now.cached(), std::memory_order_relaxed);
    lived_.store(now.live, std::memory_order_relaxed);
  }

 private:
  std::atomic<Bytes> kept_{0};      // cached all the same after the last release
  std::atomic<Bytes> lived_{0};     // then, and not more than at any release since the plan
  std::atomic<Bytes> some_{kSome};  // of it have to go for another one
};

}  // namespace stalloc
