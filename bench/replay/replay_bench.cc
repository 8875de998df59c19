// Serves one iteration of a recorded run on a plan made from others, through the real runtime: what is held for it, who
// serves it, and how long that takes. Results go to standard output, progress to standard error.
//
//   replay_bench [flags] [FILE.txt.gz|FILE.trace|synth/PRESET]...    --help lists the flags
//
// Exit codes: 0 ok; 1 bad input, a block that overlaps another, or (--floors) a floor that is missed; 2 usage.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "bench/plan_quality/output.h"
#include "bench/replay/edits.h"
#include "bench/replay/experiment.h"
#include "bench/replay/floors.h"
#include "bench/replay/results.h"
#include "planner/cli/arguments.h"

ABSL_FLAG(std::string, plan_from, "0-2", "Iterations that the plan is made from: a range, or numbers in any order.");
ABSL_FLAG(std::string, serve, "3", "Iterations that are served, one after the other.");
ABSL_FLAG(int, scale, 1, "Every request so many times as large: toy runs recorded on a CPU as large as real ones.");
ABSL_FLAG(bool, orders, false, "Every choice of who is planned from and who is served; the first planned one stays.");
ABSL_FLAG(bool, cut_tail, false, "Drop what all iterations end with alike, so that what varies decides the peak.");
ABSL_FLAG(double, edit, 0, "Drop so many percent of the served iteration's requests, and insert as many.");
ABSL_FLAG(bool, marks, true, "Marks as recorded; --nomarks: only those that the hook on optimizer steps makes.");
ABSL_FLAG(std::vector<std::string>, without, {},
          "Rules of the engine that are left out, to see what they are worth: in-the-way, kept-places, late-rooms, "
          "lent-slots.");
ABSL_FLAG(bool, dynamic, true, "What has no slot is served from the arena, too; --nodynamic: by upstream.");
ABSL_FLAG(std::uint64_t, lag, 0, "The device lags the host by N requests.");
ABSL_FLAG(double, card, 0, "The card is so many times as large as the peak of live bytes; 0: as large as it takes.");
ABSL_FLAG(double, late, 0, "So many percent of the served iteration's frees come later, by up to --late_by requests.");
ABSL_FLAG(std::uint32_t, late_by, 64, "See --late.");
ABSL_FLAG(std::uint64_t, empty_cache, 0, "Caches are emptied before every so many-th served iteration; 0: never.");
ABSL_FLAG(bool, times, true, "Measure the time of requests, too.");
ABSL_FLAG(bool, auto, false,
          "As under STALLOC_MODE=Auto: the run traces the iterations that it is planned from, and takes its plan up.");
ABSL_FLAG(std::string, await, "", "--auto: iterations between those and the first that is served, without a plan.");
ABSL_FLAG(bool, floors, false, "What must be reached; exit code 1 if one is missed.");
ABSL_FLAG(std::vector<std::string>, floor, {}, "Only these floors, by name.");
ABSL_FLAG(std::string, root, "", "The repository, for its recorded runs; default $STALLOC_SOURCE_DIR or here.");
ABSL_FLAG(double, time_limit, stalloc::planner::kDefaultPackingSeconds,
          "Seconds that the search for a packing may take.");
ABSL_FLAG(int, threads, 2, "Threads of that search.");
ABSL_FLAG(std::uint64_t, seed, 1, "Seed of whatever draws at random.");
ABSL_FLAG(std::string, json, "", "Write the results here as JSON.");

namespace stalloc::bench {
namespace {

int Fail(absl::string_view message, int exit_code = 1) {
  std::cerr << "replay_bench: " << message << '\n';
  return exit_code;
}

// "0-2", "0,2,1"
absl::StatusOr<std::vector<std::size_t>> ParseIterations(absl::string_view flag, const std::string& text) {
  std::vector<std::size_t> iterations;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) || last < first) {
      return absl::InvalidArgumentError(absl::StrCat(flag, ": expected iterations as 0-2 or 0,2,1; found ", text));
    }
    for (std::uint32_t iteration = first; iteration <= last; ++iteration) iterations.push_back(iteration);
  }
  return iterations;
}

absl::StatusOr<Rules> RulesWithout(const std::vector<std::string>& names) {
  Rules rules;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(kRuleNames, name);
    if (found == kRuleNames.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--without: expected some of ", absl::StrJoin(kRuleNames, ", "), "; found ", name));
    }
    rules.LeaveOut(static_cast<Rule>(found - kRuleNames.begin()));
  }
  return rules;
}

absl::StatusOr<ExperimentOptions> OptionsFromFlags() {
  ExperimentOptions options;
  const absl::StatusOr<std::vector<std::size_t>> planned =
      ParseIterations("--plan-from", absl::GetFlag(FLAGS_plan_from));
  if (!planned.ok()) return planned.status();
  const absl::StatusOr<std::vector<std::size_t>> served = ParseIterations("--serve", absl::GetFlag(FLAGS_serve));
  if (!served.ok()) return served.status();
  if (absl::GetFlag(FLAGS_scale) < 1) return absl::InvalidArgumentError("--scale: expected a factor from 1 on");
  const double edited = absl::GetFlag(FLAGS_edit);
  if (edited < 0 || edited > 100) return absl::InvalidArgumentError("--edit: expected percent, 0 to 100");
  options.planned = *planned;
  options.served = *served;
  options.marks = absl::GetFlag(FLAGS_marks) ? MarkStyle::kRecorded : MarkStyle::kOptimizerStepsOnly;
  options.edited_share = edited / 100;
  options.seed = absl::GetFlag(FLAGS_seed);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.packing_work = planner::WorkOfSeconds(absl::GetFlag(FLAGS_time_limit));
  options.dynamic = absl::GetFlag(FLAGS_dynamic);
  options.lag = absl::GetFlag(FLAGS_lag);
  options.card = absl::GetFlag(FLAGS_card);
  options.late_share = absl::GetFlag(FLAGS_late) / 100;
  options.late_by = absl::GetFlag(FLAGS_late_by);
  const absl::StatusOr<Rules> rules = RulesWithout(absl::GetFlag(FLAGS_without));
  if (!rules.ok()) return rules.status();
  options.rules = *rules;
  options.times = absl::GetFlag(FLAGS_times);
  options.takes_plan = absl::GetFlag(FLAGS_auto);
  if (const std::string& text = absl::GetFlag(FLAGS_await); !text.empty()) {
    const absl::StatusOr<std::vector<std::size_t>> awaited = ParseIterations("--await", text);
    if (!awaited.ok()) return awaited.status();
    options.awaited = *awaited;
  }
  return options;
}

absl::StatusOr<Recording> ReadScaled(const std::string& path) {
  absl::StatusOr<Recording> recording = ReadRecording(path);
  if (recording.ok()) Scale(&*recording, static_cast<std::uint32_t>(absl::GetFlag(FLAGS_scale)));
  return recording;
}

absl::Status Measure(const std::string& path, const ExperimentOptions& options, std::vector<Experiment>* experiments) {
  absl::StatusOr<Recording> recording = ReadScaled(path);
  if (!recording.ok()) return recording.status();
  if (absl::GetFlag(FLAGS_cut_tail)) {
    if (absl::Status status = CutCommonTail(&*recording); !status.ok()) return status;
    absl::StrAppend(&recording->name, ", tail cut");
  }
  if (absl::GetFlag(FLAGS_orders)) {
    absl::StatusOr<std::vector<Experiment>> orders = RunAllOrders(*recording, options);
    if (!orders.ok()) return orders.status();
    const Spread spread = RatioSpread(*orders);
    std::cerr << absl::StrFormat("%s: held / live %.5f (mean of %d orders), %.5f (worst)\n", recording->name,
                                 spread.mean, orders->size(), spread.worst);
    for (Experiment& experiment : *orders) experiments->push_back(std::move(experiment));
    return absl::OkStatus();
  }
  absl::StatusOr<Experiment> experiment = RunExperiment(*recording, options);
  if (!experiment.ok()) return experiment.status();
  experiments->push_back(*std::move(experiment));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<FloorResult>> MeasureFloors(const ExperimentOptions& options) {
  const char* const source = std::getenv("STALLOC_SOURCE_DIR");
  std::string root = absl::GetFlag(FLAGS_root);
  if (root.empty()) root = source == nullptr ? "." : source;
  const absl::StatusOr<std::vector<Floor>> floors = ChosenFloors(absl::GetFlag(FLAGS_floor));
  if (!floors.ok()) return floors.status();
  std::vector<FloorResult> results;
  for (const Floor& floor : *floors) {
    absl::StatusOr<FloorResult> result = MeasureFloor(floor, root, options);
    if (!result.ok()) return result.status();
    std::cerr << absl::StrFormat("%-30s %.5f\n", floor.name, RatioSpread(result->experiments).mean);
    results.push_back(*std::move(result));
  }
  return results;
}

int ReportFloors(const std::vector<FloorResult>& floors) {
  int missed = 0;
  for (const FloorResult& result : floors) {
    if (result.held()) continue;
    ++missed;
    std::cout << absl::StrFormat("missed: %s: expected held / live of at most %.5f, found %.5f\n", result.floor.name,
                                 result.floor.ratio, RatioSpread(result.experiments).mean);
  }
  std::cout << floors.size() << " floors measured, " << missed << " missed\n";
  return missed == 0 ? 0 : 1;
}

int Run(const std::vector<std::string>& arguments, const std::vector<std::string>& files) {
  absl::StatusOr<ExperimentOptions> options = OptionsFromFlags();
  if (!options.ok()) return Fail(options.status().message(), 2);
  const bool with_floors = absl::GetFlag(FLAGS_floors);
  if (files.empty() != with_floors) return Fail("expected recorded runs, or --floors and none", 2);
  std::vector<Experiment> experiments;
  std::vector<FloorResult> floors;
  for (const std::string& file : files) {
    if (absl::Status status = Measure(file, *options, &experiments); !status.ok()) return Fail(status.message());
  }
  if (with_floors) {
    absl::StatusOr<std::vector<FloorResult>> measured = MeasureFloors(*options);
    if (!measured.ok()) return Fail(measured.status().message());
    floors = *std::move(measured);
    std::cout << FloorTable(floors);
  } else {
    std::cout << ExperimentTable(experiments);
  }
  if (const std::string path = absl::GetFlag(FLAGS_json); !path.empty()) {
    const planner::RunFacts facts = planner::FactsOf("replay_bench", arguments, STALLOC_VERSION, STALLOC_COMPILER);
    const absl::Status status = planner::WriteFile(path, ResultsJson(experiments, floors, facts));
    if (!status.ok()) return Fail(status.message());
  }
  return with_floors ? ReportFloors(floors) : 0;
}

}  // namespace
}  // namespace stalloc::bench

int main(int argc, char** argv) {
  const stalloc::planner::CommandSyntax syntax{
      "replay_bench",
      "[FILE.txt.gz|FILE.trace|synth/PRESET]...",
      "What is held for an iteration that a plan made from others cannot know.",
      "",
      {"plan_from", "serve", "orders", "cut_tail",   "edit",    "scale", "marks",  "dynamic",
       "without",   "lag",   "card",   "late",       "late_by", "times", "floors", "auto",
       "await",     "floor", "root",   "time_limit", "threads", "seed",  "json"},
      "replay_bench --floors\nreplay_bench run1/trace/rank00000.trace --serve 4-18\n"};
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (stalloc::planner::AsksForHelp(arguments)) {
    std::cout << absl::StrReplaceAll(stalloc::planner::HelpText(syntax, "stalloc-planner"), {{"stalloc-planner ", ""}});
    return 0;
  }
  const absl::StatusOr<std::vector<std::string>> files = stalloc::planner::ParseArguments(syntax, arguments);
  if (!files.ok()) return stalloc::bench::Fail(files.status().message(), 2);
  return stalloc::bench::Run(arguments, *files);
}
