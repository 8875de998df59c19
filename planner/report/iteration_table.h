// What is live in each iteration, and how much of it is there because data made it so. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/facts/block_facts.h"

namespace stalloc::planner {

struct IterationRow {
  Bytes peak_live = 0;
  Bytes dynamic_peak = 0;       // the most that is live of blocks whose size or presence varies
  Bytes dynamic_requested = 0;  // of such blocks, all that the iteration allocates
};

// By segment; the first is the set-up.
[[nodiscard]] std::vector<IterationRow> TabulateIterations(const DeviceFacts& facts);

}  // namespace stalloc::planner
