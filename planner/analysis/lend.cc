#include "planner/analysis/lend.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "planner/analysis/falling_load.h"
#include "planner/analysis/lend_early.h"
#include "planner/analysis/lending_space.h"

namespace stalloc::planner {
namespace {

struct Candidate {
  std::uint32_t script = 0;  // of the period
  std::uint32_t entry = 0;
  LendingSpace::Wanted wanted;

  [[nodiscard]] bool IsAlive(Tick at) const { return wanted.life.begin <= at && at < wanted.life.end; }
};

struct Found {
  LentRequest request;  // its offset is in the pool's place
  LendingSpace::Place place;
};

struct Choice {
  std::vector<Found> lent;
  Bytes held = 0;  // in the cycle, besides the pools
};

class Chooser {
 public:
  // `owns_early`: a large block gets own memory before smaller ones without it take the space.
  Chooser(const PoolSchedule& schedule, const DeviceTrace& device, const SteadyModel& model, const Timeline& timeline,
          bool owns_early)
      : schedule_(schedule),
        device_(device),
        model_(model),
        timeline_(timeline),
        owns_early_(owns_early),
        space_(schedule) {}

  Choice Run() {
    FindCandidates();
    FallingLoad load(LoadOfCycle());
    Bytes least = load.most();
    Bytes own = 0;
    std::size_t useful = 0;
    std::vector<Found> lent;
    for (tries_ = 0; tries_ < kMostTries;) {
      std::optional<Found> next = LendAt(load.peak());
      if (!next.has_value()) break;
      const LentRequest& request = next->request;
      for (std::uint32_t copy = 0; copy < timeline_.copies; ++copy) {
        load.Lower(LifeInCopy(request, copy), request.bytes);
      }
      own += next->place.own_bytes();
      lent.push_back(*std::move(next));
      if (load.most() + own >= least) continue;
      least = load.most() + own;
      useful = lent.size();
    }
    lent.resize(useful);
    return {std::move(lent), least};
  }

 private:
  // Set-up may need more, but pools are not yet full then, and what it leaves idle goes back.
  [[nodiscard]] std::vector<Bytes> LoadOfCycle() const {
    std::vector<Bytes> load = LoadByTick(timeline_.problem, timeline_.end);
    std::fill_n(load.begin(), timeline_.cycle_begin, Bytes{0});
    return load;
  }

  void FindCandidates() {
    const std::uint32_t stream = MostUsedStream();
    for (std::uint32_t c = 0; c < model_.scripts.size(); ++c) {
      for (std::uint32_t e = 0; e < model_.scripts[c].size(); ++e) {
        const CycleEntry& entry = model_.scripts[c][e];
        if (!MayBeLent(entry, timeline_.scripts[timeline_.prologue + c].entries[e], stream)) continue;
        const Tick reach = entry.end - (IsFreedBeforeLaunches(c, e) ? 1 : 0);
        candidates_.push_back({c, e, {entry.bytes, {entry.begin, entry.end}, reach}});
      }
    }
    const auto bytes_of = [](const Candidate& candidate) { return candidate.wanted.bytes; };
    std::ranges::stable_sort(candidates_, std::ranges::greater{}, bytes_of);
  }

  [[nodiscard]] std::uint32_t MostUsedStream() const {
    std::map<std::uint32_t, Bytes> bytes;
    for (const std::vector<CycleEntry>& script : model_.scripts) {
      for (const CycleEntry& entry : script) bytes[device_.allocations[entry.allocation].stream] += entry.bytes;
    }
    const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto most = std::max_element(bytes.begin(), bytes.end(), less);
    return most == bytes.end() ? 0 : most->first;
  }

  [[nodiscard]] bool MayBeLent(const CycleEntry& entry, const TimelineEntry& placed, std::uint32_t stream) const {
    const bool keeps_size = placed.entry_class == EntryClass::kStatic || placed.entry_class == EntryClass::kOptional;
    if (placed.block == kNone || !keeps_size || entry.resident) return false;
    const Block& block = timeline_.problem.blocks[placed.block];
    return entry.end <= model_.length() && entry.bytes >= kLeastLent && block.bytes == entry.bytes &&
           block.stream == stream && !block.recorded;
  }

  // In all iterations that have it alive up to its end, it is freed there before any launch comes, and any fence.
  [[nodiscard]] bool IsFreedBeforeLaunches(std::uint32_t c, std::uint32_t e) const {
    bool found = false;
    for (std::uint32_t i = model_.cycle.warmup; i < model_.cycle.typical.size(); ++i) {
      if (!model_.cycle.typical[i] || model_.cycle.ScriptOf(i) != c) continue;
      const std::uint32_t ordinal = model_.alignments[i + 1]->ToRight(e);
      if (ordinal == kNone) continue;
      const Allocation& block = device_.Request(i + 1, ordinal);
      if (!block.freed()) return false;
      if (model_.Position(i, block.free_segment - 1, block.free_ordinal) < model_.scripts[c][e].end) continue;
      if (HasMoment(RequestBefore(block), block.free_event)) return false;
      found = true;
    }
    return found;
  }

  // The event of the last request before the block's free.
  [[nodiscard]] std::uint64_t RequestBefore(const Allocation& block) const {
    if (block.free_ordinal > 0) return device_.Request(block.free_segment, block.free_ordinal - 1).event;
    for (std::uint32_t segment = block.free_segment; segment-- > 0;) {
      const std::vector<std::uint32_t>& requests = device_.segments[segment].allocations;
      if (!requests.empty()) return device_.allocations[requests.back()].event;
    }
    return 0;
  }

  [[nodiscard]] bool HasMoment(std::uint64_t begin, std::uint64_t end) const {
    const auto next = std::ranges::lower_bound(schedule_.moments, begin);
    return next != schedule_.moments.end() && *next < end;
  }

  // The largest block of those alive that has a place; if none has, that which leaves most of its bytes to the pool.
  std::optional<Found> LendAt(Tick tick) {
    if (tick < timeline_.cycle_begin) return std::nullopt;
    const Tick at = (tick - timeline_.cycle_begin) % model_.length();
    std::optional<Found> lent;
    const auto try_one = [&](const Candidate& candidate) {
      if (lent.has_value() || !candidate.IsAlive(at) || tries_ >= kMostTries) return false;
      ++tries_;
      std::optional<LendingSpace::Place> place;
      if (!owns_early_) place = space_.Find(candidate.wanted);
      if (place.has_value()) {
        lent = Take(candidate, *std::move(place));
      } else {
        without_place_.push_back(candidate);
      }
      return true;
    };
    std::erase_if(candidates_, try_one);
    return lent.has_value() ? lent : LendWithOwnAt(at);
  }

  std::optional<Found> LendWithOwnAt(Tick at) {
    std::optional<LendingSpace::Place> best;
    Bytes most = 0;
    auto taken = without_place_.end();
    for (auto candidate = without_place_.begin(); candidate != without_place_.end(); ++candidate) {
      if (!candidate->IsAlive(at) || candidate->wanted.bytes <= most || own_tries_ == kMostOwnTries) continue;
      ++own_tries_;
      std::optional<LendingSpace::Place> place = space_.FindWithOwn(candidate->wanted);
      if (!place.has_value() || candidate->wanted.bytes <= most + place->own_bytes()) continue;
      most = candidate->wanted.bytes - place->own_bytes();
      best = std::move(place);
      taken = candidate;
    }
    if (!best.has_value()) return std::nullopt;
    Found lent = Take(*taken, *std::move(best));
    without_place_.erase(taken);
    return lent;
  }

  Found Take(const Candidate& candidate, LendingSpace::Place place) {
    space_.Take(candidate.wanted, place);
    const LentRequest request{candidate.script, candidate.entry, place.offset, candidate.wanted.bytes};
    return {request, std::move(place)};
  }

  [[nodiscard]] Lifetime LifeInCopy(const LentRequest& lent, std::uint32_t copy) const {
    const CycleEntry& entry = model_.scripts[lent.script][lent.entry];
    const Tick shift = timeline_.cycle_begin + copy * model_.length();
    return {entry.begin + shift, entry.end + shift};
  }

  const PoolSchedule& schedule_;
  const DeviceTrace& device_;
  const SteadyModel& model_;
  const Timeline& timeline_;
  const bool owns_early_;
  LendingSpace space_;
  std::vector<Candidate> candidates_;  // not tried, largest first
  std::vector<Candidate> without_place_;
  std::size_t tries_ = 0;
  std::size_t own_tries_ = 0;
};

// Blocks that are marked are gone.
void RemoveBlocks(const std::vector<bool>& gone, Timeline* timeline) {
  std::vector<Block>& blocks = timeline->problem.blocks;
  std::vector<std::uint32_t> numbers(blocks.size(), kNone);
  std::uint32_t next = 0;
  for (std::uint32_t block = 0; block < blocks.size(); ++block) {
    if (gone[block]) continue;
    numbers[block] = next;
    blocks[next] = blocks[block];
    timeline->twins[next++] = timeline->twins[block];
  }
  blocks.resize(next);
  timeline->twins.resize(next);
  RenumberBlocks(numbers, timeline);
}

// By pool.
std::vector<ByteRanges> OwnOf(const Choice& choice, const std::vector<LentPool>& pools) {
  std::vector<ByteRanges> own(pools.size());
  for (const auto& [request, place] : choice.lent) {
    own[place.pool].insert(own[place.pool].end(), place.own.begin(), place.own.end());
  }
  for (ByteRanges& ranges : own) ranges = Merged(std::move(ranges));
  return own;
}

// For these pools only those that something lies in.
Lending LendingOf(const Choice& choice, const std::vector<EarlyLent>& early, const std::vector<ByteRanges>& own,
                  const std::vector<LentPool>& pools) {
  std::vector<bool> used(pools.size());
  for (const auto& [request, place] : choice.lent) used[place.pool] = true;
  for (const auto& [request, pool] : early) used[pool] = true;
  Lending lending;
  lending.cycle_bytes = choice.held;
  std::vector<Offset> begins(pools.size());
  Offset begin = 0;
  for (std::size_t i = 0; i < pools.size(); ++i) {
    begins[i] = begin;
    if (!used[i]) continue;
    LentPool& pool = lending.pools.emplace_back(pools[i]);
    for (const ByteRange& range : own[i]) pool.own.push_back({range.begin, range.end - range.begin});
    begin += pool.extent();
  }
  for (const auto& [request, place] : choice.lent) {
    lending.requests.push_back(request);
    lending.requests.back().offset += begins[place.pool];
  }
  for (const auto& [request, pool] : early) {
    lending.early.push_back(request);
    lending.early.back().offset += begins[pool];
  }
  return lending;
}

}  // namespace

Lending ChooseLent(const PoolSchedule& schedule, const DeviceTrace& device, const SteadyModel& model,
                   const Timeline& timeline) {
  if (schedule.empty()) return {};
  const Choice small_first = Chooser(schedule, device, model, timeline, /*owns_early=*/false).Run();
  const Choice large_first = Chooser(schedule, device, model, timeline, /*owns_early=*/true).Run();
  const Choice& best = large_first.held < small_first.held ? large_first : small_first;
  const std::vector<ByteRanges> own = OwnOf(best, schedule.pools);
  return LendingOf(best, ChooseEarlyLent(schedule, own, device, timeline, best.held), own, schedule.pools);
}

void Lend(Lending lending, Timeline* timeline) {
  if (lending.requests.empty() && lending.early.empty()) return;
  const std::size_t period = (timeline->scripts.size() - timeline->prologue) / timeline->copies;
  std::vector<bool> gone(timeline->problem.blocks.size());
  for (std::uint32_t i = 0; i < lending.requests.size(); ++i) {
    const LentRequest& request = lending.requests[i];
    for (std::size_t s = timeline->prologue + request.script; s < timeline->scripts.size(); s += period) {
      TimelineEntry& entry = timeline->scripts[s].entries[request.entry];
      gone[entry.block] = true;
      entry.block = kNone;
      entry.lent = i;
    }
  }
  for (std::uint32_t i = 0; i < lending.early.size(); ++i) {
    TimelineEntry& entry = timeline->scripts[lending.early[i].script].entries[lending.early[i].entry];
    gone[entry.block] = true;
    entry.block = kNone;
    entry.lent = static_cast<std::uint32_t>(lending.requests.size()) + i;
  }
  RemoveBlocks(gone, timeline);
  timeline->lending = std::move(lending);
}

}  // namespace stalloc::planner
