// Runs every instance of the corpus through every solver and prints a table: instance, blocks, ratio to the load bound,
// seconds of solving alone. Each packing passes the independent check, else the program fails.
//
//   packing_bench [--root DIR] [--instance SUBSTRING] [--solver NAME]... [--time-limit S] [--threads N] [--seed N]
//                 [--json PATH]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/packing/csv.h"
#include "planner/packing/plan_check.h"
#include "planner/packing/portfolio.h"
#include "planner/packing/solver_list.h"
#include "tests/packing/corpus.h"

namespace stalloc::planner {
namespace {

constexpr char kPublicEnding[] = ".1048576.csv";
constexpr Bytes kPublicCapacity = 1048576;

struct BenchOptions {
  std::string root = SourceRoot();
  std::string instance;              // substring; empty: all
  std::vector<std::string> solvers;  // empty: all
  double time_limit_s = static_cast<double>(kDefaultPackingTime.count());
  int threads = 2;
  std::uint64_t seed = 1;
  std::string json;
};

struct Row {
  std::string instance;
  std::string solver;
  std::size_t blocks = 0;
  Bytes lower_bound = 0;
  Bytes height = 0;
  double seconds = 0;

  [[nodiscard]] double ratio() const { return static_cast<double>(height) / static_cast<double>(lower_bound); }
};

bool ParseFlag(BenchOptions& options, const std::string& flag, const char* value) {
  if (flag == "--root") return options.root = value, true;
  if (flag == "--instance") return options.instance = value, true;
  if (flag == "--solver") return options.solvers.push_back(value), true;
  if (flag == "--json") return options.json = value, true;
  if (flag == "--time-limit") return absl::SimpleAtod(value, &options.time_limit_s);
  if (flag == "--threads") return absl::SimpleAtoi(value, &options.threads);
  if (flag == "--seed") return absl::SimpleAtoi(value, &options.seed);
  return false;
}

absl::StatusOr<Problem> ReadInstance(const NamedFile& file) {
  if (absl::EndsWith(file.path, ".gz")) return ReadRecordedRun(file.path);
  absl::StatusOr<CsvInstance> csv = ReadCsvFile(file.path);
  if (!csv.ok()) return csv.status();
  return std::move(csv->problem);
}

absl::StatusOr<Row> Measure(const BenchOptions& options, const NamedFile& file, const Problem& problem,
                            Solver& solver) {
  const std::string& name = file.name;
  using Clock = std::chrono::steady_clock;
  SolveOptions solve;
  solve.seed = options.seed;
  solve.threads = options.threads;
  // The public instances ask for a capacity, which is above the load bound in some.
  if (absl::EndsWith(file.path, kPublicEnding)) solve.capacity = kPublicCapacity;
  const Clock::time_point start = Clock::now();
  solve.deadline =
      start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.time_limit_s));
  solve.on_progress = [&](Bytes height) {
    if (std::getenv("STALLOC_BENCH_PROGRESS") == nullptr) return;
    std::cerr << absl::StrFormat("  %.3f s: %d\n", std::chrono::duration<double>(Clock::now() - start).count(), height);
  };
  const Packing packing = solver.Solve(problem, solve);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (absl::Status status = CheckPacking(problem, packing); !status.ok()) {
    return absl::InternalError(absl::StrCat(name, " by ", std::string(solver.name()), ": ", status.message()));
  }
  return Row{name, std::string(solver.name()), problem.blocks.size(), LoadBound(problem), packing.height, seconds};
}

void Print(const Row& row) {
  std::cout << absl::StrFormat("%-28s %-18s %8d  %.5f  %8.3f\n", row.instance, row.solver, row.blocks, row.ratio(),
                               row.seconds)
            << std::flush;
}

bool WriteJson(const std::vector<Row>& rows, const std::string& path) {
  std::ofstream out(path);
  out << "[\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    out << absl::StrFormat(
        "  {\"instance\": \"%s\", \"solver\": \"%s\", \"blocks\": %d, \"lower_bound\": %d, \"height\": %d, "
        "\"ratio\": %.7f, \"seconds\": %.4f}%s\n",
        row.instance, row.solver, row.blocks, row.lower_bound, row.height, row.ratio(), row.seconds,
        i + 1 < rows.size() ? "," : "");
  }
  out << "]\n";
  out.close();
  return static_cast<bool>(out);
}

bool Wanted(const std::vector<std::string>& names, std::string_view name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

int Run(const BenchOptions& options) {
  std::vector<NamedFile> files = RecordedRuns(options.root);
  const std::vector<NamedFile> extra = PublicInstances(options.root);
  if (extra.empty()) std::cerr << "packing_bench: minimalloc's instances are absent, left out\n";
  files.insert(files.end(), extra.begin(), extra.end());
  std::vector<Row> rows;
  std::cout << absl::StrFormat("%-28s %-18s %8s  %7s  %8s\n", "instance", "solver", "blocks", "ratio", "seconds");
  for (const NamedFile& file : files) {
    if (!absl::StrContains(file.name, options.instance)) continue;
    const absl::StatusOr<Problem> problem = ReadInstance(file);
    if (!problem.ok()) return std::cerr << problem.status().message() << '\n', 1;
    for (const std::unique_ptr<Solver>& solver : MakeAllSolvers()) {
      if (!Wanted(options.solvers, solver->name())) continue;
      const absl::StatusOr<Row> row = Measure(options, file, *problem, *solver);
      if (!row.ok()) return std::cerr << row.status().message() << '\n', 1;
      Print(*row);
      rows.push_back(*row);
    }
  }
  if (!options.json.empty() && !WriteJson(rows, options.json))
    return std::cerr << "cannot write " << options.json << '\n', 1;
  return 0;
}

}  // namespace
}  // namespace stalloc::planner

int main(int argc, char** argv) {
  stalloc::planner::BenchOptions options;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc || !stalloc::planner::ParseFlag(options, argv[i], argv[i + 1])) {
      std::cerr << "packing_bench: bad flag or value: " << argv[i] << '\n';
      return 2;
    }
  }
  return stalloc::planner::Run(options);
}
