#include "planner/packing/pack_command.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/packing/problem/csv.h"
#include "planner/packing/problem/plan_check.h"
#include "planner/packing/problem/problem.h"
#include "planner/packing/search/solver.h"

namespace stalloc::planner {
namespace {

using Clock = std::chrono::steady_clock;

struct PackResult {
  std::size_t blocks = 0;
  Bytes lower_bound = 0;
  Packing packing;
  double seconds = 0;
  absl::Status check;
  std::string solver;

  // An empty instance is packed perfectly.
  [[nodiscard]] double ratio() const {
    return lower_bound == 0 ? 1.0 : static_cast<double>(packing.height) / static_cast<double>(lower_bound);
  }
  [[nodiscard]] Bytes proved_bound() const { return std::max(lower_bound, packing.proved_bound); }
  [[nodiscard]] bool optimal() const { return check.ok() && packing.height == proved_bound(); }
};

absl::Status CheckOptions(const PackOptions& options) {
  if (!(options.time_limit_s >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the time limit must be a number of seconds that is not negative: ", options.time_limit_s));
  }
  if (options.threads < 1) {
    return absl::InvalidArgumentError(absl::StrCat("the number of threads must be 1 or more: ", options.threads));
  }
  return absl::OkStatus();
}

PackResult Solve(const PackOptions& options, const Problem& problem) {
  PackResult result;
  result.blocks = problem.blocks.size();
  result.lower_bound = LoadBound(problem);
  const std::unique_ptr<Solver> solver = MakePortfolio();
  const Clock::time_point start = Clock::now();
  SolveOptions solve;
  solve.work = WorkOfSeconds(options.time_limit_s);
  solve.seed = options.seed;
  solve.threads = options.threads;
  solve.capacity = options.capacity;
  solve.stop = options.stop;
  if (options.on_progress) {
    solve.on_progress = [&](Bytes height) {
      options.on_progress(static_cast<double>(height) / static_cast<double>(result.lower_bound));
    };
  }
  result.packing = solver->Solve(problem, solve);
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  result.check = CheckPacking(problem, result.packing);
  result.solver = std::string(solver->name());
  return result;
}

void PrintJson(const PackResult& result, std::ostream& out) {
  out << absl::StrFormat(
      "{\"blocks\": %d, \"lower_bound\": %d, \"proved_bound\": %d, \"height\": %d, \"ratio\": %.7f, \"seconds\": %.6f, "
      "\"valid\": %s, \"optimal\": %s, \"solver\": \"%s\"}\n",
      result.blocks, result.lower_bound, result.proved_bound(), result.packing.height, result.ratio(), result.seconds,
      result.check.ok() ? "true" : "false", result.optimal() ? "true" : "false", result.solver);
}

void PrintText(const PackResult& result, std::ostream& out) {
  out << absl::StrFormat("%d blocks, height %d, lower bound %d, ratio %.5f%s, %.3f s\n", result.blocks,
                         result.packing.height, result.lower_bound, result.ratio(),
                         result.optimal() ? " (optimal)" : "", result.seconds);
}

absl::StatusOr<CsvInstance> ReadInput(const std::string& input) {
  return input == "-" ? ReadCsv(std::cin, "standard input") : ReadCsvFile(input);
}

absl::Status Pack(const PackOptions& options, std::ostream& out) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  const absl::StatusOr<CsvInstance> instance = ReadInput(options.input);
  if (!instance.ok()) return instance.status();
  const PackResult result = Solve(options, instance->problem);
  options.json ? PrintJson(result, out) : PrintText(result, out);
  if (!result.check.ok()) {
    return absl::InternalError(absl::StrCat("the packing is invalid: ", result.check.message()));
  }
  if (options.capacity && result.packing.height > *options.capacity) {
    return absl::ResourceExhaustedError(absl::StrCat("does not fit: capacity ", *options.capacity, ", height ",
                                                     result.packing.height, ", lower bound ", result.lower_bound));
  }
  if (options.output.empty()) return absl::OkStatus();
  return WriteCsvFile(instance->problem, result.packing, options.output);
}

}  // namespace

int RunPack(const PackOptions& options, std::ostream& out, std::ostream& err) {
  const absl::Status status = Pack(options, out);
  if (status.ok()) return 0;
  err << options.name << ": " << std::string(status.message()) << '\n';
  return 1;
}

}  // namespace stalloc::planner
