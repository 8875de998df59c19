// LentRegion: the part of the arena's addresses in which graphs' pools are mapped a second time, one layout after
// another (proto/model/pool_layout.h). A pool serves slots of the plan while it is open; what its launches always need
// stays closed. It also keeps which threads launch a pool's graphs: blocks that lie there are theirs, so that nobody
// gives the device work on them while a launch moves them away.
//
// Not thread-safe (the engine's lock); noexcept after construction, but for Open. Granules.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "allocator/base/range_set.h"
#include "allocator/engine/bytes/plan_reading.h"
#include "allocator/graphs/launch_listener.h"
#include "proto/model/plan.h"

namespace stalloc {

struct TakenRange {
  GranuleRange range;
  GraphId from = 0;  // who gives it
  bool operator==(const TakenRange&) const = default;
};

// What the launches of one graph need of its pool: ranges of the arena.
struct GraphRanges {
  std::vector<GranuleRange> own;    // during a launch alone, with what it takes; disjoint, also from `gives`
  std::vector<GranuleRange> gives;  // from a launch to the one of the graph that takes it; disjoint
  std::vector<TakenRange> takes;    // that an earlier graph has given
};

class LentRegion {
 public:
  static constexpr std::size_t kMostPools = 64;

  // The plan's pools lie one after another from `begin` on. begin == end: nothing is ever lent.
  LentRegion(const std::vector<LentPool>& pools, Granules begin, Granules end) : begin_(begin), end_(end) {
    pools_.reserve(kMostPools);
    if (begin == end) return;
    for (const LentPool& pool : pools) (void)Add(WholeGranules(pool.extent()));
    (void)closed_.Add(begin, end);
  }

  // After those that are there. Its index, none where there is no space.
  [[nodiscard]] std::optional<std::size_t> Add(Granules granules) noexcept {
    const Granules at = pools_.empty() ? begin_ : pools_.back().range.hi;
    if (pools_.size() == kMostPools || granules > end_ - at) return std::nullopt;
    pools_.push_back({.range = {at, at + granules}});
    return pools_.size() - 1;
  }

  [[nodiscard]] Granules begin() const noexcept { return begin_; }
  [[nodiscard]] Granules end() const noexcept { return end_; }
  [[nodiscard]] std::size_t pools() const noexcept { return pools_.size(); }
  [[nodiscard]] GranuleRange RangeOf(std::size_t pool) const noexcept { return pools_[pool].range; }
  [[nodiscard]] bool Contains(Granules lo, Granules hi) const noexcept { return begin_ <= lo && hi <= end_; }

  // [lo, hi) may be lent. REQUIRES: Contains(lo, hi).
  [[nodiscard]] bool IsOpen(Granules lo, Granules hi) const noexcept { return !closed_.Touches(lo, hi); }
  // From now on `ranges` of the pool, which has so many graphs, are open, and nothing else of it. More ranges than
  // there is space for: fewer are.
  void Open(std::size_t pool, std::span<const GranuleRange> ranges, std::size_t graphs) {
    pools_[pool].open.reserve(ranges.size());  // what may throw comes first
    Close(pool);
    for (const GranuleRange& range : ranges) {
      if (!closed_.CanChange()) break;
      closed_.Remove(range.lo, range.hi);
      pools_[pool].open.push_back(range);
    }
    pools_[pool].watches = graphs;
  }
  void Close(std::size_t pool) noexcept {
    const GranuleRange range = pools_[pool].range;
    closed_.Remove(range.lo, range.hi);
    (void)closed_.Add(range.lo, range.hi);
    pools_[pool].open.clear();
  }

  // A block of the program is placed in [lo, hi), or it is overwritten otherwise. A launch writes the range anew.
  // REQUIRES of NoteBlock: CanNoteBlock.
  [[nodiscard]] bool CanNoteBlock() const noexcept { return used_.CanChange(); }
  void NoteBlock(Granules lo, Granules hi) noexcept {
    used_.Remove(lo, hi);
    (void)used_.Add(lo, hi);
  }
  void NoteWritten(const GranuleRange& range) noexcept { used_.Remove(range.lo, range.hi); }
  // Of what the graph takes, the first where blocks of the program were since a launch wrote it; null: none.
  [[nodiscard]] const TakenRange* FirstUsed(const GraphRanges& graph) const noexcept {
    const auto was_used = [this](const TakenRange& taken) { return used_.Touches(taken.range.lo, taken.range.hi); };
    const auto found = std::ranges::find_if(graph.takes, was_used);
    return found != graph.takes.end() ? &*found : nullptr;
  }

  // Sizes of blocks that lived at a launch, wherever they lay: without a slot such are not lent. The plan knows better,
  // as long as none of the size was in a launch's way.
  [[nodiscard]] bool MayGoBeforeLaunch(Granules granules) const noexcept { return lasting_.Lacks(granules); }
  [[nodiscard]] bool WasInNobodysWay(Granules granules) const noexcept { return in_the_way_.Lacks(granules); }
  void NoteInTheWay(Granules granules) noexcept {
    lasting_.Note(granules);
    in_the_way_.Note(granules);
  }
  // A block without a slot that lies elsewhere, to be looked at where the next graph is launched. Of more than there is
  // space for some are not.
  void Watch(Granules granule, Granules granules) noexcept {
    if (watched_count_ < watched_.size()) watched_[watched_count_++] = {granule, granule + granules};
  }
  // A graph of the pool is launched: is_live(range) knows of those.
  template <typename IsLive>
  void OnLaunch(std::size_t pool, IsLive&& is_live) noexcept {
    for (std::size_t i = 0; i < watched_count_; ++i) {
      if (is_live(watched_[i])) lasting_.Note(watched_[i].hi - watched_[i].lo);
    }
    watched_count_ = 0;
    if (pools_[pool].watches > 0) --pools_[pool].watches;
  }
  // Calls visit(range) for open ranges of pools whose graphs the calling thread launches, once enough launches have
  // shown what lives there.
  template <typename Visit>
  void ForEachOpen(Visit&& visit) const noexcept {
    for (const Pool& pool : pools_) {
      if (pool.watches > 0 || !IsLauncher(pool)) continue;
      for (const GranuleRange& range : pool.open) visit(range);
    }
  }

  // The calling thread launches graphs of the pool. Of more threads than there is space for nothing is noted.
  void NoteLauncher(std::size_t pool) noexcept {
    Pool& noted = pools_[pool];
    if (IsLauncher(noted) || noted.launcher_count == noted.launchers.size()) return;
    noted.launchers[noted.launcher_count++] = ThisThread();
  }
  void ForgetLaunchers(std::size_t pool) noexcept { pools_[pool].launcher_count = 0; }
  // The calling thread launches graphs of the pool in which [lo, hi) lies.
  [[nodiscard]] bool IsLaunchers(Granules lo, Granules hi) const noexcept {
    return std::ranges::any_of(
        pools_, [&](const Pool& pool) { return pool.range.lo <= lo && hi <= pool.range.hi && IsLauncher(pool); });
  }

 private:
  static constexpr std::size_t kMostRanges = 4096;
  // For more sizes than there is space for it lacks none.
  class Sizes {
   public:
    [[nodiscard]] bool Lacks(Granules granules) const noexcept {
      const auto end = sizes_.begin() + static_cast<std::ptrdiff_t>(count_);
      return count_ < sizes_.size() && std::find(sizes_.begin(), end, granules) == end;
    }
    void Note(Granules granules) noexcept {
      if (Lacks(granules)) sizes_[count_++] = granules;
    }

   private:
    std::array<Granules, 256> sizes_{};
    std::size_t count_ = 0;
  };
  struct Pool {
    GranuleRange range = {};
    std::array<std::uint32_t, 8> launchers{};  // threads
    std::size_t launcher_count = 0;
    std::vector<GranuleRange> open = {};
    std::size_t watches = 0;  // launches until blocks without slots are served
  };

  [[nodiscard]] static bool IsLauncher(const Pool& pool) noexcept {
    const auto end = pool.launchers.begin() + static_cast<std::ptrdiff_t>(pool.launcher_count);
    return std::find(pool.launchers.begin(), end, ThisThread()) != end;
  }
  // Numbers are not given out again.
  [[nodiscard]] static std::uint32_t ThisThread() noexcept;

  const Granules begin_;
  const Granules end_;
  std::vector<Pool> pools_;
  RangeSet closed_{kMostRanges};
  RangeSet used_{kMostRanges};
  Sizes lasting_;
  Sizes in_the_way_;
  std::array<GranuleRange, 64> watched_{};
  std::size_t watched_count_ = 0;
};

}  // namespace stalloc
