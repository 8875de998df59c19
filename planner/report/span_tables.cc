#include "planner/report/span_tables.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "planner/analysis/sweep.h"

namespace stalloc::planner {
namespace {

std::int64_t TimeOf(const TraceClock& clock, std::uint64_t event) {
  return event < clock.time_ns.size() ? clock.time_ns[event] : clock.end_ns();
}

class LayerTable {
 public:
  explicit LayerTable(const DeviceFacts& facts) : facts_(facts) {}

  std::vector<LayerRow> Build() {
    Sweep sweep(facts_.device);
    for (SweepStep step; sweep.Next(&step);) {
      PassEdgesBefore(step.event);
      TakeStep(step);
    }
    PassEdgesBefore(facts_.events + 1);
    return std::move(rows_);
  }

 private:
  struct Visit {
    std::size_t row = 0;
    Bytes begin_live = 0;
    Bytes peak_live = 0;
    BytesByClass peak_by_class{};
    std::uint64_t requests = 0;
    Bytes requested = 0;
    std::int64_t begin_ns = 0;
  };

  // For a Visit or a LayerRow.
  template <typename Peak>
  static void Raise(Bytes live, const BytesByClass& by_class, Peak* peak) {
    if (live <= peak->peak_live) return;
    peak->peak_live = live;
    peak->peak_by_class = by_class;
  }

  void TakeStep(const SweepStep& step) {
    const Bytes bytes = facts_.device.allocations[step.allocation].bytes;
    live_ = step.is_free ? live_ - bytes : live_ + bytes;
    Bytes& of_class = by_class_[static_cast<std::size_t>(facts_.blocks[step.allocation].memory_class)];
    of_class = step.is_free ? of_class - bytes : of_class + bytes;
    if (open_.empty()) return;
    Raise(live_, by_class_, &open_.back());
    if (!step.is_free) {
      ++open_.back().requests;
      open_.back().requested += bytes;
    }
  }

  void PassEdgesBefore(std::uint64_t event) {
    const std::vector<LayerEdge>& edges = facts_.layers.edges();
    for (; next_ < edges.size() && edges[next_].event < event; ++next_) {
      edges[next_].begin ? Enter(edges[next_]) : Leave(edges[next_].event);
    }
  }

  void Enter(const LayerEdge& edge) {
    const auto [found, is_new] = known_.try_emplace({edge.name, edge.pass}, rows_.size());
    if (is_new) rows_.push_back({edge.name, edge.pass});
    open_.push_back({found->second, live_, live_, by_class_, 0, 0, TimeOf(facts_.clock, edge.event)});
  }

  void Leave(std::uint64_t event) {
    const Visit visit = open_.back();
    open_.pop_back();
    LayerRow& row = rows_[visit.row];
    const std::int64_t net = static_cast<std::int64_t>(live_) - static_cast<std::int64_t>(visit.begin_live);
    row.most_net = row.visits == 0 ? net : std::max(row.most_net, net);
    ++row.visits;
    row.ns += TimeOf(facts_.clock, event) - visit.begin_ns;
    Raise(visit.peak_live, visit.peak_by_class, &row);
    row.most_rise = std::max(row.most_rise, visit.peak_live - visit.begin_live);
    row.most_spike = std::max(row.most_spike, visit.peak_live - std::max(visit.begin_live, live_));
    row.requests += visit.requests;
    row.requested += visit.requested;
    if (!open_.empty()) {
      Raise(visit.peak_live, visit.peak_by_class, &open_.back());
      open_.back().requests += visit.requests;
      open_.back().requested += visit.requested;
    }
  }

  const DeviceFacts& facts_;
  std::map<std::pair<std::uint32_t, Pass>, std::size_t> known_;
  std::vector<LayerRow> rows_;
  std::vector<Visit> open_;
  std::size_t next_ = 0;
  Bytes live_ = 0;
  BytesByClass by_class_{};
};

}  // namespace

std::vector<PhaseRow> TabulatePhases(const DeviceFacts& facts) {
  std::vector<PhaseRow> rows;
  Bytes live = 0;
  BytesByClass by_class{};
  const auto open_until = [&](std::size_t span) {
    while (rows.size() <= span) {
      if (!rows.empty()) rows.back().end_live = live;
      const std::uint64_t begin = facts.phases.spans()[rows.size()].begin_event;
      rows.push_back({TimeOf(facts.clock, begin), live, live, live, 0, 0, by_class});
    }
  };
  Sweep sweep(facts.device);
  for (SweepStep step; sweep.Next(&step);) {
    open_until(step.is_free ? facts.blocks[step.allocation].free_phase : facts.blocks[step.allocation].phase);
    const Bytes bytes = facts.device.allocations[step.allocation].bytes;
    live = step.is_free ? live - bytes : live + bytes;
    Bytes& of_class = by_class[static_cast<std::size_t>(facts.blocks[step.allocation].memory_class)];
    of_class = step.is_free ? of_class - bytes : of_class + bytes;
    PhaseRow& row = rows.back();
    row.peak_live = std::max(row.peak_live, live);
    row.requests += !step.is_free;
    row.requested += step.is_free ? 0 : bytes;
  }
  open_until(facts.phases.spans().size() - 1);
  rows.back().end_live = live;
  return rows;
}

std::vector<LayerRow> TabulateLayers(const DeviceFacts& facts) { return LayerTable(facts).Build(); }

}  // namespace stalloc::planner
