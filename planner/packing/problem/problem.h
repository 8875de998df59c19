// The packing problem: blocks with lifetimes and sizes get offsets so that no two that live at once overlap; the
// arena's height (greatest offset + size) is to be small. Known as dynamic storage allocation (Garey & Johnson SR2).
//
//   offset ^
//          |   +----+          a block is a rectangle: its lifetime wide, its size high;
//          |   |  B |  +---+   it may only slide vertically.
//          | +-+----+--+ C |   A block with two lifetimes (an arc that wraps around the steady iteration, or one place
//          that | |    A    |---+   serves set-up, then steady state) slides as one.
//          +--------------------> tick
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <type_traits>
#include <vector>

#include "proto/model/units.h"

namespace stalloc::planner {

// Half-open: alive at begin, gone at end. REQUIRES: begin < end.
struct Lifetime {
  Tick begin = 0;
  Tick end = 0;

  [[nodiscard]] bool Overlaps(const Lifetime& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const Lifetime&) const = default;
};

struct Block {
  std::uint64_t id = 0;  // the caller's name for it
  Bytes bytes = 0;       // > 0
  Lifetime life;
  std::optional<Lifetime> second_life = std::nullopt;  // disjoint from `life`
  Bytes alignment = 1;                                 // offset is a multiple of it
  std::uint32_t stream = 0;                            // ordinal; for counting hand-overs
  bool recorded = false;                               // other streams use it, too; likewise
  bool persistent = false;                             // prefers the bottom
};

struct Problem {
  std::vector<Block> blocks;
};

// The part of the axis that repeats for ever. Empty: nothing repeats. A block that lives over its end is an arc: `life`
// reaches the end, `second_life` begins with the cycle again.
struct CycleAxis {
  Tick begin = 0;
  Tick end = 0;

  [[nodiscard]] bool empty() const { return begin == end; }
  [[nodiscard]] Tick length() const { return end - begin; }
};

struct Packing {
  std::vector<Offset> offsets;  // parallel to Problem::blocks
  Bytes height = 0;
  Bytes proved_bound = 0;  // a solver's word that no packing is lower; at least the load bound, or 0: none given
  std::uint64_t work = 0;  // that a solver spent on it (work.h)
};

// From the first begin to the last end. REQUIRES: a block.
[[nodiscard]] Lifetime AxisOf(const Problem& problem);

// Greatest sum of sizes alive at one tick: no packing is lower. O(n log n).
[[nodiscard]] Bytes LoadBound(const Problem& problem);

// The same of the blocks of each key apart.
template <typename KeyOf>
[[nodiscard]] auto LoadBoundBy(const Problem& problem, const KeyOf& key_of) {
  using Key = std::invoke_result_t<KeyOf, const Block&>;
  std::map<Key, Problem> parts;
  for (const Block& block : problem.blocks) parts[key_of(block)].blocks.push_back(block);
  std::map<Key, Bytes> bounds;
  for (const auto& [key, part] : parts) bounds[key] = LoadBound(part);
  return bounds;
}

// Sum of sizes alive at each tick of [0, end). REQUIRES: no life begins after it. O(n + end).
[[nodiscard]] std::vector<Bytes> LoadByTick(const Problem& problem, Tick end);

}  // namespace stalloc::planner
