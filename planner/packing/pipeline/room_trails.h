// Room trails: where the room of each round's peak lies, when passes take each other's places out of order. A pass is a
// chunk's forward and backward pass of one micro-batch; in each round one is freed and another takes its place, so
// places form *chains*. The *room* is free all the time, and at the peak of round r it adjoins the critical piece of
// the pass that is freed in r. It consists of what was freed in r - 1: so as much goes over from chain to chain, at a
// seam:
//   addresses   ... | chain of r - 1 |=room=|#| chain of r | ...     at the peak; # the critical piece, freed just now
//               ... | chain of r - 1 | chain of r            | ...     after it: the seam has moved by a room
// A trail is a row of segments, each of one chain; its seams move one way only. Chosen are which seams there are, how
// long each segment is at first, and which of several equal seams moves. Segments of odd length need odd tensors, which
// are few: where the search founders on that, it goes back some rounds and weighs costs otherwise.
// Lengths in units, which are the caller's. Deterministic for a seed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/packing/problem/work.h"

namespace stalloc::planner {

struct TrailProblem {
  std::uint32_t chains = 0;
  std::uint32_t pass = 0;      // units of a pass: what a chain's segments are long together
  std::uint32_t room = 0;      // without the critical piece
  std::uint32_t critical = 0;  // > 0
  // What a segment that the room has left keeps beside a critical piece; 0: it need keep nothing at a trail's end.
  std::uint32_t late = 0;
  // How many tensors of a pass have an odd number of units, critical ones included, and how many of these are critical:
  // segments of odd length need one each.
  std::uint32_t odd_tensors = 0;
  std::uint32_t odd_critical = 0;
  // The shortest tensors that are not critical.
  std::uint32_t least_even = 2;
  std::uint32_t least_odd = 1;
  // The chain of each round; that of the round before the first is the room's own, numbered `chains`.
  std::vector<std::uint32_t> chain_of_round = {};

  bool operator==(const TrailProblem&) const = default;
};

inline constexpr std::uint32_t kNoSegment = ~std::uint32_t{0};

struct TrailSegment {
  std::uint32_t chain = 0;
  std::uint32_t length = 0;  // at first
  std::uint32_t left = kNoSegment;
  std::uint32_t right = kNoSegment;
};

// In one round the room goes over from one segment to the other, its neighbour.
struct SeamMove {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
};

struct Trails {
  std::vector<TrailSegment> segments = {};
  std::vector<SeamMove> moves = {};  // one a round
};

// What ends a search that has found nothing.
struct TrailLimits {
  std::uint64_t effort = 0;  // rounds served, those that were gone back on included
  Budget* budget = nullptr;  // charged for what is served; may be null
};

// None where no trails are found within the limits. A chain's segments may be shorter together than its passes are:
// what is left over may lengthen any of them, by even numbers.
[[nodiscard]] std::optional<Trails> FindTrails(const TrailProblem& problem, const TrailLimits& limits,
                                               std::uint64_t seed);

}  // namespace stalloc::planner
