// How tidy a packing is, for tests.
#pragma once

#include "planner/packing/finish/tidy.h"

namespace stalloc::planner {

[[nodiscard]] inline Tidiness MeasureTidiness(const Problem& problem, const Packing& packing, const CycleAxis& cycle) {
  Tidiness tidiness;
  tidiness.hand_overs = FindHandOvers(problem, packing.offsets, cycle).size();
  tidiness.scatter = ScatterMeter(problem, cycle).Measure(packing.offsets, packing.height);
  return tidiness;
}

}  // namespace stalloc::planner
