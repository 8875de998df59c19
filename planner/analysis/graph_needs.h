// What the device needs of captured graphs. PyTorch counts a graph's block as live while a tensor holds it; a launch
// writes blocks that no tensor holds (dead, carried, kept: graph_captures.h).
//
// Blocks of a pool share bytes, which count once where addresses are known; no pool needs more than what lived in it at
// a time. What is not known counts as needed: a graph that was captured before the trace begins, or is launched by C++
// code, has what PyTorch counts. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/analysis/lifetimes.h"
#include "planner/analysis/traced_rank.h"

namespace stalloc::planner {

struct CapturedGraph {
  std::uint32_t number = 0;    // of the graph, in the order of first captures; captured again it has another row
  std::uint32_t pool = 0;      // PoolPlusOne of what it captured; 0: not known
  std::uint64_t launches = 0;  // that were seen
  Bytes dead = 0;              // the most at a time
  Bytes carried = 0;           // to other graphs, all together
  Bytes kept = 0;              // all together
  Bytes launch = 0;            // of dead and carried, the most that lives at a time in its launch
};

struct GraphNeeds {
  struct Pool {
    std::uint32_t number = 0;  // PoolPlusOne; 0: not distinguished
    Bytes most = 0;            // that lived in it at a time
  };

  std::vector<CapturedGraph> graphs;  // in the order of their captures
  Bytes peak = 0;                     // needed at a time: blocks outside of graphs' pools, and these as above
  Bytes torch_then = 0;               // what PyTorch counts as live then
  std::uint64_t event = 0;            // then: of an allocation, or right before a launch
  std::vector<Pool> pools;            // in which something was captured, ascending
  Bytes capture_peak = 0;             // of a capture: what is live outside, and the most of each pool so far
  std::uint64_t first_event = 0;      // of the first capture
  std::uint32_t first_segment = 0;    // in which it begins
  std::uint32_t last_segment = 0;     // of the last one
};

// No graphs: nothing was captured, and the rest is zero.
[[nodiscard]] GraphNeeds FindGraphNeeds(const TracedRank& traced, const DeviceTrace& device);

}  // namespace stalloc::planner
