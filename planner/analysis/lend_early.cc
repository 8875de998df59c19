#include "planner/analysis/lend_early.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "planner/analysis/falling_load.h"
#include "planner/analysis/lend.h"
#include "planner/analysis/lending_space.h"

namespace stalloc::planner {
namespace {

// In the trace's events, and of the pools' own memory alone.
PoolSchedule InTrace(const PoolSchedule& schedule, const std::vector<ByteRanges>& own) {
  PoolSchedule in_trace;
  in_trace.pools = schedule.pools;
  in_trace.needed = schedule.needed;
  in_trace.needs = schedule.in_trace;
  std::vector<ByteRange> lacking;
  Offset begin = 0;
  for (std::size_t pool = 0; pool < schedule.pools.size(); ++pool) {
    for (const ByteRange& range : own[pool]) {
      const Offset end = std::min(range.end, schedule.pools[pool].bytes);
      if (range.begin < end) lacking.push_back({begin + range.begin, begin + end});
    }
    begin += schedule.pools[pool].bytes;
  }
  in_trace.lendable = Without(schedule.lendable, Merged(std::move(lacking)));
  return in_trace;
}

struct Candidate {
  LentRequest request;
  Lifetime life;      // ticks of the timeline
  Lifetime in_trace;  // events
  std::uint32_t stream = 0;
};

class EarlyChooser {
 public:
  EarlyChooser(const PoolSchedule& in_trace, std::uint64_t filled, const DeviceTrace& device, const Timeline& timeline)
      : device_(device), timeline_(timeline), space_(in_trace), filled_(filled) {}

  std::vector<EarlyLent> Run(Bytes enough) {
    FindCandidates();
    if (candidates_.empty()) return {};
    FallingLoad load(LoadOfWindow());
    Bytes least = load.most();
    std::size_t useful = 0;
    std::vector<EarlyLent> lent;
    for (std::size_t tries = 0; load.most() > enough && tries < kMostTries; ++tries) {
      const auto next = LargestAt(load.peak());
      if (next == candidates_.end()) break;
      const Candidate candidate = *next;
      candidates_.erase(next);
      const LendingSpace::Wanted wanted{candidate.request.bytes, candidate.in_trace, candidate.in_trace.end};
      const std::optional<LendingSpace::Place> place = space_.Find(wanted);
      if (!place.has_value()) continue;
      space_.Take(wanted, *place);
      load.Lower(candidate.life, candidate.request.bytes);
      lent.push_back({candidate.request, place->pool});
      lent.back().request.offset = place->offset;
      if (load.most() >= least) continue;
      least = load.most();
      useful = lent.size();
    }
    lent.resize(useful);
    return lent;
  }

 private:
  void FindCandidates() {
    std::map<std::uint32_t, Bytes> by_stream;
    for (std::uint32_t s = 0; s < timeline_.prologue; ++s) {
      const TimelineScript& script = timeline_.scripts[s];
      for (std::uint32_t e = 0; e < script.entries.size(); ++e) {
        const TimelineEntry& entry = script.entries[e];
        if (!MayBeLent(entry)) continue;
        const Block& block = timeline_.problem.blocks[entry.block];
        const Allocation& allocation = device_.allocations[entry.allocation];
        const Lifetime in_trace{allocation.event, allocation.free_event};
        candidates_.push_back({{s, e, 0, entry.bytes}, block.life, in_trace, block.stream});
        by_stream[block.stream] += entry.bytes;
      }
    }
    if (candidates_.empty()) return;
    const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
    const std::uint32_t stream = std::max_element(by_stream.begin(), by_stream.end(), less)->first;
    std::erase_if(candidates_, [stream](const Candidate& candidate) { return candidate.stream != stream; });
    const auto bytes_of = [](const Candidate& candidate) { return candidate.request.bytes; };
    std::ranges::stable_sort(candidates_, std::ranges::greater{}, bytes_of);
  }

  [[nodiscard]] bool MayBeLent(const TimelineEntry& entry) const {
    if (entry.block == kNone || entry.entry_class != EntryClass::kStatic || entry.bytes < kLeastLent) return false;
    const Allocation& allocation = device_.allocations[entry.allocation];
    const Block& block = timeline_.problem.blocks[entry.block];
    return allocation.event > filled_ && allocation.freed() && !block.recorded && block.bytes == entry.bytes &&
           !block.second_life.has_value() && block.life.end <= timeline_.cycle_begin;
  }

  // Of the time from the first candidate's begin to the last one's end.
  [[nodiscard]] std::vector<Bytes> LoadOfWindow() const {
    Lifetime window = candidates_.front().life;
    for (const Candidate& candidate : candidates_) {
      window = {std::min(window.begin, candidate.life.begin), std::max(window.end, candidate.life.end)};
    }
    std::vector<Bytes> load = LoadByTick(timeline_.problem, timeline_.end);
    std::fill_n(load.begin(), window.begin, Bytes{0});
    std::fill(load.begin() + window.end, load.end(), Bytes{0});
    return load;
  }

  [[nodiscard]] std::vector<Candidate>::iterator LargestAt(Tick tick) {
    return std::ranges::find_if(candidates_, [tick](const Candidate& candidate) {
      return candidate.life.begin <= tick && tick < candidate.life.end;
    });
  }

  const DeviceTrace& device_;
  const Timeline& timeline_;
  LendingSpace space_;
  const std::uint64_t filled_;         // event
  std::vector<Candidate> candidates_;  // largest first
};

}  // namespace

std::vector<EarlyLent> ChooseEarlyLent(const PoolSchedule& schedule, const std::vector<ByteRanges>& own,
                                       const DeviceTrace& device, const Timeline& timeline, Bytes enough) {
  const PoolSchedule in_trace = InTrace(schedule, own);
  return EarlyChooser(in_trace, schedule.filled, device, timeline).Run(enough);
}

}  // namespace stalloc::planner
