#include "planner/report/graph_pools.h"

#include <algorithm>
#include <numeric>

#include "planner/analysis/sweep.h"

namespace stalloc::planner {
namespace {

class PoolSweep {
 public:
  explicit PoolSweep(const DeviceFacts& facts) : facts_(facts) {}

  GraphPools Run() {
    Sweep sweep(facts_.device);
    for (SweepStep step; sweep.Next(&step);) Take(step);
    for (std::size_t i = 0; i < live_.size(); ++i) found_.pools[i].end = live_[i];
    return found_;
  }

 private:
  void Take(const SweepStep& step) {
    const Allocation& allocation = facts_.device.allocations[step.allocation];
    const bool captured = (allocation.flags & kAllocCaptured) != 0;
    Bytes& live = captured ? live_[PoolOf(step.allocation)] : outside_;
    live = step.is_free ? live - allocation.bytes : live + allocation.bytes;
    if (step.is_free) return;
    if (captured) {
      GraphPool& pool = found_.pools[PoolOf(step.allocation)];
      ++pool.requests;
      most_ += std::max(live, pool.most) - pool.most;
      pool.most = std::max(live, pool.most);
    }
    if (outside_ + most_ > found_.held) NoteMostHeld(step.event);
  }

  // Its row; a new one where it has none.
  std::size_t PoolOf(std::uint32_t allocation) {
    const std::uint32_t number = facts_.device.PoolOf(allocation);
    const auto row = std::find_if(found_.pools.begin(), found_.pools.end(),
                                  [&](const GraphPool& pool) { return pool.pool_plus_one == number; });
    if (row != found_.pools.end()) return static_cast<std::size_t>(row - found_.pools.begin());
    found_.pools.push_back({.pool_plus_one = number, .role = facts_.role_of[facts_.blocks[allocation].phase]});
    live_.push_back(0);
    return live_.size() - 1;
  }

  void NoteMostHeld(std::uint64_t event) {
    found_.held = outside_ + most_;
    found_.live_then = std::accumulate(live_.begin(), live_.end(), outside_);
    found_.event = event;
    for (std::size_t i = 0; i < live_.size(); ++i) found_.pools[i].idle_then = found_.pools[i].most - live_[i];
  }

  const DeviceFacts& facts_;
  GraphPools found_;
  std::vector<Bytes> live_;  // by row
  Bytes outside_ = 0;        // live
  Bytes most_ = 0;           // of all pools together
};

}  // namespace

GraphPools FindGraphPools(const DeviceFacts& facts) {
  GraphPools found = PoolSweep(facts).Run();
  return found.pools.empty() ? GraphPools{} : found;
}

}  // namespace stalloc::planner
