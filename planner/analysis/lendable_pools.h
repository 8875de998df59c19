// Which bytes of captured graphs' pools may serve other requests, and when launches need them: in the trace's events.
//
//   A's block   ====|need|====================|need|===     dead: needed by A's launches
//   carried     ====|need...............need|======|need    from A's launch to the last one of B before A's next
//   launches         A    A  ...        B           A
//
// A byte that any kept block has (graph_captures.h) is never lendable, and what a graph without a launch that was seen
// has is kept. A pool is known by its number, and all its requests' addresses; nothing is lendable of a trace that
// began late. Pure. Bytes are offsets into the pools' layouts (proto/model/pool_layout.h), or into their pieces as
// LentPool orders them, which lie one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "planner/analysis/byte_ranges.h"
#include "planner/analysis/graph_captures.h"
#include "planner/analysis/lifetimes.h"
#include "planner/analysis/traced_rank.h"
#include "proto/model/plan.h"
#include "proto/model/pool_layout.h"

namespace stalloc::planner {

struct TracedPool {
  std::uint32_t requests = 0;  // all of the trace
  PoolLayout layout;           // of them; empty: not known
};
// By PoolPlusOne. Empty where no address is known.
[[nodiscard]] std::map<std::uint32_t, TracedPool> FindTracedPools(const DeviceTrace& device);

struct LendablePools {
  // For a graph's carried blocks those that one other graph takes.
  struct Gift {
    std::uint32_t taker = 0;  // capture
    ByteRanges bytes;
  };
  struct Graph {
    ByteRanges needs;  // of each launch: what is dead, given or taken
    std::vector<Gift> gifts;
  };

  std::vector<LentPool> pools;  // in the order of their layouts
  ByteRanges dead;              // lendable though nobody knows in what order graphs are launched
  ByteRanges lendable;          // these, and what is carried
  ByteRanges kept;              // for good
  std::vector<Graph> graphs;    // by capture
  std::vector<GraphLaunch> launches;
  std::uint64_t filled = 0;  // event: the last capture's end, or the last request in these pools, which may come later

  // The event up to which the gift of a launch is needed; kForGood: for good.
  static constexpr std::uint64_t kForGood = ~std::uint64_t{0};
  [[nodiscard]] std::uint64_t EndOfGift(std::size_t launch, const Gift& gift) const;
};

// No pools: nothing may be lent. `gathered`: pieces that are lendable as a whole lie before all others (LentPool), so
// that large blocks find a place.
[[nodiscard]] LendablePools FindLendablePools(const TracedRank& traced, const DeviceTrace& device,
                                              bool gathered = false);

}  // namespace stalloc::planner
