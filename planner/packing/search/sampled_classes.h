// Sampled classes: size classes for instances so large that one evaluation takes long. Classes are searched on windows
// around the greatest loads; the best few are evaluated on everything; where that is too high, a window around the
// place joins the sample and the search goes on.
#pragma once

#include <cstdint>

#include "planner/packing/search/evaluator.h"

namespace stalloc::planner {

// An instance of fewer blocks is evaluated as fast as a sample.
inline constexpr std::size_t kMinSampledBlocks = 60'000;

// Whether there are so many sizes that orders by exact size are of little use.
[[nodiscard]] bool HasManySizes(const Instance& instance);

// Stops after `patience` samples in a row that lowered nothing, or when the state is done. Offers at least one packing
// where there is none yet.
void SearchSampledClasses(Evaluator& evaluator, const SolveOptions& options, int patience);

}  // namespace stalloc::planner
