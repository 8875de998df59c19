// Idle space: what a packing leaves free in its cycle, where and until when: the room from which requests that no plan
// can know are served.
//
//   address ^  |##########|        |#######     Whenever a block comes or goes, the free ranges of the arena change.
//           |  |   +---------------+            Each free range of each moment is one idle range, made as long in time
//           |  |   |   idle range  |            as all of it stays free, before and after that moment. It can grow in
//           |  |###|               |####        no direction: at that moment blocks touch it above and below, and one
//           |  |###+---------------+####        takes a part of it where it begins and ends. Ranges overlap each other.
//           +--------------------------> cycle
//
// A request of some bytes at position p, to be freed at q, fits into any range with begin <= p, q <= begin + length and
// as many bytes. Not listed are rectangles that touch blocks above and below at different times only: there are up to
// n^2 of them, and each moment's part of them lies in a listed one.
//
// Time is the cycle's axis: positions 0 .. length - 1, one a request; a range may wrap around. A block of the prologue
// that is freed in the first round of the cycle counts in every round.
//
// Sweeps with segment trees over addresses: O(n log n). Pure; thread-safe. Bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/packing/hand_overs.h"
#include "planner/packing/problem.h"

namespace stalloc::planner {

struct IdleRange {
  Offset offset = 0;
  Bytes bytes = 0;
  Tick begin = 0;   // position in the cycle
  Tick length = 0;  // positions; begin + length passes the cycle's length where the range wraps

  bool operator==(const IdleRange&) const = default;
};

struct IdleSpaceOptions {
  Bytes min_bytes = Bytes{1} << 20;  // smaller ranges are left out,
  Tick min_length = 4;               // shorter ones,
  std::size_t max_ranges = 1 << 16;  // and those with the least bytes x length beyond this number
};

struct IdleSpace {
  std::vector<IdleRange> ranges;  // ascending by begin, then offset
  double idle = 0;                // free bytes, summed over the positions of the cycle
  double described = 0;           // of these, inside one of `ranges` at least

  [[nodiscard]] double coverage() const { return idle <= 0 ? 1.0 : described / idle; }
};

// REQUIRES: a valid packing; a cycle that is not empty.
[[nodiscard]] IdleSpace FindIdleSpace(const Problem& problem, const Packing& packing, const CycleAxis& cycle,
                                      const IdleSpaceOptions& options);

}  // namespace stalloc::planner
