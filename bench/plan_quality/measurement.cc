#include "bench/plan_quality/measurement.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/plan_quality/stop_after.h"
#include "planner/packing/problem/plan_check.h"

namespace stalloc::planner {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

std::optional<double> Measurement::SecondsTo(Bytes limit) const {
  if (!finished || height > limit) return std::nullopt;
  for (const Improvement& improvement : improvements) {
    if (improvement.height <= limit) return improvement.seconds;
  }
  return seconds;
}

absl::StatusOr<Measurement> Measure(const std::string& instance, const Problem& problem, Solver& solver,
                                    const MeasureOptions& options) {
  Measurement result{.instance = instance,
                     .solver = std::string(solver.name()),
                     .blocks = problem.blocks.size(),
                     .load_bound = LoadBound(problem),
                     .capacity = options.capacity};
  SolveOptions solve;
  solve.seed = options.seed;
  solve.threads = options.threads;
  solve.capacity = options.capacity;
  solve.passes = options.passes;
  const Clock::time_point start = Clock::now();
  const std::clock_t cpu = std::clock();
  solve.on_progress = [&](Bytes height) { result.improvements.push_back({SecondsSince(start), height}); };
  std::optional<StopAfter> clock;
  if (options.by_clock) {
    solve.stop = clock.emplace(options.time_limit_s).flag();
  } else {
    solve.work = WorkOfSeconds(options.time_limit_s);
  }
  const Packing packing = solver.Solve(problem, solve);
  result.seconds = SecondsSince(start);
  result.cpu_seconds = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
  result.finished = packing.offsets.size() == problem.blocks.size();
  if (!result.finished) return result;
  if (absl::Status status = CheckPacking(problem, packing); !status.ok()) {
    return absl::InternalError(absl::StrCat(instance, " by ", result.solver, ": ", status.message()));
  }
  result.height = packing.height;
  result.proved_bound = std::max(result.load_bound, packing.proved_bound);
  return result;
}

}  // namespace stalloc::planner
