#include "planner/analysis/lend_figures.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <map>
#include <vector>

#include "planner/analysis/byte_ranges.h"
#include "planner/analysis/lend.h"
#include "planner/analysis/pool_choice.h"
#include "planner/analysis/timeline.h"

namespace stalloc::planner {
namespace {

Bytes SizeOf(const ByteRanges& ranges) {
  Bytes sum = 0;
  for (const ByteRange& range : ranges) sum += range.end - range.begin;
  return sum;
}

SteadyModel WithoutPools(SteadyModel model) {
  model.pools = nullptr;
  return model;
}

struct MostHeld {
  Bytes bytes = 0;
  Bytes in_cycle = 0;
  Tick tick = 0;  // of the cycle, from its beginning: the first with so much
};

class FiguresFinder {
 public:
  FiguresFinder(const TracedRank& traced, const DeviceTrace& device, const SteadyModel& model, const SlotChoice& choice,
                const GraphNeeds& needs)
      : traced_(traced),
        device_(device),
        model_(model),
        choice_(choice),
        needs_(needs),
        shared_(ChoosePools(traced, device, WithoutPools(model), choice)) {}

  LendFigures Run() {
    CountPools();
    SteadyModel model = WithoutPools(model_);
    const Timeline apart = BuildTimeline(device_, model, choice_);
    const MostHeld most_apart = MostHeldOf(apart);
    found_.held = found_.held_apart = most_apart.bytes;
    found_.cycle_held = found_.cycle_held_apart = most_apart.in_cycle;
    if (schedule_.empty() || IsCapturedLate()) {
      found_.limit = WhyNothing();
      return found_;
    }
    model.pools = &schedule_;
    const Timeline shared = BuildTimeline(device_, model, choice_);
    const MostHeld most = MostHeldOf(shared);
    found_.held = most.bytes;
    found_.cycle_held = most.in_cycle;
    found_.requests = shared.lending.requests.size();
    found_.limit = WhyNoMore(shared, most.tick);
    return found_;
  }

 private:
  void CountPools() {
    const std::map<std::uint32_t, TracedPool> traced = FindTracedPools(device_);
    for (const GraphNeeds::Pool& pool : needs_.pools) {
      const auto known = traced.find(pool.number);
      const bool is_known = known != traced.end() && !known->second.layout.empty();
      found_.pools += is_known ? known->second.layout.bytes() : pool.most;
      found_.unknown += is_known ? 0 : 1;
    }
    found_.dead = SizeOf(lendable_.dead);
    found_.carried = SizeOf(lendable_.lendable) - found_.dead;
    found_.kept = SizeOf(lendable_.kept);
  }

  [[nodiscard]] MostHeld MostHeldOf(const Timeline& timeline) const {
    std::vector<Bytes> held = LoadByTick(timeline.problem, timeline.end);
    for (auto tick = static_cast<std::size_t>(CapturedTick(timeline)); tick < held.size(); ++tick) {
      held[tick] += found_.pools + timeline.lending.own_bytes();
    }
    const auto cycle = held.begin() + timeline.cycle_begin;
    const auto most = std::max_element(cycle, held.end());
    if (most == held.end()) return {};
    return {std::max(*std::ranges::max_element(held), needs_.peak), *most,
            static_cast<Tick>((most - cycle) % model_.length())};
  }

  // That of the first request after the first capture's beginning, at the latest the cycle's.
  [[nodiscard]] Tick CapturedTick(const Timeline& timeline) const {
    for (std::uint32_t s = 0; s < timeline.prologue; ++s) {
      const std::uint32_t segment = timeline.scripts[s].segment;
      if (segment != needs_.first_segment) continue;
      const std::vector<std::uint32_t>& requests = device_.segments[segment].allocations;
      const auto after = std::ranges::lower_bound(requests, needs_.first_event, {}, [&](std::uint32_t index) {
        return std::uint64_t{device_.allocations[index].event};
      });
      return timeline.scripts[s].begin + static_cast<Tick>(after - requests.begin());
    }
    return timeline.cycle_begin;
  }

  [[nodiscard]] LendLimit WhyNothing() const {
    const auto launches = [](const CapturedGraph& graph) { return graph.launches > 0; };
    if (traced_.head.live_before > 0) return LendLimit::kLateTrace;
    if (std::ranges::none_of(needs_.graphs, launches)) return LendLimit::kNoLaunch;
    if (lendable_.pools.empty()) return found_.unknown > 0 ? LendLimit::kUnknownPools : LendLimit::kKept;
    if (IsCapturedLate()) return LendLimit::kCapturedLate;
    return SizeOf(lendable_.lendable) < kLeastLent ? LendLimit::kKept : LendLimit::kOrder;
  }

  // The template of the cycle came before.
  [[nodiscard]] bool IsCapturedLate() const { return needs_.last_segment > model_.cycle.warmup + model_.cycle.period; }

  [[nodiscard]] LendLimit WhyNoMore(const Timeline& shared, Tick at) const {
    if (SizeOf(schedule_.lendable) < kLeastLent) return LendLimit::kKept;
    std::vector<ByteRange> written;
    std::vector<ByteRange> waiting;
    for (const PoolSchedule::Need& need : schedule_.needs) {
      if (at < need.life.begin || need.life.end <= at) continue;
      if (need.bytes + 1 == schedule_.needed.size()) return LendLimit::kFence;
      const ByteRanges& bytes = schedule_.needed[need.bytes];
      std::ranges::copy(bytes, std::back_inserter(need.bytes < lendable_.graphs.size() ? written : waiting));
    }
    const ByteRanges lendable = Merged(schedule_.lendable);
    const ByteRanges not_written = Without(lendable, Merged(std::move(written)));
    const ByteRanges free = Without(not_written, Merged(std::move(waiting)));
    return Greatest(SizeOf(lendable) - SizeOf(not_written), SizeOf(not_written) - SizeOf(free),
                    SizeOf(free) - std::min(SizeOf(free), LentAt(shared, at)));
  }

  [[nodiscard]] Bytes LentAt(const Timeline& shared, Tick at) const {
    Bytes sum = 0;
    for (const LentRequest& lent : shared.lending.requests) {
      const CycleEntry& entry = model_.scripts[lent.script][lent.entry];
      if (entry.begin <= at && at < entry.end) sum += lent.bytes;
    }
    return sum;
  }

  static LendLimit Greatest(Bytes written, Bytes waiting, Bytes free) {
    if (free > std::max(written, waiting)) return LendLimit::kBlocks;
    return waiting > written ? LendLimit::kCarried : LendLimit::kLaunch;
  }

  const TracedRank& traced_;
  const DeviceTrace& device_;
  const SteadyModel& model_;
  const SlotChoice choice_;
  const GraphNeeds& needs_;
  const PoolChoice shared_;
  const LendablePools& lendable_ = shared_.pools;
  const PoolSchedule& schedule_ = shared_.schedule;
  LendFigures found_;
};

}  // namespace

const char* LendLimitName(LendLimit limit) {
  constexpr std::array kNames{"late trace", "unknown pools", "no launch", "captured late", "kept",
                              "order",      "fence",         "launch",    "carried",       "blocks"};
  return kNames.at(static_cast<std::size_t>(limit));
}

LendFigures FindLendFigures(const TracedRank& traced, const DeviceTrace& device, const SteadyModel& model,
                            const SlotChoice& choice, const GraphNeeds& needs) {
  return FiguresFinder(traced, device, model, choice, needs).Run();
}

}  // namespace stalloc::planner
