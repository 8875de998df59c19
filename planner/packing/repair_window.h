// RepairWindow: a few blocks of a packing are taken out and placed anew below a ceiling; all others stay where they
// are.
//
// What the others occupy while a taken block lives is collected once, as a sorted list of intervals for each taken
// block; an order is then tried by placing block by block into the gaps. Ruin and recreate (Schrimpf et al., "Record
// breaking optimization results using the ruin and recreate principle", 2000), for packings with fixed time.
// Not thread-safe. Bytes.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "planner/packing/instance.h"
#include "planner/packing/interval_list.h"
#include "planner/packing/random.h"
#include "planner/packing/work.h"

namespace stalloc::planner {

// The offset of a block that has no place.
inline constexpr Offset kUnplaced = std::numeric_limits<Offset>::max();

class RepairWindow {
 public:
  // Which of the gaps that are large enough a block takes.
  enum class Fit : std::uint8_t { kLowest, kHighest, kTightest, kEither };

  // `by_offset` holds every placed block once, lowest first; `taken` none twice. Both may be changed afterwards.
  RepairWindow(const Instance& instance, std::span<const Offset> offsets, std::span<const BlockIndex> by_offset,
               std::vector<BlockIndex> taken, Bytes ceiling);

  [[nodiscard]] const std::vector<BlockIndex>& taken() const { return taken_; }

  // Places the taken blocks in `order` (indices into taken()). Returns the sum of bytes that found no place, or any
  // number above `limit` as soon as the sum passes it. kEither tosses a coin for each block.
  Bytes Place(std::span<const std::uint32_t> order, Fit fit, Bytes limit, Random& random);
  // Of this window so far.
  [[nodiscard]] Work work() const { return work_; }
  // Of the last Place that did not pass its limit; parallel to taken(), kUnplaced where there was no room.
  [[nodiscard]] const std::vector<Offset>& offsets() const { return offsets_; }

 private:
  using Interval = IntervalList::Interval;

  void CollectObstacles(std::span<const Offset> offsets, std::span<const BlockIndex> by_offset);
  [[nodiscard]] Offset FindGap(std::uint32_t index, Fit fit);

  const Instance& instance_;
  const std::vector<BlockIndex> taken_;
  const Bytes ceiling_;
  std::vector<std::vector<Interval>> obstacles_;  // parallel to taken_; sorted, disjoint
  std::vector<Offset> offsets_;
  std::vector<std::uint32_t> placed_;  // by offset
  std::vector<Interval> near_;         // of the placed ones, those alive with the block at hand; sorted
  Work work_ = 0;
};

}  // namespace stalloc::planner
