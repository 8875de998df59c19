// A plan as a picture: addresses against positions, as cells that say what lies there and how full they are.
//
//   rows     |state ............................|   the lowest addresses come first
//            |activations  /\        idle       |
//   columns  | set-up, warm-up | one period     |
//
// A block of the set-up or of a warm-up iteration is drawn from its request to its expected free, at most to the end of
// the warm-up; one that stays, to the end. A block of the period that outlives it comes in again at its beginning.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/facts/block_facts.h"
#include "proto/model/plan.h"

namespace stalloc::planner {

struct PlanMapSize {
  std::size_t columns = 480;
  std::size_t rows = 240;
};

struct PlanMap {
  std::size_t columns = 0;
  std::size_t rows = 0;
  Bytes arena_bytes = 0;
  std::uint64_t positions = 0;    // requests of prologue and period
  std::uint64_t cycle_begin = 0;  // position
  // Row after row, lowest addresses first. Of each cell the class that takes most of it, as a digit ('0' +
  // MemoryClass), or '.' where nothing lies; and how full it is, '0' (empty) to '9' (full).
  std::string classes;
  std::string fullness;
  std::vector<Bytes> planned;    // by column: bytes x positions of slots / positions
  std::vector<Bytes> unplanned;  // the same of requests without a slot
  double idle_share = 0;         // of arena x period
  std::uint64_t slots = 0;
  struct Phase {
    std::uint64_t position = 0;
    std::string name;
  };
  std::vector<Phase> phases;  // ascending
};

// Classes come from the trace where the plan's entries are those of its segments; else an entry's own class decides
// between state, dynamic and other.
[[nodiscard]] PlanMap DrawPlan(const DevicePlan& plan, const DeviceFacts& facts, const PlanMapSize& size = {});

}  // namespace stalloc::planner
