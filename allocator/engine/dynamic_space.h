// DynamicSpace: finds room in the arena for what the plan has no place for.
//
// Note [Dynamic space]
// One space for everything: a block without a slot goes where the plan leaves the bytes idle until the block's expected
// free (idle_gaps.h) and where no block lives now; what fits nowhere goes above the arena's height, which grows.
//
//       limit     - - - - - - - - - - - - - -
//                                              grows by mapping, and stays
//       mapped    ===========================
//                 :   [d3]    |####|  idle  :    d1, d2, d3: blocks beside the slots; d1 and d2 touch: one extent
//                 |############|    |#######|
//                 |#####| [ d1 ][d2]|#######|
//       0         ===========================
//
// Note [In the way of slots]
// Before memory moves or the arena grows, a block lies in the way of slots: what is idle now is there, and costs
// nothing. A slot's owner that finds it taken is an unplanned request like any other, and by then other room is idle.
// Where there are slots of its size it takes the one whose owner comes last: so one owner is turned away, not two, and
// what is left idle is not cut to pieces that are too small for the next. What stays for good keeps out of the way: it
// would be there in every iteration.
//
// Of all room that an entry's gaps leave, the tightest is taken. Extents (extents.h) tell where blocks beside the slots
// are; that nothing else is there, against the plan, is seen in the occupancy.
//
// Note [The side that stays]
//   addresses -->      |    slots of gradients   | blocks of earlier requests |
//   this one's gap                     |---- room -[new]
//   the next one's gap        |-------- room ------]
// Activations go in reverse order, so the next block's gap is mostly larger where this one's ends at slots; a block
// beside the slots stays. So with such a block above and none below, a new one goes to the top of its room.
//
// Of a request in a fence or a parallel region nobody knows when it will be freed. In a fence it takes room that the
// next iteration uses late (late_rooms.h), else, as in a parallel region, the highest that is free now.
//
// Freed blocks that wait for other streams, and memory that went back to the device, are obstacles at first, and room
// where nothing else is left: to wait, or to map again, is better than to grow.
//
// Not thread-safe (the engine's lock); noexcept, no heap. Offsets and lengths in granules of kBlockAlignment bytes.
#pragma once

#include <cstdint>

#include "allocator/engine/dynamic_space_options.h"
#include "allocator/engine/extents.h"
#include "allocator/engine/freed_blocks.h"
#include "allocator/engine/idle_gaps.h"
#include "allocator/engine/late_rooms.h"
#include "allocator/engine/occupancy.h"
#include "allocator/engine/stream_clocks.h"
#include "allocator/engine/withdrawn_ranges.h"
#include "proto/model/plan.h"

namespace stalloc {

class DynamicSpace {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffu;

  struct Request {
    std::uint32_t granules = 0;
    StreamIndex stream = kNoStream;
    IdleGaps::Window window;  // no gaps: nothing is known of the block's free
    bool soon_over = false;   // of those without gaps: in a fence or a parallel region
    bool refills = false;     // memory that was withdrawn is as good as any: there is enough to be mapped again
  };

  DynamicSpace(const DevicePlan& plan, const DynamicSpaceOptions& options, const Occupancy& occupancy,
               const FreedBlocks& freed, const WithdrawnRanges& withdrawn);

  [[nodiscard]] bool Takes(std::uint32_t granules) const noexcept {
    return limit_ > 0 && granules >= least_ && mapped_ > 0 && extents_.CanChange();
  }
  // Upstream's pool for small blocks is as good (DynamicSpaceOptions::least_bytes).
  [[nodiscard]] bool IsSmall(std::uint32_t granules) const noexcept { return granules < least_; }
  [[nodiscard]] std::uint32_t least() const noexcept { return least_; }
  [[nodiscard]] const IdleGaps& gaps() const noexcept { return gaps_; }
  [[nodiscard]] const LateRooms& late_rooms() const noexcept { return late_rooms_; }

  // What the request may cost, from good to bad.
  enum class Cost : std::uint8_t {
    kNothing,
    kWaiting,  // its stream waits for another
    kMapping,  // memory that was withdrawn is mapped again
  };
  // Where the request fits in the arena as it is, kNone if nowhere. The caller orders it behind freed blocks there.
  [[nodiscard]] std::uint32_t Find(const Request& request, Cost cost) const noexcept;
  // Where it would fit if the arena grew to the end of it; kNone if that is beyond the limit.
  [[nodiscard]] std::uint32_t FindAbove(const Request& request) const noexcept;

  // A block that was found room lives there, or does so no longer.
  void Take(std::uint32_t granule, std::uint32_t granules) noexcept { extents_.Add(granule, granule + granules); }
  void GiveBack(std::uint32_t granule, std::uint32_t granules) noexcept {
    extents_.Remove(granule, granule + granules);
  }

  void SetMapped(std::uint32_t granules) noexcept { mapped_ = granules; }
  [[nodiscard]] std::uint32_t mapped() const noexcept { return mapped_; }

 private:
  using Gap = IdleGaps::Gap;

  // A place in the tightest room in the gaps that has one.
  [[nodiscard]] std::uint32_t FindIn(IdleGaps::Window window, const Request& request, Cost cost) const noexcept;
  // The tightest room, the lowest of equal ones, as far as extents tell; empty if there is none.
  [[nodiscard]] Gap TightestRoom(IdleGaps::Window window, std::uint32_t granules) const noexcept;
  // Looks behind the blocks in the rooms.
  [[nodiscard]] std::uint32_t FindAmongBlocks(IdleGaps::Window window, const Request& request,
                                              Cost cost) const noexcept;
  // The tightest, lowest or highest room for the request in the gap, block by block.
  [[nodiscard]] std::uint32_t Tightest(Gap gap, const Request& request, Cost cost) const noexcept;
  [[nodiscard]] std::uint32_t Lowest(Gap gap, const Request& request, Cost cost) const noexcept;
  [[nodiscard]] std::uint32_t Highest(Gap gap, const Request& request, Cost cost) const noexcept;
  // The last range in the gap that the request cannot have; empty if there is none.
  [[nodiscard]] Gap LastObstacle(Gap gap, const Request& request, Cost cost) const noexcept;

  const Occupancy& occupancy_;
  const FreedBlocks& freed_;
  const WithdrawnRanges& withdrawn_;
  const std::uint32_t limit_;
  const std::uint32_t least_;
  std::uint32_t mapped_;
  Extents extents_;
  const IdleGaps gaps_;
  const LateRooms late_rooms_;
  const bool stays_at_side_;  // Rule::kSideThatStays
};

}  // namespace stalloc
