// DynamicSpace: finds space in the arena for what the plan has no place for (details.md, Free ranges outside the
// slots).
//
// A block goes where no block lives now: into the tightest range of the gaps that the plan leaves it (idle_gaps.h), or
// of all the arena. What freed blocks leave to other streams, and what went back to the device, is free where it may
// be.
//
// Not thread-safe (the engine's lock); noexcept, no heap. Offsets and lengths in granules.
#pragma once

#include <vector>

#include "allocator/base/deferred_ranges.h"
#include "allocator/base/range_set.h"
#include "allocator/engine/bytes/occupancy.h"
#include "allocator/engine/order/freed_blocks.h"
#include "allocator/engine/order/stream_clocks.h"
#include "allocator/engine/place/idle_gaps.h"
#include "allocator/engine/place/rules.h"
#include "allocator/engine/place/tuning.h"
#include "proto/model/plan.h"

namespace stalloc {

// Sizes in bytes, multiples of kBlockAlignment.
struct DynamicSpaceOptions {
  Bytes limit_bytes = 0;   // where the arena's addresses end; 0: nothing but slots is served
  Bytes mapped_bytes = 0;  // of them, mapped at first: the plan's height or more
  Bytes least_bytes = 0;   // smaller requests are left to upstream, whose pool for small blocks takes a few MiB
  Rules rules = {};
  Bytes lent_begin = 0;  // where graphs' pools are mapped (lent_region.h), at limit_bytes or above
  Bytes lent_bytes = 0;  // addresses for them; 0: none are
};

class DynamicSpace {
 public:
  using Gap = IdleGaps::Gap;
  static constexpr Granules kNone = 0xffffffffu;

  struct Request {
    Granules granules = 0;
    StreamIndex stream = kNoStream;
    IdleGaps::Window window;  // no gaps: nothing is known of the block's free
    bool soon_over = false;   // of those without gaps: in a fence or a parallel region
    bool may_wait = false;    // its stream, for others
    bool lacks_wait = false;  // what it could have had so was in the way of a search
    bool may_map = false;     // memory again that was withdrawn
  };

  DynamicSpace(const DevicePlan& plan, const DynamicSpaceOptions& options, const Occupancy& occupancy,
               const FreedBlocks& freed, const RangeSet& withdrawn, DeferredRanges& live);

  [[nodiscard]] bool Takes(Granules granules) const noexcept {
    return granules >= least_ && (mapped_ > 0 || begins_empty_) && TakesSmall();
  }
  // Where size does not matter.
  [[nodiscard]] bool TakesSmall() const noexcept { return limit_ > 0 && without_slot_.CanChange(); }
  // Upstream's pool for small blocks is as good (DynamicSpaceOptions::least_bytes).
  [[nodiscard]] bool IsSmall(Granules granules) const noexcept { return granules < least_; }
  [[nodiscard]] const IdleGaps& gaps() const noexcept { return gaps_; }
  [[nodiscard]] const std::vector<std::vector<Gap>>& late_rooms() const noexcept { return late_rooms_; }

  // Where the request fits in the arena as it is, kNone if nowhere. The caller orders it after freed blocks there.
  [[nodiscard]] Granules Find(Request& request) const noexcept;
  // The same, without a wait if there is such a place.
  [[nodiscard]] Granules FindWaiting(Request request) const noexcept {
    const Granules granule = Find(request);
    if (granule != kNone || !request.lacks_wait) return granule;
    request.may_wait = true;
    return Find(request);
  }
  // Where it would fit if what was withdrawn were mapped again, or the arena grew to the end of it; kNone if that is
  // beyond the limit.
  [[nodiscard]] Granules FindUnmapped(Request request) const noexcept;

  // A block lives in the range that was found, or does so no longer.
  void Take(Granules granule, Granules granules) noexcept { without_slot_.Add(granule, granule + granules); }
  void GiveBack(Granules granule, Granules granules) noexcept { without_slot_.Remove(granule, granule + granules); }

  void SetMapped(Granules granules) noexcept { mapped_ = granules; }
  [[nodiscard]] Granules mapped() const noexcept { return mapped_; }

 private:
  [[nodiscard]] bool IsWithoutSlot(Granules granule) const noexcept {
    return without_slot_.Touches(granule, granule + 1);
  }
  // In the tightest of those ranges in its gaps that have a place for it.
  [[nodiscard]] Granules FindInGaps(Request& request) const noexcept;
  // In the tightest mapped range, or in the highest for what is soon over.
  [[nodiscard]] Granules FindAnywhere(Request& request) const noexcept;
  [[nodiscard]] Granules Lowest(Gap gap, Request& request) const noexcept;
  // The last range in the gap that the request cannot have; empty if there is none. `between_live`: no block lives
  // there.
  [[nodiscard]] Gap LastObstacle(Gap gap, Request& request, bool between_live) const noexcept;
  // What blocks of the program occupy.
  [[nodiscard]] const RangeSet& Live() const noexcept;

  const Occupancy& occupancy_;
  const FreedBlocks& freed_;
  const RangeSet& withdrawn_;
  DeferredRanges& live_;
  const Granules limit_;
  const Granules least_;
  const bool begins_empty_;  // there is no plan: the first request is the first to be mapped for
  Granules mapped_;
  RangeSet without_slot_{tuning::kBlocksWithoutSlot};  // what blocks without a slot occupy
  const IdleGaps gaps_;
  const std::vector<std::vector<Gap>> late_rooms_;
};

}  // namespace stalloc
