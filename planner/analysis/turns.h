// Turns: copies of the cycle, each with places of its own.
//
//   offset ^      one place in all copies           in turns
//          |  [old=][new======][old====]        [old=][new======][xx|==
//          |  [new=======][xx......[new=        [new==][xx][x][old=====
//          |  [xx]..[x]...[xx]..[x]...
//          +--copy 0------|copy 1------>
//
// What lives into the next iteration (the output of a training loop, until the new one replaces it) lies in two places
// alternately, and one of them is free in each turn: what fits into one copy may lie there only if it may move to the
// other one in the next turn.
//
// Pure; thread-safe. Bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/analysis/timeline.h"
#include "planner/packing/problem/problem.h"

namespace stalloc::planner {

// Something lives from one iteration into the next: else all iterations are packed alike, each for itself.
[[nodiscard]] bool CrossesIterations(const Timeline& timeline);

// A lower bound of one place for all turns: at each tick the blocks that are alive, and all places of what has
// several in any case. REQUIRES: a timeline in turns. O(n + end).
[[nodiscard]] Bytes BoundOfOnePlace(const Timeline& timeline);

// Makes one block of those that two copies have where one place in both is possible as far as the load says: all that
// is alive with it, and both places of what crosses, are not above `height`. Returns what number each block has now.
// O(n + end).
[[nodiscard]] std::vector<std::uint32_t> JoinLoose(Timeline* timeline, Bytes height);

// Requests of one period that have more than one place.
[[nodiscard]] std::uint64_t CountOfSeveralPlaces(const Timeline& timeline);

// Makes one block of those that two copies have in one place, as a timeline without turns has it. REQUIRES: a valid
// packing of a timeline in turns.
void JoinTurns(Timeline* timeline, Packing* packing);

}  // namespace stalloc::planner
