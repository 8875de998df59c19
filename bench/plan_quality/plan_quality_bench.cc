// How good and how fast the portfolio is, against first fit by size and online best fit. Every packing passes the
// independent check, else the program fails. Results go to standard output, progress to standard error.
//
//   plan_quality_bench [flags] [FILE.csv]...    --help lists the flags
//
// Exit codes: 0 ok; 1 bad input, an invalid packing, or (--floors) a floor that is missed; 2 usage.
#include <sys/resource.h>

#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "bench/plan_quality/ablation.h"
#include "bench/plan_quality/contenders.h"
#include "bench/plan_quality/floors.h"
#include "bench/plan_quality/instances.h"
#include "bench/plan_quality/measurement.h"
#include "bench/plan_quality/results.h"
#include "planner/cli/arguments.h"
#include "planner/packing/portfolio.h"
#include "tests/packing/corpus.h"

ABSL_FLAG(std::string, root, "", "The repository, for its recorded runs; default $STALLOC_SOURCE_DIR or here.");
ABSL_FLAG(std::string, instance, "", "Only instances whose name contains this.");
ABSL_FLAG(std::vector<std::string>, input, {}, "Only these CSV files (id,lower,upper,size), as are arguments.");
ABSL_FLAG(std::vector<std::string>, solver, {},
          "Solvers by name, or all; default: portfolio, size_first_fit, online_best_fit.");
ABSL_FLAG(double, time_limit, stalloc::planner::kDefaultPackingSeconds,
          "Seconds that a search may take on one instance.");
ABSL_FLAG(double, baseline_limit, 120, "Seconds that online_best_fit may take; more: did not finish.");
ABSL_FLAG(int, threads, 2, "Threads of the portfolio.");
ABSL_FLAG(std::uint64_t, seed, 1, "Seed of whatever draws at random.");
ABSL_FLAG(std::string, json, "", "Write the results here as JSON.");
ABSL_FLAG(
    std::vector<std::string>, without, {},
    "Instead: the portfolio whole, and without each of these passes, on packings and plans; A+B: without both; all: "
    "without each.");
ABSL_FLAG(bool, floors, false, "Only the portfolio, only instances with a floor; exit code 1 if one is missed.");

namespace stalloc::planner {
namespace {

int Fail(absl::string_view message, int exit_code = 1) {
  std::cerr << "plan_quality_bench: " << message << '\n';
  return exit_code;
}

std::string Root() {
  const std::string root = absl::GetFlag(FLAGS_root);
  return root.empty() ? SourceRoot() : root;
}

MeasureOptions OptionsOf(double time_limit_s, std::optional<Bytes> capacity) {
  return {.time_limit_s = time_limit_s,
          .threads = absl::GetFlag(FLAGS_threads),
          .seed = absl::GetFlag(FLAGS_seed),
          .capacity = capacity};
}

std::vector<BenchInstance> ChosenInstances(const std::vector<std::string>& positional) {
  std::vector<std::string> files = absl::GetFlag(FLAGS_input);
  files.insert(files.end(), positional.begin(), positional.end());
  std::vector<BenchInstance> all;
  if (files.empty()) {
    all = StandardInstances(Root());
    for (BenchInstance& instance : SyntheticInstances()) all.push_back(std::move(instance));
  }
  for (const std::string& file : files) all.push_back(CsvInstanceOf(file));
  std::vector<BenchInstance> chosen;
  for (BenchInstance& instance : all) {
    if (!absl::StrContains(instance.name, absl::GetFlag(FLAGS_instance))) continue;
    if (absl::GetFlag(FLAGS_floors) && FloorOf(instance.name) == nullptr) continue;
    chosen.push_back(std::move(instance));
  }
  return chosen;
}

double LimitOf(const Contender& contender, const BenchInstance& instance) {
  if (absl::GetFlag(FLAGS_floors)) return FloorOf(instance.name)->seconds;
  return absl::GetFlag(contender.by_clock ? FLAGS_baseline_limit : FLAGS_time_limit);
}

absl::Status RunInstance(const BenchInstance& instance, const std::vector<Contender>& contenders,
                         std::vector<Measurement>& measurements) {
  const absl::StatusOr<Problem> problem = instance.load();
  if (!problem.ok()) return problem.status();
  for (const Contender& contender : contenders) {
    MeasureOptions options = OptionsOf(LimitOf(contender, instance), instance.capacity);
    options.by_clock = contender.by_clock;
    const absl::StatusOr<Measurement> measurement = Measure(instance.name, *problem, *contender.solver, options);
    if (!measurement.ok()) return measurement.status();
    std::cerr << absl::StrFormat(
        "%-36s %-18s %8d  %s  %8.3f s\n", instance.name, measurement->solver, measurement->blocks,
        measurement->finished ? absl::StrFormat("%.5f", measurement->ratio()) : "-------", measurement->seconds);
    measurements.push_back(*measurement);
  }
  return absl::OkStatus();
}

Bytes PeakResidentBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<Bytes>(usage.ru_maxrss) * 1024;
}

int ReportFloors(const std::vector<Measurement>& measurements) {
  for (const Floor& floor : Floors()) {
    bool measured = false;
    for (const Measurement& measurement : measurements) measured |= measurement.instance == floor.instance;
    if (!measured) std::cerr << "plan_quality_bench: not measured: " << floor.instance << '\n';
  }
  const std::vector<std::string> misses = MissedFloors(measurements, PeakResidentBytes());
  for (const std::string& miss : misses) std::cout << "missed: " << miss << '\n';
  std::cout << measurements.size() << " floors measured, " << misses.size() << " missed\n";
  return misses.empty() ? 0 : 1;
}

void ShowRow(const AblationRow& row) {
  std::cerr << absl::StrFormat("%-36s %-18s %.5f  %8.3f s\n", row.instance, row.without,
                               static_cast<double>(row.height) / static_cast<double>(row.load_bound), row.seconds);
}

// Finish passes are left out of plans alone.
absl::Status AblateInstance(const BenchInstance& instance, const std::vector<Variant>& variants,
                            std::vector<AblationRow>& rows) {
  const absl::StatusOr<Problem> problem = instance.load();
  if (!problem.ok()) return problem.status();
  for (const Variant& variant : variants) {
    if (variant.IsOfFinish()) continue;
    MeasureOptions options = OptionsOf(absl::GetFlag(FLAGS_time_limit), instance.capacity);
    options.passes = variant.passes;
    const absl::StatusOr<Measurement> measurement = Measure(instance.name, *problem, *MakePortfolio(), options);
    if (!measurement.ok()) return measurement.status();
    rows.push_back(RowOf(*measurement, variant));
    ShowRow(rows.back());
  }
  return absl::OkStatus();
}

absl::Status AblateTrace(const BenchTrace& traced, const std::vector<Variant>& variants,
                         std::vector<AblationRow>& rows) {
  const absl::StatusOr<Trace> trace = traced.load();
  if (!trace.ok()) return trace.status();
  for (const Variant& variant : variants) {
    const absl::StatusOr<AblationRow> row =
        MeasurePlan(traced.name, *trace, variant, OptionsOf(absl::GetFlag(FLAGS_time_limit), {}));
    if (!row.ok()) return row.status();
    rows.push_back(*row);
    ShowRow(*row);
  }
  return absl::OkStatus();
}

int RunAblation(const std::vector<std::string>& arguments, const std::vector<std::string>& positional) {
  const absl::StatusOr<std::vector<Variant>> variants = VariantsOf(absl::GetFlag(FLAGS_without));
  if (!variants.ok()) return Fail(variants.status().message(), 2);
  std::vector<AblationRow> rows;
  absl::Status status;
  for (const BenchInstance& instance : ChosenInstances(positional)) {
    status.Update(AblateInstance(instance, *variants, rows));
  }
  for (const BenchTrace& trace : AblationTraces(Root())) {
    if (absl::StrContains(trace.name, absl::GetFlag(FLAGS_instance)))
      status.Update(AblateTrace(trace, *variants, rows));
  }
  if (!status.ok()) return Fail(status.message());
  const RunFacts facts = FactsOf("plan_quality_bench", arguments, STALLOC_VERSION, STALLOC_COMPILER);
  const std::string json = AblationJson(rows, facts, absl::GetFlag(FLAGS_time_limit));
  if (const std::string path = absl::GetFlag(FLAGS_json); !path.empty()) {
    status = WriteFile(path, json);
  } else {
    std::cout << json;
  }
  return status.ok() ? 0 : Fail(status.message());
}

int Run(const std::vector<std::string>& arguments, const std::vector<std::string>& positional) {
  if (!absl::GetFlag(FLAGS_without).empty()) return RunAblation(arguments, positional);
  const bool floors = absl::GetFlag(FLAGS_floors);
  if (floors && !absl::GetFlag(FLAGS_solver).empty()) return Fail("--floors measures the portfolio: no --solver", 2);
  const absl::StatusOr<std::vector<Contender>> contenders =
      MakeContenders(floors ? std::vector<std::string>{"portfolio"} : absl::GetFlag(FLAGS_solver));
  if (!contenders.ok()) return Fail(contenders.status().message(), 2);
  const std::vector<BenchInstance> instances = ChosenInstances(positional);
  if (instances.empty()) return Fail("no instance has such a name");
  std::vector<Measurement> measurements;
  for (const BenchInstance& instance : instances) {
    if (absl::Status status = RunInstance(instance, *contenders, measurements); !status.ok()) {
      return Fail(status.message());
    }
  }
  std::cout << ResultsMarkdown(measurements);
  if (const std::string path = absl::GetFlag(FLAGS_json); !path.empty()) {
    const Limits limits{absl::GetFlag(FLAGS_threads), absl::GetFlag(FLAGS_time_limit),
                        absl::GetFlag(FLAGS_baseline_limit)};
    if (absl::Status status = WriteFile(
            path, ResultsJson(measurements, FactsOf("plan_quality_bench", arguments, STALLOC_VERSION, STALLOC_COMPILER),
                              limits));
        !status.ok()) {
      return Fail(status.message());
    }
  }
  return floors ? ReportFloors(measurements) : 0;
}

}  // namespace
}  // namespace stalloc::planner

int main(int argc, char** argv) {
  using namespace stalloc::planner;  // NOLINT
  const CommandSyntax syntax{"plan_quality_bench",
                             "[FILE.csv]...",
                             "The portfolio against simple heuristics: ratio to the load bound and seconds of solving.",
                             "",
                             {"root", "instance", "input", "solver", "time_limit", "baseline_limit", "threads", "seed",
                              "json", "without", "floors"},
                             "plan_quality_bench --time-limit 5\nplan_quality_bench instance.csv\n"};
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (AsksForHelp(arguments)) {
    std::cout << absl::StrReplaceAll(HelpText(syntax, "stalloc-planner"), {{"stalloc-planner ", ""}});
    return 0;
  }
  const absl::StatusOr<std::vector<std::string>> positional = ParseArguments(syntax, arguments);
  if (!positional.ok()) return Fail(positional.status().message(), 2);
  return Run(arguments, *positional);
}
