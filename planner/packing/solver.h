// Solver: one algorithm, one file. Deterministic for a seed; anytime: a deadline or Stop() keeps the best valid
// packing.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "planner/packing/problem.h"

namespace stalloc::planner {

struct SolveOptions {
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  std::uint64_t seed = 1;
  int threads = 1;
  Bytes lower_bound = 0;                         // stop when reached
  std::optional<Bytes> capacity = std::nullopt;  // low enough: stop when reached, though lower may be possible
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
