// PassedPlaces: slots whose owners should have come by now and have not, and that nobody else will need for long.
//
// Note [Passed places]
//   micro-batch 0          micro-batch 1          micro-batch 2          optimizer
//   [A0==========================================================================]   A: an expert's gradient. The first
//             (now A has no tokens in micro-batch 0)                                 stays; what later micro-batches
//             add
//                               [A1]                   [A2]                          to it goes at once.
//
// A run whose expert A has no tokens in micro-batch 0 passes A0 by. Its next gradient of A is taken for A1, but stays
// as A0 would have: in A1's bytes it would be in the way of all that comes by until the optimizer. Nobody can tell
// while it is asked for. But A0's place is idle until the optimizer anyhow, so whoever has its size gets it in place of
// a slot that is kept for a shorter time: what stays has found its place, and what goes leaves it to the next one. So
// does whoever has no slot, or finds it taken.
//
// Where A comes later than micro-batch 0 in the plan, too, its place is kept from the first gradient of its size on
// (planner/packing/latecomers.h), and counts as passed from there on: in the run another expert is the late one.
//
// A place counts if some later entry of its size would leave it twice as long as it needs it. None does where nothing
// varies. Whether a place is idle is for the caller to see: a bit for each says which are not, so that they need not be
// asked for.
//
// Not thread-safe (the engine's lock); noexcept but for construction; no heap afterwards. Lengths in granules of
// kBlockAlignment bytes; positions are those of entries in their script.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "proto/model/plan.h"

namespace stalloc {

class PassedPlaces {
 public:
  static constexpr std::int32_t kNone = -1;

  // Places of fewer than `least` granules do not count.
  PassedPlaces(const DevicePlan& plan, std::uint32_t least);

  // Where the run is now: in this script, counted through prologue and cycle, after so many iteration marks. Nobody has
  // come in it yet, unless the run was there already.
  void Follow(std::uint32_t script, std::uint64_t iterations) noexcept;
  // None counts in this script.
  [[nodiscard]] bool empty() const noexcept { return now_ == nullptr; }

  // What follows REQUIRES: not empty().

  // The entry's place counts: whoever gets it is to be told of below.
  [[nodiscard]] bool Counts(std::int32_t entry) const noexcept { return now_->links[At(entry)].counts; }
  // The place that begins here is in use, or no longer.
  void Take(std::uint32_t granule) noexcept { Set(granule, true); }
  void GiveBack(std::uint32_t granule) noexcept { Set(granule, false); }

  // Of the places that others may have at `entry`, of its size, that are kept twice as long as it lives (as long, if it
  // has no slot), the last that is_idle(its entry) says true of; kNone if there is none.
  template <typename IsIdle>
  [[nodiscard]] std::int32_t Find(std::int32_t entry, IsIdle&& is_idle) const noexcept {
    const Link& link = now_->links[At(entry)];
    return link.before == kNone ? kNone : FindBefore(link.before, link.until, is_idle);
  }
  // The same for a request of this size at `entry`, which may be one past the last, that lives for `life` requests.
  template <typename IsIdle>
  [[nodiscard]] std::int32_t FindOfSize(std::int32_t entry, std::uint32_t granules, std::uint64_t life,
                                        IsIdle&& is_idle) const noexcept {
    return FindBefore(LastBefore(entry, granules), At(entry) + life, is_idle);
  }

 private:
  static constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max();
  static constexpr int kMostAsked = 16;  // of those that somebody has who did not tell

  struct Kept {
    std::uint32_t granules = 0;
    std::int32_t from = 0;  // position from which on others may have it
    std::int32_t entry = 0;
    std::uint64_t end = 0;  // position
  };
  struct Link {
    std::int32_t before = kNone;  // the last place of the entry's size that others may have there
    bool counts = false;
    std::uint64_t until = kForever;  // position to which a place must be kept to be better than the entry's own
  };
  struct Place {
    std::uint32_t granule = 0;
    std::uint32_t kept = 0;
  };
  struct OfScript {
    std::vector<Kept> kept;     // by size and `from`
    std::vector<Link> links;    // by entry
    std::vector<Place> places;  // by granule
  };

  [[nodiscard]] static OfScript Of(const Script& script, const std::vector<Slot>& slots, std::uint32_t least);
  // `alike`: the positions of all entries of one size, ascending.
  static void Keep(const Script& script, const std::vector<std::size_t>& alike, OfScript& of);
  [[nodiscard]] static std::size_t At(std::int32_t position) noexcept { return static_cast<std::size_t>(position); }
  // kNone if there is none.
  [[nodiscard]] std::int32_t LastBefore(std::int32_t entry, std::uint32_t granules) const noexcept;
  void Set(std::uint32_t granule, bool in_use) noexcept;
  // Of those up to `kept`, as far as it was told; kNone if there is none.
  [[nodiscard]] std::int32_t LastIdle(std::int32_t kept) const noexcept;

  template <typename IsIdle>
  [[nodiscard]] std::int32_t FindBefore(std::int32_t last, std::uint64_t until, IsIdle&& is_idle) const noexcept {
    int asked = 0;
    for (std::int32_t at = LastIdle(last); at != kNone && asked < kMostAsked; at = LastIdle(at - 1)) {
      const Kept& kept = now_->kept[At(at)];
      if (kept.granules != now_->kept[At(last)].granules) break;
      if (kept.end < until) continue;
      if (is_idle(kept.entry)) return kept.entry;
      ++asked;
    }
    return kNone;
  }

  std::vector<OfScript> scripts_;
  const OfScript* now_ = nullptr;
  std::uint64_t iterations_ = 0;       // when now_ was begun ...
  std::uint32_t script_ = ~0u;         // ... and which script that is
  std::vector<std::uint64_t> in_use_;  // a bit for each of now_->kept
};

}  // namespace stalloc
