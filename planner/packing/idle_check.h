// The independent check of a list of idle ranges: none may share a byte and a position with a range in use. Shares no
// code with idle_space.cc.
//
// A sweep over one round of the cycle. Whether a range meets any of the other kind that are active is answered by
// counting those that lie wholly below it or wholly above it: two Fenwick trees (Fenwick 1994), O(n log n). Bytes.
#pragma once

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "planner/packing/hand_overs.h"
#include "planner/packing/idle_space.h"
#include "planner/packing/problem.h"

namespace stalloc::planner {

// Bytes in use at positions [begin, end) of the cycle. REQUIRES: begin < end, bytes > 0.
struct UsedRange {
  Tick begin = 0;
  Tick end = 0;
  Offset offset = 0;
  Bytes bytes = 0;
};

// What the blocks of a packing use in the cycle; those that live over its end are two.
[[nodiscard]] std::vector<UsedRange> UsedInCycle(const Problem& problem, const Packing& packing,
                                                 const CycleAxis& cycle);

// InvalidArgument naming an idle range and a range in use that meet, or an idle range that is empty or longer than the
// cycle's `length`.
[[nodiscard]] absl::Status CheckIdleSpace(std::span<const IdleRange> idle, std::span<const UsedRange> used,
                                          Tick length);

}  // namespace stalloc::planner
