// What pools of captured graphs hold, and how much of it lies idle while others need memory. Pure.
//
//   what a pool has held at most is its own: a graph has recorded the addresses, and its next replay writes there
//
//        bytes |        ______________________   most of the pool so far
//              |    ___/   \__________________   live in it
//              |_______________________________  + live outside = the least that is held under any allocator
//
// As if every pool lived to the run's end: a trace does not show when the last graph of one is gone.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/facts/block_facts.h"

namespace stalloc::planner {

struct GraphPool {
  std::uint32_t pool_plus_one = 0;  // its ordinal, + 1; 0: the trace does not distinguish pools
  std::uint32_t role = 0;           // phase without its iteration of its first request: DeviceFacts::roles
  std::uint64_t requests = 0;
  Bytes most = 0;       // live in it at a time
  Bytes end = 0;        // live in it at the run's end
  Bytes idle_then = 0;  // of `most`, when most is held
};

struct GraphPools {
  std::vector<GraphPool> pools;  // in the order of their first requests
  Bytes held = 0;                // the least that is held, at its peak: what is live outside, and all that pools had
  Bytes live_then = 0;           // of that
  std::uint64_t event = 0;       // then
};

// No pools: nothing is captured.
[[nodiscard]] GraphPools FindGraphPools(const DeviceFacts& facts);

}  // namespace stalloc::planner
