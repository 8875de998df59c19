// Random training loops for the engine's stress tests: a program that repeats, and copies of it that diverge.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "proto/model/plan.h"
#include "tests/engine/corpus.h"
#include "tests/engine/first_fit_plan.h"

namespace stalloc {

// `count` requests of a few dozen sizes up to `max_bytes`, nested and overlapping as a forward and a backward pass are.
[[nodiscard]] std::vector<CorpusAllocation> RandomProgram(std::size_t count, Bytes max_bytes, std::mt19937_64& random);

// How an iteration differs from its program; shares of the requests.
struct Divergence {
  double inserted = 0;
  double dropped = 0;
  double resized = 0;
  double swapped = 0;
  double freed_late = 0;  // some time later, or only in the next iteration
  double freed_early = 0;
};

struct StressRequest {
  Bytes bytes = 0;
  bool freed_next_iteration = false;
};

// One iteration: requests, and steps over them. Every request is allocated once and freed once, at the latest by
// whoever frees what the iteration leaves behind.
struct StressIteration {
  std::vector<StressRequest> requests;
  std::vector<ReplayStep> steps;
};

[[nodiscard]] StressIteration Diverge(const std::vector<CorpusAllocation>& program, const Divergence& divergence,
                                      std::mt19937_64& random);

}  // namespace stalloc
