// Leaks: kinds of blocks of which more is live at the beginning of each iteration than at that of the one before, again
// and again. What is left live and freed some iterations later (prefetched batches, the last losses) does not grow.
// Pure; bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/facts/block_facts.h"

namespace stalloc::planner {

// Rises that make a leak. The first iteration makes what stays (state, caches), and counts for nothing.
inline constexpr std::size_t kLeakRises = 4;
inline constexpr std::size_t kLeakIterations = kLeakRises + 2;

// A rise at the beginning of one iteration and the next, as far as it goes on until the end.
struct Climb {
  std::size_t first = 0;  // index of the value that it starts at
  std::size_t rises = 0;
};

// Whether the values rise `least` times or more without falling, the last time as lately as the longest pause before
// makes likely, and to where they have not been before.
[[nodiscard]] std::optional<Climb> FindClimb(const std::vector<Bytes>& values, std::size_t least);

// Alike in role (phase without its iteration), layer, call site and tensor, and in size, unless each has another.
struct Leak {
  std::uint32_t allocation = 0;  // one of them, of the last iteration whose blocks have their class
  Bytes least_bytes = 0;         // of a block
  Bytes most_bytes = 0;
  std::uint32_t since = 0;  // segment from whose beginning on it grows
  std::vector<Bytes> live;  // where segments begin
  double blocks = 0;        // more of them in an iteration
  double bytes = 0;         // more in an iteration
};

// For the peak's iteration: blocks of passes that are made all through it and stay until its end. A graph that is
// carried along, or several iterations that nobody marks: a forward pass is only a part of one, and its blocks go one
// by one.
struct GrowthInside {
  Bytes bytes = 0;
  std::uint64_t blocks = 0;
  std::uint32_t allocation = 0;  // the largest of them
};

struct Growth {
  std::vector<Bytes> begin_live;  // by segment, at its begin
  std::vector<Leak> leaks;        // by bytes in an iteration, falling
  std::optional<GrowthInside> inside;
};

[[nodiscard]] Growth FindGrowth(const DeviceFacts& facts, const Segmentation& segmentation, std::size_t most_leaks);

}  // namespace stalloc::planner
