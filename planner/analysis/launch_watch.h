// The launches of a trace, played against a plan that lends bytes of their pools: which bytes are needed at an event.
// Shares nothing with how requests were chosen. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/analysis/byte_ranges.h"
#include "planner/analysis/lendable_pools.h"
#include "proto/model/plan.h"

namespace stalloc::planner {

class LaunchWatch {
 public:
  LaunchWatch() = default;               // no launches
  LaunchWatch(LaunchWatch&&) = default;  // a copy would point into the original
  LaunchWatch& operator=(LaunchWatch&&) = default;
  // InvalidArgument where the trace's pools are not those that the plan lends.
  [[nodiscard]] static absl::StatusOr<LaunchWatch> Create(const LendablePools& pools, const DevicePlan& plan);

  // Calls `visit(bytes)` with what each launch before `event` needs, from the last call on. Bytes are offsets into the
  // plan's lent pools.
  template <typename Visit>
  void AdvanceTo(std::uint64_t event, Visit&& visit) {
    now_ = event;
    for (; next_ < launches_.size() && launches_[next_].event < event; ++next_) {
      visit(needs_[launches_[next_].capture]);
      std::erase_if(waiting_, [&](const Gift& gift) { return gift.end_event <= launches_[next_].event; });
      waiting_.insert(waiting_.end(), launches_[next_].gifts.begin(), launches_[next_].gifts.end());
    }
  }

  // All that pools will have was requested before the event.
  [[nodiscard]] bool AreFilled() const { return now_ > filled_; }
  // A graph that was launched before left something there for another one, which was not launched for the last time.
  [[nodiscard]] bool Waits(const ByteRange& bytes) const;

 private:
  struct Gift {
    const ByteRanges* bytes = nullptr;
    std::uint64_t end_event = 0;
  };
  struct Launch {
    std::uint64_t event = 0;
    std::uint32_t capture = 0;
    std::vector<Gift> gifts;
  };

  std::vector<ByteRanges> needs_;               // by capture
  std::vector<std::vector<ByteRanges>> gifts_;  // likewise
  std::vector<Launch> launches_;
  std::vector<Gift> waiting_;
  std::size_t next_ = 0;
  std::uint64_t filled_ = 0;
  std::uint64_t now_ = 0;
};

}  // namespace stalloc::planner
