// A plan made without the planner: one iteration of a recorded run, packed by first fit in order of allocation.
//
// For tests and benchmarks of the engine, which need offsets that are right, not good.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/model/plan.h"
#include "tests/engine/corpus.h"

namespace stalloc {

// What the program does: requests in the order of allocation, frees where they happened.
struct ReplayStep {
  bool allocate = true;
  std::uint32_t request = 0;  // index into the iteration's requests
};

// The steps of one iteration. Blocks that are freed after its last allocation, or never, are freed at its end.
[[nodiscard]] std::vector<ReplayStep> StepsOf(const std::vector<CorpusAllocation>& requests);

// One cycle script with a slot for every request.
[[nodiscard]] DevicePlan FirstFitPlan(const std::vector<CorpusAllocation>& requests);

}  // namespace stalloc
