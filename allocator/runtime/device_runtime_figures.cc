// What a device holds and has served, and the peaks of it.
#include <algorithm>
#include <utility>

#include "allocator/base/mutex.h"
#include "allocator/runtime/device_runtime_impl.h"

namespace stalloc {

std::shared_ptr<PlannedSpace> DeviceRuntime::Impl::NextSpace() const noexcept {
  if (!has_next_space.load(std::memory_order_acquire)) return nullptr;
  const LockGuard lock(next_space_mutex);
  return next_space.lock();
}

Bytes DeviceRuntime::Impl::OwnBytes() const noexcept {
  const std::shared_ptr<PlannedSpace> prepared = NextSpace();
  return spaces.MappedBytes() + (prepared != nullptr ? prepared->arena().mapped_bytes() : 0);
}

Upstream::Held DeviceRuntime::Impl::Sample() const {
  const Upstream::Held held = parts.upstream->HeldBytes();
  const Bytes own = OwnBytes();
  const LockGuard lock(cold);
  meter.Sample(own, held);
  if (!traces_exactly) run_arena_bytes = std::max(run_arena_bytes, spaces.MappedBytes());
  return held;
}

IterationPeaks DeviceRuntime::Impl::EndIteration() noexcept {
  Sample();
  const LockGuard lock(cold);
  last_iteration.live = ledger.PeakBytes(Span::kIteration);
  last_iteration.held = std::max(meter.PeakBytes(Span::kIteration), last_iteration.live);
  return last_iteration;
}

// After what goes back between two of them.
void DeviceRuntime::Impl::BeginIteration() noexcept {
  Sample();
  parts.upstream->BeginIteration();
  const Upstream::Held held = parts.upstream->HeldBytes();
  const Bytes own = OwnBytes();
  const LockGuard lock(cold);
  ledger.Begin(Span::kIteration);
  meter.Begin(Span::kIteration, own, held);
}

namespace {

// An exact trace has no plan that its requests could hit or miss.
void CountAsHeap(RuntimeStats* stats) noexcept {
  stats->heap_hits = std::exchange(stats->dynamic_hits, 0);
  stats->heap_bytes = std::exchange(stats->arena_bytes, 0);
  stats->arena_live_bytes = 0;
  stats->engine.misses = {};
}

}  // namespace

RuntimeStats DeviceRuntime::Stats() const {
  const Impl& self = *impl_;
  RuntimeStats stats;
  const PlannedSpace* const serving = self.spaces.Serving();
  if (serving != nullptr) stats.engine = serving->engine().Stats();
  self.counts.AddTo(&stats);
  for (const PlannedSpace* const space : self.spaces.All()) {
    // The serving one is read once: its live bytes and their peak belong together.
    const EngineStats engine = space == serving ? stats.engine : space->engine().Stats();
    stats.planned_hits += engine.planned_hits;
    stats.dynamic_hits += engine.dynamic_hits;
    stats.arena_live_bytes += engine.live_bytes;
    stats.lent.Add(space->chunks().GetCounts());
    stats.graphs.hits += engine.lent_hits;
    if (const GraphLending* const lending = space->lending(); lending != nullptr) {
      const GraphLending::Counts counts = lending->GetCounts();
      stats.graphs.times_lent += counts.times_lent;
      stats.graphs.surprises += counts.surprises;
      stats.graphs.lent_bytes += counts.lent_bytes;
      stats.graphs.most_bytes += counts.most_bytes;
    }
    stats.card_was_full = stats.card_was_full || space->chunks().was_card_full();
    if (space == serving || !space->has_plan()) continue;
    for (std::size_t i = 0; i < engine.misses.size(); ++i) stats.engine.misses[i] += engine.misses[i];
  }
  if (self.poison != nullptr) stats.graphs.filled_bytes = self.poison->filled_bytes();
  stats.unknown_frees = self.unknown_frees.count();
  stats.gave_up = serving != nullptr && serving->gave_up();
  stats.unlike = serving != nullptr && serving->unlike();
  stats.left = self.left.load(std::memory_order_relaxed);
  if (serving != nullptr && serving->has_plan()) {
    stats.plan = {serving->plan().arena_bytes, serving->plan().predicted.efficiency};
  }
  stats.departed = serving != nullptr && serving->departed();
  stats.arena_bytes = self.spaces.MappedBytes();
  if (self.traces_exactly) CountAsHeap(&stats);
  if (self.watch != nullptr) stats.watch = self.watch->watch().Counts();
  stats.live_bytes = self.ledger.live_bytes();
  stats.peak_live_bytes = self.ledger.PeakBytes(Span::kReset);
  const Upstream::Held held = self.Sample();
  stats.upstream_reserved_bytes = held.current;
  stats.upstream_reserved_peak_bytes = held.peak;
  stats.run.live_bytes = self.ledger.PeakBytes(Span::kRun);
  {
    const LockGuard lock(self.cold);
    // What lives is held: where the arena grew after upstream had its peak, the meter may have seen less.
    stats.held_peak_bytes = std::max(self.meter.PeakBytes(Span::kReset), stats.peak_live_bytes);
    stats.run.held_bytes = std::max(self.meter.PeakBytes(Span::kRun), stats.run.live_bytes);
    stats.run.upstream_bytes = self.meter.run_upstream_peak();
    stats.run.arena_bytes = self.run_arena_bytes;
    stats.last_iteration = self.last_iteration;
    stats.native = {self.native_known.held, self.native_known.live, self.native_known.overflowed};
    if (self.taken_up_at.has_value()) {
      const Bytes live = self.ledger.PeakBytes(Span::kPlan);
      stats.since_plan = {*self.taken_up_at, live, std::max(self.meter.PeakBytes(Span::kPlan), live), 0};
    }
  }
  const auto ratio = [](Bytes live, Bytes all) {
    return all == 0 ? 0.0 : static_cast<double>(live) / static_cast<double>(all);
  };
  stats.efficiency = ratio(stats.peak_live_bytes, stats.held_peak_bytes);
  stats.run.efficiency = ratio(stats.run.live_bytes, stats.run.held_bytes);
  if (auto& since = stats.since_plan) since->efficiency = ratio(since->peak_live_bytes, since->held_peak_bytes);
  return stats;
}

void DeviceRuntime::ResetPeaks() noexcept {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return;
  const Upstream::Held held = self.Sample();
  for (PlannedSpace* const space : self.spaces.All()) space->engine().ResetPeak();
  const Bytes own = self.OwnBytes();
  const LockGuard lock(self.cold);
  self.ledger.Begin(Span::kReset);
  self.meter.Begin(Span::kReset, own, held);
}

}  // namespace stalloc
