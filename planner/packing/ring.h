// Ring: lifetimes that end in the order in which they began, micro-batch after micro-batch, laid out as in a ring
// buffer.
//
// In a pipeline's steady state the oldest micro-batch's blocks are freed while the youngest's are allocated, and the
// short-lived blocks of the peak need the room that is left over together with what is freed first. First fit leaves
// that room at one end of the arena; here it always lies between the youngest and the oldest blocks, next to what goes
// next: long-lived blocks are placed in order of their ends, each above the one before, and go on at the bottom once a
// ceiling is reached. Short-lived blocks follow by area. Where the ring closes, it may cut a peak's room in two: so
// first that is searched, revolution by revolution (revolutions.h); then rings with some starts are placed whole, and
// what does not fit below the ceiling is mended by window repair. Bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "planner/packing/evaluator.h"
#include "planner/packing/solver.h"

namespace stalloc::planner {

struct RingOptions {
  Bytes ceiling = 0;
  std::uint32_t least_steps = 0;  // shorter lives are not part of the ring
  double start = 0;               // where the ring begins, as a share of the room above the residents
  // A ring with more blocks above the ceiling is given up.
  std::size_t most_misses = std::numeric_limits<std::size_t>::max();
  Work most_work = kUnlimitedWork;  // one that takes more, too
};

struct RingPacking {
  std::vector<Offset> offsets;  // empty where it was given up
  Bytes height = 0;
  std::size_t misses = 0;  // blocks above the ceiling
  Work work = 0;
};

// Places every block of the instance. Residents, alive for a third of the time, lie at the bottom.
[[nodiscard]] RingPacking PlaceRing(const Instance& instance, const RingOptions& options);

// Searches rings of the blocks that decide the height, and completes those that lower it.
void SearchRings(Evaluator& evaluator, std::uint64_t seed);

[[nodiscard]] std::unique_ptr<Solver> MakeRing();

}  // namespace stalloc::planner
