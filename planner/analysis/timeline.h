// The packing problem of one device on a virtual time axis: every script once, in plan order.
//
//   script   | set-up | warm-up ... |        cycle (one period, or several copies of it)        |
//   tick     0                      cycle_begin                                                 end
//   weights  [======================================================================================
//   warm-up           [===============)    freed in the first steady iteration
//   transient                                   [=====)
//   arc                             =====)                                               [=========
//
// A block that is freed in the next period before its own position is an arc: it lives to the end of the axis and again
// from the cycle's beginning. A warm-up block whose steady twin is such an arc shares one place with it. A block that
// outlives one period but not two needs two places that alternate: then the cycle is unrolled into copies. What fits
// into one copy has one place in all of them, or in turns (turns.h) one in each. Ticks count requests; see lifetimes.h.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "planner/analysis/slot_choice.h"
#include "planner/analysis/steady.h"
#include "planner/packing/finish/hand_overs.h"
#include "planner/packing/problem/problem.h"

namespace stalloc::planner {

struct TimelineEntry {
  std::uint32_t allocation = kNone;  // index into DeviceTrace::allocations: the one the entry was made from
  std::uint32_t block = kNone;       // index into Problem::blocks; kNone: not planned, or lent
  std::uint32_t lent = kNone;        // index into Lending::requests, then early; kNone: not lent
  EntryClass entry_class = EntryClass::kStatic;
  Unplanned unplanned = Unplanned::kPlanned;
  // Requests from this one to the free, the latest of all traced iterations; 0: stays for good. Passes the axis' end
  // where the block does.
  std::uint32_t life = 0;
  Bytes bytes = 0;
  Bytes min_bytes = 0;
  Bytes max_bytes = 0;
};

struct TimelineScript {
  std::uint32_t segment = 0;  // that it was made from
  Tick begin = 0;
  std::vector<TimelineEntry> entries;
};

// A request of the cycle, in all its copies, whose block lies in a graphs' pool (lend.h).
struct LentRequest {
  std::uint32_t script = 0;  // of the period
  std::uint32_t entry = 0;
  Offset offset = 0;  // in the pools' places
  Bytes bytes = 0;
};

struct Lending {
  std::vector<LentPool> pools;  // their places (LentPool::extent) lie one after the other, in this order

  // Memory that is held for them besides the pools.
  [[nodiscard]] Bytes own_bytes() const {
    Bytes sum = 0;
    for (const LentPool& pool : pools) sum += pool.own_bytes();
    return sum;
  }
  std::vector<LentRequest> requests;
  std::vector<LentRequest> early;  // of the prologue, whose scripts theirs are
  Bytes cycle_bytes = 0;           // the greatest load of the cycle without them
};

struct Timeline {
  std::vector<TimelineScript> scripts;  // prologue, then cycle
  std::vector<TimelineEntry> kept;      // requests of fences whose blocks stay for good
  std::uint32_t prologue = 0;           // how many are prologue
  std::uint32_t copies = 1;             // of the period in the cycle
  bool in_turns = false;                // each copy has places of its own
  Tick cycle_begin = 0;
  Tick end = 0;
  Problem problem;  // of what is not lent
  Lending lending;
  // By block: that of the steady request which a warm-up request corresponds to, as late in the cycle; else kNone.
  std::vector<std::uint32_t> twins;

  [[nodiscard]] CycleAxis cycle() const { return {cycle_begin, end}; }
};

// `turns`: above 1, the cycle is unrolled at least that often, and each copy has places of its own. REQUIRES: turns
// is at most MostCopies(model).
[[nodiscard]] Timeline BuildTimeline(const DeviceTrace& device, const SteadyModel& model, const SlotChoice& choice = {},
                                     std::uint32_t turns = 1);

// Blocks have new numbers: `numbers`, by the old one, is their new one, or kNone where the block has gone.
void RenumberBlocks(const std::vector<std::uint32_t>& numbers, Timeline* timeline);

// So many copies of its period a cycle may have.
[[nodiscard]] inline std::uint32_t MostCopies(const SteadyModel& model) { return kMaxPeriod / model.cycle.period; }

}  // namespace stalloc::planner
