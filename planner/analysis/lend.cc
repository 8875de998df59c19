#include "planner/analysis/lend.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

namespace stalloc::planner {
namespace {

// Bytes by tick, with their greatest; ranges of ticks may be made less.
class Load {
 public:
  explicit Load(const std::vector<Bytes>& by_tick)
      : leaves_(std::bit_ceil(by_tick.size())), most_(2 * leaves_), less_(2 * leaves_) {
    std::copy(by_tick.begin(), by_tick.end(), most_.begin() + static_cast<std::ptrdiff_t>(leaves_));
    for (std::size_t node = leaves_ - 1; node > 0; --node) most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
  }

  [[nodiscard]] Bytes most() const { return most_[1]; }
  // The first tick that has the most.
  [[nodiscard]] Tick peak() const {
    std::size_t node = 1;
    while (node < leaves_) node = 2 * node + (most_[2 * node] >= most_[2 * node + 1] ? 0 : 1);
    return static_cast<Tick>(node - leaves_);
  }
  // REQUIRES: each tick of it has as much.
  void Lower(const Lifetime& life, Bytes bytes) {
    Lower(1, 0, leaves_, static_cast<std::size_t>(life.begin), static_cast<std::size_t>(life.end), bytes);
  }

 private:
  void Lower(std::size_t node, std::size_t first, std::size_t last, std::size_t begin, std::size_t end, Bytes bytes) {
    if (end <= first || last <= begin) return;
    if (begin <= first && last <= end) {
      most_[node] -= bytes;
      less_[node] += bytes;
      return;
    }
    const std::size_t middle = (first + last) / 2;
    Lower(2 * node, first, middle, begin, end, bytes);
    Lower(2 * node + 1, middle, last, begin, end, bytes);
    most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) - less_[node];
  }

  const std::size_t leaves_;
  std::vector<Bytes> most_;  // by node, with what was taken from all of it
  std::vector<Bytes> less_;  // by node: taken from all of it
};

struct Candidate {
  std::uint32_t script = 0;  // of the period
  std::uint32_t entry = 0;
  Bytes bytes = 0;
  Lifetime life;   // in the cycle
  Tick reach = 0;  // so far launches find it: its end, or one less if it is freed before those that come then
};

// Free bytes of the pools in the time of the cycle.
class LendingSpace {
 public:
  explicit LendingSpace(const PoolSchedule& schedule) : schedule_(schedule), marked_(schedule.needed.size()) {
    for (const ByteRange& range : schedule.lendable) largest_ = std::max(largest_, range.end - range.begin);
  }

  // The lowest offset where it meets neither a need nor another block; taken.
  std::optional<Offset> Take(const Candidate& candidate) {
    if (candidate.bytes > largest_) return std::nullopt;
    const ByteRanges occupied = Occupied(candidate);
    auto next = occupied.begin();
    for (const ByteRange& range : schedule_.lendable) {
      Offset begin = range.begin;
      while (next != occupied.end() && next->end <= begin) ++next;
      for (auto in_way = next; in_way != occupied.end() && in_way->begin < begin + candidate.bytes; ++in_way) {
        begin = std::max(begin, RoundUp(in_way->end, kBlockAlignment));
      }
      if (begin + candidate.bytes > range.end) continue;
      taken_.push_back({candidate.life, {begin, begin + candidate.bytes}});
      return begin;
    }
    return std::nullopt;
  }

 private:
  struct Taken {
    Lifetime life;
    ByteRange bytes;
  };

  ByteRanges Occupied(const Candidate& candidate) {
    std::vector<ByteRange> ranges;
    for (const Taken& taken : taken_) {
      if (taken.life.Overlaps(candidate.life)) ranges.push_back(taken.bytes);
    }
    const Lifetime life{candidate.life.begin, candidate.reach};
    marked_.assign(marked_.size(), false);
    for (const PoolSchedule::Need& need : schedule_.needs) {
      if (need.life.begin >= candidate.life.end) break;
      if (marked_[need.bytes] || !need.life.Overlaps(life)) continue;
      marked_[need.bytes] = true;
      const ByteRanges& needed = schedule_.needed[need.bytes];
      ranges.insert(ranges.end(), needed.begin(), needed.end());
    }
    return Merged(std::move(ranges));
  }

  const PoolSchedule& schedule_;
  std::vector<bool> marked_;  // by needed
  std::vector<Taken> taken_;
  Bytes largest_ = 0;
};

// For these pools only those that something lies in.
Lending LendingOf(std::vector<LentRequest> requests, const std::vector<LentPool>& pools) {
  std::vector<Offset> ends;
  for (const LentPool& pool : pools) ends.push_back((ends.empty() ? 0 : ends.back()) + pool.bytes);
  const auto pool_of = [&](const LentRequest& lent) {
    return static_cast<std::size_t>(std::ranges::upper_bound(ends, lent.offset) - ends.begin());
  };
  std::vector<bool> used(pools.size());
  for (const LentRequest& lent : requests) used[pool_of(lent)] = true;
  Lending lending;
  std::vector<Bytes> left_out(pools.size());  // before each
  Bytes sum = 0;
  for (std::size_t i = 0; i < pools.size(); ++i) {
    left_out[i] = sum;
    if (used[i]) lending.pools.push_back(pools[i]);
    sum += used[i] ? 0 : pools[i].bytes;
  }
  for (LentRequest& lent : requests) lent.offset -= left_out[pool_of(lent)];
  lending.requests = std::move(requests);
  return lending;
}

class Chooser {
 public:
  Chooser(const PoolSchedule& schedule, const DeviceTrace& device, const SteadyModel& model, const Timeline& timeline)
      : schedule_(schedule), device_(device), model_(model), timeline_(timeline), space_(schedule) {}

  Lending Run() {
    FindCandidates();
    Load load(LoadOfCycle());
    Bytes least = load.most();
    std::size_t useful = 0;
    std::vector<LentRequest> lent;
    for (tries_ = 0; tries_ < kMostTries;) {
      const std::optional<LentRequest> next = LendAt(load.peak());
      if (!next.has_value()) break;
      lent.push_back(*next);
      for (std::uint32_t copy = 0; copy < timeline_.copies; ++copy) load.Lower(LifeInCopy(*next, copy), next->bytes);
      if (load.most() >= least) continue;
      least = load.most();
      useful = lent.size();
    }
    lent.resize(useful);
    Lending lending = LendingOf(std::move(lent), schedule_.pools);
    lending.cycle_bytes = least;
    return lending;
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
        candidates_.push_back({c, e, entry.bytes, {entry.begin, entry.end}, reach});
      }
    }
    std::ranges::stable_sort(candidates_, std::ranges::greater{}, &Candidate::bytes);
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

  // The largest block of those alive that has a place.
  std::optional<LentRequest> LendAt(Tick tick) {
    if (tick < timeline_.cycle_begin) return std::nullopt;
    const Tick at = (tick - timeline_.cycle_begin) % model_.length();
    std::optional<LentRequest> lent;
    const auto try_one = [&](const Candidate& candidate) {
      const bool alive = candidate.life.begin <= at && at < candidate.life.end;
      if (lent.has_value() || !alive || tries_ >= kMostTries) return false;
      ++tries_;
      if (const std::optional<Offset> offset = space_.Take(candidate)) {
        lent = LentRequest{candidate.script, candidate.entry, *offset, candidate.bytes};
      }
      return true;
    };
    std::erase_if(candidates_, try_one);
    return lent;
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
  LendingSpace space_;
  std::vector<Candidate> candidates_;  // not tried, largest first
  std::size_t tries_ = 0;
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

}  // namespace

Lending ChooseLent(const PoolSchedule& schedule, const DeviceTrace& device, const SteadyModel& model,
                   const Timeline& timeline) {
  if (schedule.empty()) return {};
  return Chooser(schedule, device, model, timeline).Run();
}

void Lend(Lending lending, Timeline* timeline) {
  if (lending.requests.empty()) return;
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
  RemoveBlocks(gone, timeline);
  timeline->lending = std::move(lending);
}

}  // namespace stalloc::planner
