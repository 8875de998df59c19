// What it saves that graphs' pools serve others between launches (lend.h), and what keeps it from saving more: of an
// analysis that makes no plan. Bytes.
//
//   held   |  /\__                  what has places, and from the first capture on all that pools hold
//          | /    \_______________
//          |/     |  pools
//          +------+--------------> ticks of the timeline
//                 first capture
//
// For blocks without a place only what the device needs with them counts. Pure.
#pragma once

#include <cstdint>

#include "planner/analysis/graph_needs.h"
#include "planner/analysis/slot_choice.h"
#include "planner/analysis/steady.h"
#include "planner/analysis/traced_rank.h"

namespace stalloc::planner {

// Why no more is saved in the cycle: at the moment when most is held there with lending, or at all.
enum class LendLimit : std::uint8_t {
  kLateTrace,     // the trace began when graphs may have been there
  kUnknownPools,  // the trace does not show where their blocks lie
  kNoLaunch,      // no graph was launched in the trace
  kCapturedLate,  // after the iterations that the plan repeats
  kKept,          // nothing of the pools is free at any time, or too little for a block
  kOrder,         // all is carried, and launches come in another order each time
  kFence,         // it is in a fence, which may hide launches
  kLaunch,        // most lendable bytes are written by a launch then
  kCarried,       // most wait for a later launch then
  kBlocks,        // most are free then, and no block that has its place elsewhere may lie there
};
[[nodiscard]] const char* LendLimitName(LendLimit limit);

struct LendFigures {
  Bytes held = 0;        // at most
  Bytes held_apart = 0;  // the same, with pools that serve nobody else
  Bytes cycle_held = 0;  // both of the cycle, which repeats: before it nothing is lent
  Bytes cycle_held_apart = 0;
  Bytes pools = 0;             // that graphs' pools hold: whole segments, or the most that lived in one that is unknown
  Bytes dead = 0;              // of pools that are known and whose graphs were launched: free between launches
  Bytes carried = 0;           // of these: from a launch to a later one
  Bytes kept = 0;              // of these: for good
  std::uint32_t unknown = 0;   // pools: the trace does not show where their blocks lie
  std::uint64_t requests = 0;  // lent, of a cycle
  LendLimit limit = LendLimit::kKept;

  [[nodiscard]] Bytes saves() const { return held_apart - held; }
  [[nodiscard]] Bytes cycle_saves() const { return cycle_held_apart - cycle_held; }
};

// `needs`: of the same trace. REQUIRES: it has graphs.
[[nodiscard]] LendFigures FindLendFigures(const TracedRank& traced, const DeviceTrace& device, const SteadyModel& model,
                                          const SlotChoice& choice, const GraphNeeds& needs);

}  // namespace stalloc::planner
