#include "planner/analysis/pool_schedule.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

namespace stalloc::planner {
namespace {

// A launch of one script, as one iteration has it or all together.
struct CycleLaunch {
  std::uint32_t capture = 0;
  Lifetime gap;  // begins with the request before it, which may be that before the cycle's beginning
};

class Scheduler {
 public:
  Scheduler(const LendablePools& pools, const Segmentation& segmentation, const DeviceTrace& device,
            const SteadyModel& model)
      : pools_(pools), segmentation_(segmentation), device_(device), model_(model) {}

  PoolSchedule Run() {
    if (pools_.pools.empty() || model_.length() == 0) return {};
    schedule_.pools = pools_.pools;
    TakeBytes();
    launches_.resize(model_.cycle.period);
    for (std::uint32_t i = model_.cycle.warmup; i < model_.cycle.typical.size(); ++i) {
      if (model_.cycle.typical[i]) TakeIteration(i);
    }
    for (const std::vector<CycleLaunch>& script : launches_) {
      for (const CycleLaunch& launch : script) AddNeed(launch.gap, launch.capture);
    }
    if (schedule_.in_order) TakeGifts();
    TakeLendable(schedule_.in_order ? pools_.lendable : pools_.dead);
    TakeMoments();
    TakeTrace();
    std::ranges::sort(schedule_.needs, {}, [](const PoolSchedule::Need& need) {
      return std::tuple(need.life.begin, need.life.end, need.bytes);
    });
    schedule_.needs.erase(std::unique(schedule_.needs.begin(), schedule_.needs.end()), schedule_.needs.end());
    return std::move(schedule_);
  }

 private:
  // For launches, by capture; then of their gifts; then all.
  void TakeBytes() {
    std::vector<ByteRanges>& needed = schedule_.needed;
    for (const LendablePools::Graph& graph : pools_.graphs) needed.push_back(graph.needs);
    for (const LendablePools::Graph& graph : pools_.graphs) {
      first_gifts_.push_back(static_cast<std::uint32_t>(needed.size()));
      for (const LendablePools::Gift& gift : graph.gifts) needed.push_back(gift.bytes);
    }
    needed.push_back(pools_.lendable);
  }

  void TakeIteration(std::uint32_t iteration) {
    const std::uint32_t segment = iteration + 1;
    const std::uint32_t script = model_.cycle.ScriptOf(iteration);
    const Segment& range = segmentation_.segments[segment];
    std::vector<CycleLaunch> found;
    for (auto launch = std::ranges::lower_bound(pools_.launches, range.begin_event, {}, &GraphLaunch::event);
         launch != pools_.launches.end() && launch->event < range.end_event; ++launch) {
      found.push_back({launch->capture, GapAt(launch->event, segment, script)});
    }
    for (const FenceRange& fence : segmentation_.fences) {
      const bool inside = fence.begin_event >= range.begin_event && fence.begin_event < range.end_event;
      if (inside) AddNeed(GapAt(fence.begin_event, segment, script), all());
    }
    Join(std::move(found), iteration == model_.cycle.warmup + script, &launches_[script]);
  }

  // In cycle time, from the request before an event on.
  [[nodiscard]] Lifetime GapAt(std::uint64_t event, std::uint32_t segment, std::uint32_t script) const {
    const std::vector<std::uint32_t>& requests = device_.segments[segment].allocations;
    const auto after = std::ranges::lower_bound(
        requests, event, {}, [&](std::uint32_t index) { return std::uint64_t{device_.allocations[index].event}; });
    const auto ordinal = static_cast<std::uint32_t>(after - requests.begin());
    const Alignment& alignment = *model_.alignments[segment];
    const Tick begin = model_.begins[script];
    return {begin + alignment.LeftReached(ordinal) - 1, begin + alignment.LeftBound(ordinal)};
  }

  // `launches`: of the template and the iterations that came before this one.
  void Join(std::vector<CycleLaunch> found, bool is_template, std::vector<CycleLaunch>* launches) {
    const bool same = std::ranges::equal(found, *launches, {}, &CycleLaunch::capture, &CycleLaunch::capture);
    if (is_template) {
      *launches = std::move(found);
    } else if (schedule_.in_order && same) {
      for (std::size_t i = 0; i < found.size(); ++i) {
        (*launches)[i].gap = Joined((*launches)[i].gap, found[i].gap);
      }
    } else {
      schedule_.in_order = false;
      launches->insert(launches->end(), found.begin(), found.end());
    }
  }

  // Two gaps of one launch. A gap is wide where requests of the cycle do not come in that iteration: for blocks that do
  // come any time within it is the same, so that what two have in common stands for both.
  static Lifetime Joined(const Lifetime& a, const Lifetime& b) {
    if (a.Overlaps(b)) return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
    return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
  }

  // `life` may pass the cycle's beginning or its end.
  void AddNeed(Lifetime life, std::uint32_t bytes) {
    const Tick length = model_.length();
    if (life.end - life.begin > length) return AddForGood(bytes);
    if (life.begin < 0) life = {life.begin + length, life.end + length};
    schedule_.needs.push_back({{life.begin, std::min(life.end, length)}, bytes});
    if (life.end > length) schedule_.needs.push_back({{PoolSchedule::kBefore, life.end - length}, bytes});
  }

  void AddForGood(std::uint32_t bytes) { schedule_.needs.push_back({{PoolSchedule::kBefore, model_.length()}, bytes}); }

  void TakeGifts() {
    std::vector<CycleLaunch> cycle;
    for (const std::vector<CycleLaunch>& script : launches_) cycle.insert(cycle.end(), script.begin(), script.end());
    std::vector<bool> launched(pools_.graphs.size());
    for (std::size_t i = 0; i < cycle.size(); ++i) {
      launched[cycle[i].capture] = true;
      const std::vector<LendablePools::Gift>& gifts = pools_.graphs[cycle[i].capture].gifts;
      for (std::uint32_t g = 0; g < gifts.size(); ++g) {
        AddNeed({cycle[i].gap.begin, EndOfGift(cycle, i, gifts[g])}, first_gifts_[cycle[i].capture] + g);
      }
    }
    TakeGiftsFromBefore(launched);
  }

  // As LendablePools::EndOfGift, in a cycle that repeats.
  [[nodiscard]] Tick EndOfGift(const std::vector<CycleLaunch>& cycle, std::size_t at,
                               const LendablePools::Gift& gift) const {
    std::optional<Tick> taken;
    for (std::size_t step = 1; step <= cycle.size(); ++step) {
      const CycleLaunch& next = cycle[(at + step) % cycle.size()];
      const Tick end = next.gap.end + (at + step >= cycle.size() ? model_.length() : 0);
      if (next.capture == cycle[at].capture) return taken.value_or(end);
      if (next.capture == gift.taker) taken = end;
    }
    return cycle[at].gap.begin + model_.length();
  }

  // For graphs that the cycle does not launch: what is still needed in it is for good.
  void TakeGiftsFromBefore(const std::vector<bool>& launched) {
    const std::uint64_t begin = segmentation_.segments[model_.cycle.warmup + 1].begin_event;
    for (std::size_t i = 0; i < pools_.launches.size() && pools_.launches[i].event < begin; ++i) {
      const std::uint32_t giver = pools_.launches[i].capture;
      const std::vector<LendablePools::Gift>& gifts = pools_.graphs[giver].gifts;
      for (std::uint32_t g = 0; g < gifts.size() && !launched[giver]; ++g) {
        if (pools_.EndOfGift(i, gifts[g]) >= begin) AddForGood(first_gifts_[giver] + g);
      }
    }
  }

  [[nodiscard]] std::uint32_t all() const { return static_cast<std::uint32_t>(schedule_.needed.size() - 1); }

  // No block lies in two pools: a run may have one of them otherwise.
  void TakeLendable(const ByteRanges& lendable) {
    Offset begin = 0;
    for (const LentPool& pool : pools_.pools) {
      for (const ByteRange& range : lendable) {
        const Offset first = RoundUp(std::max(range.begin, begin), kBlockAlignment);
        const Offset last = std::min(range.end, begin + pool.bytes) / kBlockAlignment * kBlockAlignment;
        if (first < last) schedule_.lendable.push_back({first, last});
      }
      begin += pool.bytes;
    }
  }

  void TakeMoments() {
    for (const GraphLaunch& launch : pools_.launches) schedule_.moments.push_back(launch.event);
    for (const FenceRange& fence : segmentation_.fences) schedule_.moments.push_back(fence.begin_event);
    std::ranges::sort(schedule_.moments);
  }

  void TakeTrace() {
    schedule_.filled = pools_.filled;
    const auto add = [this](std::uint64_t begin, std::uint64_t end, std::uint32_t bytes) {
      constexpr std::uint64_t kLast = std::numeric_limits<Tick>::max();
      schedule_.in_trace.push_back({{static_cast<Tick>(begin), static_cast<Tick>(std::min(end, kLast))}, bytes});
    };
    for (std::size_t i = 0; i < pools_.launches.size(); ++i) {
      const auto& [event, capture] = pools_.launches[i];
      add(event, event + 1, capture);
      const std::vector<LendablePools::Gift>& gifts = pools_.graphs[capture].gifts;
      for (std::uint32_t g = 0; g < gifts.size(); ++g) {
        add(event, pools_.EndOfGift(i, gifts[g]), first_gifts_[capture] + g);
      }
    }
    for (const FenceRange& fence : segmentation_.fences) add(fence.begin_event, fence.begin_event + 1, all());
    std::ranges::stable_sort(schedule_.in_trace, {}, [](const PoolSchedule::Need& need) { return need.life.begin; });
  }

  const LendablePools& pools_;
  const Segmentation& segmentation_;
  const DeviceTrace& device_;
  const SteadyModel& model_;
  std::vector<std::vector<CycleLaunch>> launches_;  // by script
  std::vector<std::uint32_t> first_gifts_;          // by capture: index into `needed`
  PoolSchedule schedule_;
};

}  // namespace

PoolSchedule SchedulePools(const LendablePools& pools, const Segmentation& segmentation, const DeviceTrace& device,
                           const SteadyModel& model) {
  return Scheduler(pools, segmentation, device, model).Run();
}

}  // namespace stalloc::planner
