// Solver: one algorithm, one file. Deterministic for a seed and an amount of work, whatever the number of threads and
// the load of the machine; anytime: the end of its work and Ctrl-C keep the best valid packing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "planner/packing/problem/passes.h"
#include "planner/packing/problem/problem.h"
#include "planner/packing/problem/work.h"

namespace stalloc::planner {

struct SolveOptions {
  Work work = kUnlimitedWork;  // for a first packing more may be spent
  std::uint64_t seed = 1;
  int threads = 1;
  Bytes lower_bound = 0;                         // stop when reached
  std::optional<Bytes> capacity = std::nullopt;  // low enough: stop when reached, though lower may be possible
  PackingPasses passes = {};                     // that are made use of
  CycleAxis cycle = {};                          // where idle space counts; empty: the whole axis
  const std::atomic<bool>* stop = nullptr;       // Ctrl-C; may be null
  // May be empty. Called from a solving thread, one call at a time.
  std::function<void(Bytes best_height)> on_progress = nullptr;
};

class Solver {
 public:
  virtual ~Solver() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  // Always returns a valid packing of all blocks.
  [[nodiscard]] virtual Packing Solve(const Problem& problem, const SolveOptions& options) = 0;
};

}  // namespace stalloc::planner
