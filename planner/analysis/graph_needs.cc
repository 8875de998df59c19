#include "planner/analysis/graph_needs.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>

#include "planner/analysis/graph_captures.h"
#include "planner/analysis/sweep.h"

namespace stalloc::planner {
namespace {

// Bytes of a pool that blocks have: those that several share count once.
class Coverage {
 public:
  void Add(std::uint64_t begin, Bytes bytes) { Change(begin, bytes, 1); }
  void Remove(std::uint64_t begin, Bytes bytes) { Change(begin, bytes, -1); }
  [[nodiscard]] Bytes bytes() const { return bytes_; }

 private:
  std::map<std::uint64_t, int>::iterator CutAt(std::uint64_t address) {
    const auto after = blocks_.upper_bound(address);
    return blocks_.try_emplace(after, address, after != blocks_.begin() ? std::prev(after)->second : 0);
  }
  void Change(std::uint64_t begin, Bytes bytes, int blocks) {
    const auto last = CutAt(begin + bytes);
    for (auto part = CutAt(begin); part != last; ++part) {
      const bool was_covered = part->second > 0;
      part->second += blocks;
      const Bytes length = std::next(part)->first - part->first;
      if (part->second > 0 && !was_covered) bytes_ += length;
      if (part->second == 0 && was_covered) bytes_ -= length;
    }
  }

  std::map<std::uint64_t, int> blocks_;  // from this address to the next: so many
  Bytes bytes_ = 0;
};

class NeedsFinder {
 public:
  NeedsFinder(const TracedRank& traced, const DeviceTrace& device, const GraphCaptures& captures)
      : segments_(traced.segmentation.segments), device_(device), captures_(captures) {}

  GraphNeeds Run() {
    for (const GraphCapture& capture : captures_.captures) {
      TakeCapture(capture);
      Measure(capture);
    }
    Walk();
    TakePools();
    return std::move(found_);
  }

 private:
  struct Pool {
    Bytes live = 0;  // as PyTorch counts
    Bytes most = 0;
    // Kept, or carried while its graph was launched: where the address is known, and where it is not.
    Coverage needed;
    Bytes needed_elsewhere = 0;

    [[nodiscard]] Bytes Needs(Bytes launch) const { return std::min(most, needed.bytes() + needed_elsewhere + launch); }
  };

  void TakeCapture(const GraphCapture& capture) {
    CapturedGraph& graph = found_.graphs.emplace_back();
    graph.number = capture.number;
    if (!capture.requested.empty()) graph.pool = device_.PoolOf(capture.requested.front());
    for (const std::uint32_t index : capture.requested) {
      graph_pools_.insert(device_.PoolOf(index));
      const Bytes bytes = device_.allocations[index].bytes;
      if (captures_.kinds[index] == CapturedKind::kCarried) graph.carried += bytes;
      if (captures_.kinds[index] == CapturedKind::kKept) graph.kept += bytes;
    }
  }

  [[nodiscard]] std::uint32_t SegmentOf(std::uint64_t event) const {
    const auto after = std::ranges::upper_bound(segments_, event, {}, &Segment::begin_event);
    return static_cast<std::uint32_t>(std::max<std::ptrdiff_t>(after - segments_.begin(), 1) - 1);
  }

  void TakePools() {
    for (const std::uint32_t number : graph_pools_) found_.pools.push_back({number, pools_[number].most});
    found_.first_event = captures_.captures.front().begin;
    found_.first_segment = SegmentOf(found_.first_event);
    found_.last_segment = SegmentOf(captures_.captures.back().begin);
  }

  // The most of the last graph that lives at a time in its launch, in the order of its capture.
  void Measure(const GraphCapture& capture) {
    struct Change {
      std::uint64_t event = 0;
      std::int64_t bytes = 0;
      bool dead = false;
    };
    std::vector<Change> changes;
    const auto add = [&](std::uint64_t event, std::int64_t bytes, CapturedKind kind) {
      changes.push_back({event, bytes, kind == CapturedKind::kDead});
    };
    std::int64_t live = 0;
    for (const std::uint32_t index : capture.freed) {
      const Allocation& allocation = device_.allocations[index];
      live += static_cast<std::int64_t>(allocation.bytes);
      add(allocation.free_event, -static_cast<std::int64_t>(allocation.bytes), CapturedKind::kCarried);
    }
    for (const std::uint32_t index : capture.requested) {
      const Allocation& allocation = device_.allocations[index];
      if (captures_.kinds[index] == CapturedKind::kKept) continue;
      add(allocation.event, static_cast<std::int64_t>(allocation.bytes), captures_.kinds[index]);
      if (captures_.kinds[index] == CapturedKind::kDead) {
        add(allocation.free_event, -static_cast<std::int64_t>(allocation.bytes), CapturedKind::kDead);
      }
    }
    std::ranges::sort(changes, {}, &Change::event);
    std::int64_t dead = 0;
    CapturedGraph& graph = found_.graphs.back();
    graph.launch = static_cast<Bytes>(live);
    for (const Change& change : changes) {
      live += change.bytes;
      if (change.dead) dead += change.bytes;
      graph.launch = std::max(graph.launch, static_cast<Bytes>(live));
      graph.dead = std::max(graph.dead, static_cast<Bytes>(dead));
    }
  }

  void Walk() {
    waits_.assign(device_.allocations.size(), false);
    std::size_t next = 0;
    Sweep sweep(device_);
    for (SweepStep step; sweep.Next(&step);) {
      for (; next < captures_.launches.size() && captures_.launches[next].event <= step.event; ++next)
        TakeLaunch(captures_.launches[next]);
      TakeStep(step);
    }
    for (; next < captures_.launches.size(); ++next) TakeLaunch(captures_.launches[next]);
  }

  void TakeStep(const SweepStep& step) {
    const Bytes bytes = device_.allocations[step.allocation].bytes;
    const auto change = [&](Bytes& live) { live = step.is_free ? live - bytes : live + bytes; };
    change(torch_);
    const std::uint32_t number = device_.PoolOf(step.allocation);
    if (captures_.kinds[step.allocation] == CapturedKind::kEager || !graph_pools_.contains(number)) {
      change(eager_);
    } else {
      Pool& pool = pools_[number];
      change(pool.live);
      pool.most = std::max(pool.most, pool.live);
      if (!step.is_free && captures_.kinds[step.allocation] == CapturedKind::kKept) SetNeeded(step.allocation, true);
      if (!step.is_free) NoteCaptured();
    }
    if (!step.is_free) Note(step.event, nullptr);
  }

  void TakeLaunch(const GraphLaunch& launch) {
    const GraphCapture& capture = captures_.captures[launch.capture];
    CapturedGraph& graph = found_.graphs[launch.capture];
    ++graph.launches;
    // What it takes from others is part of its own launch.
    for (const std::uint32_t index : capture.freed) SetWaiting(index, false);
    Note(launch.event, &graph);
    for (const std::uint32_t index : capture.requested) {
      if (captures_.kinds[index] == CapturedKind::kCarried) SetWaiting(index, true);
    }
  }

  void NoteCaptured() {
    Bytes held = eager_;
    for (const auto& [number, pool] : pools_) held += pool.most;
    found_.capture_peak = std::max(found_.capture_peak, held);
  }

  void SetWaiting(std::uint32_t index, bool waits) {
    if (waits_[index] == waits) return;
    waits_[index] = waits;
    SetNeeded(index, waits);
  }

  void SetNeeded(std::uint32_t index, bool is_needed) {
    Pool& pool = pools_[device_.PoolOf(index)];
    const Bytes bytes = device_.allocations[index].bytes;
    const std::uint64_t address = device_.AddressOf(index);
    if (address == 0) {
      pool.needed_elsewhere = is_needed ? pool.needed_elsewhere + bytes : pool.needed_elsewhere - bytes;
    } else if (is_needed) {
      pool.needed.Add(address, bytes);
    } else {
      pool.needed.Remove(address, bytes);
    }
  }

  void Note(std::uint64_t event, const CapturedGraph* launched) {
    Bytes needed = eager_;
    for (const auto& [number, pool] : pools_) {
      needed += pool.Needs(launched != nullptr && launched->pool == number ? launched->launch : 0);
    }
    needed = std::max(needed, torch_);
    if (needed <= found_.peak) return;
    found_.peak = needed;
    found_.torch_then = torch_;
    found_.event = event;
  }

  const std::vector<Segment>& segments_;
  const DeviceTrace& device_;
  const GraphCaptures& captures_;
  std::vector<bool> waits_;              // by allocation
  std::set<std::uint32_t> graph_pools_;  // PoolPlusOne: something was captured there; others are MemPools
  std::map<std::uint32_t, Pool> pools_;
  Bytes eager_ = 0;  // live
  Bytes torch_ = 0;  // live, with what pools have
  GraphNeeds found_;
};

}  // namespace

GraphNeeds FindGraphNeeds(const TracedRank& traced, const DeviceTrace& device) {
  const GraphCaptures captures = FindGraphCaptures(traced, device);
  return captures.captures.empty() ? GraphNeeds{} : NeedsFinder(traced, device, captures).Run();
}

}  // namespace stalloc::planner
