// One solver on one instance, timed and checked.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/packing/problem/problem.h"
#include "planner/packing/search/solver.h"

namespace stalloc::planner {

struct Improvement {
  double seconds = 0;  // since the solver was called
  Bytes height = 0;
};

struct Measurement {
  std::string instance;
  std::string solver;
  std::size_t blocks = 0;
  Bytes load_bound = 0;
  std::optional<Bytes> capacity = std::nullopt;  // what was to be reached, where that is more than the load bound
  bool finished = false;                         // false: stopped before its first packing; height means nothing
  Bytes height = 0;
  Bytes proved_bound = 0;  // the greater of the load bound and what the solver proved
  double seconds = 0;      // of solving alone
  double cpu_seconds = 0;  // of all threads
  std::vector<Improvement> improvements = {};

  // An empty instance is packed perfectly.
  [[nodiscard]] double ratio() const {
    return load_bound == 0 ? 1.0 : static_cast<double>(height) / static_cast<double>(load_bound);
  }
  [[nodiscard]] bool optimal() const { return finished && height == proved_bound; }
  // When a packing at most `limit` high was first there.
  [[nodiscard]] std::optional<double> SecondsTo(Bytes limit) const;
};

struct MeasureOptions {
  double time_limit_s = 0;
  bool by_clock = false;  // else it is work that is counted (planner/packing/problem/work.h)
  int threads = 1;
  std::uint64_t seed = 1;
  std::optional<Bytes> capacity = std::nullopt;
  PackingPasses passes = {};
};

// Internal: the packing does not pass CheckPacking; the message names solver, instance and blocks.
[[nodiscard]] absl::StatusOr<Measurement> Measure(const std::string& instance, const Problem& problem, Solver& solver,
                                                  const MeasureOptions& options);

}  // namespace stalloc::planner
