// `stalloc-planner plan`.
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "planner/cli/commands.h"
#include "planner/cli/flags.h"
#include "planner/cli/plan_jobs.h"
#include "planner/cli/start_folder.h"
#include "planner/cli/stop_signal.h"
#include "planner/packing/portfolio.h"

ABSL_FLAG(absl::optional<std::int32_t>, device, absl::nullopt, "Rank `R` alone; --rank is the same.");
ABSL_FLAG(absl::optional<std::int32_t>, rank, absl::nullopt, "Plan rank `R` alone.");
ABSL_FLAG(absl::optional<std::int32_t>, devices, absl::nullopt,
          "Ranks 0 to `N`-1; it is an error if one of them has no trace.");
ABSL_FLAG(std::string, model_memory_dir, "", "The same as `DIR`, for users of the published tool.");
ABSL_FLAG(bool, trace_only, false, "Analyse only: write the reports, no plans.");
ABSL_FLAG(std::int32_t, threads, 0, "`N` threads in all; 0: as many as the machine has.");
ABSL_FLAG(
    double, time_limit, stalloc::planner::kDefaultPackingSeconds,
    "How many `SECONDS` to search for a better packing, per rank: about so many of one core of 2025. It is work "
    "that is counted, not time, so that the result does not depend on load or threads. Less where the lower bound "
    "is reached.");
ABSL_FLAG(
    bool, lend_graphs, true,
    "Pools of captured graphs serve eager requests between launches. --nolend-graphs: the arena serves them all.");
ABSL_FLAG(bool, refine, false,
          "Widen what was traced by the sizes and lives that runs in Alloc mode saw (DIR/output/observed).");
ABSL_FLAG(
    bool, running, false,
    "Plan for the traced run itself, which goes on: what it has from before its loop stays where it is. The plan is "
    "written to DIR/output/plan/rank00000.running.plan.");
ABSL_FLAG(
    absl::optional<std::int32_t>, next_start, absl::nullopt,
    "For a start of a run, process `PID`, whose folder is DIR = RUN/starts/NAME: plan for the next start, after what "
    "--running requests, and move trace, reports and plan to RUN. If the process has ended, DIR is removed.");
ABSL_FLAG(std::int32_t, nice, 0,
          "Start at this niceness, `N` from 0 to 19. Planning for the next start is at 10 at least.");
ABSL_FLAG(
    absl::optional<double>, headroom, absl::nullopt,
    "Give every request of varying size a slot of its own, so many `PERCENT` larger than the largest size traced. "
    "Else whatever holds least in a trial.");
ABSL_FLAG(std::uint64_t, seed, 1, "Seed `N` of the search, or of what is drawn at random.");

namespace stalloc::planner {
namespace {

constexpr int kNextStartNiceness = 10;  // nobody waits; on a full machine it still has its tenth of a core
constexpr double kNextStartSeconds = 10;

// What the flags request; InvalidArgument is a usage error.
absl::StatusOr<std::string> DirectoryOf(const std::vector<std::string>& positional) {
  const std::string flag = absl::GetFlag(FLAGS_model_memory_dir);
  if (positional.size() + (flag.empty() ? 0 : 1) != 1) {
    return absl::InvalidArgumentError("expected one directory, as DIR or --model-memory-dir=DIR");
  }
  return positional.empty() ? flag : positional[0];
}

absl::optional<std::int32_t> OneRank() {
  const auto rank = absl::GetFlag(FLAGS_rank);
  return rank.has_value() ? rank : absl::GetFlag(FLAGS_device);
}

absl::Status CheckFlags() {
  const auto rank = OneRank();
  const auto devices = absl::GetFlag(FLAGS_devices);
  if (rank.has_value() + devices.has_value() > 1 || (absl::GetFlag(FLAGS_rank) && absl::GetFlag(FLAGS_device))) {
    return absl::InvalidArgumentError("--rank, --device and --devices exclude each other");
  }
  if (rank.value_or(0) < 0) {
    return absl::InvalidArgumentError(absl::StrCat("--rank must be at least 0: ", *rank));
  }
  if (devices.value_or(1) < 1) {
    return absl::InvalidArgumentError(absl::StrCat("--devices must be at least 1: ", *devices));
  }
  if (absl::GetFlag(FLAGS_threads) < 0) {
    return absl::InvalidArgumentError(absl::StrCat("--threads must be at least 0: ", absl::GetFlag(FLAGS_threads)));
  }
  if (const int nice = absl::GetFlag(FLAGS_nice); nice < 0 || nice > 19) {
    return absl::InvalidArgumentError(absl::StrCat("--nice must be between 0 and 19: ", nice));
  }
  if (const double limit = absl::GetFlag(FLAGS_time_limit); !(limit >= 0 && limit <= 1e6)) {
    return absl::InvalidArgumentError(absl::StrCat("--time-limit must be between 0 and 1000000 seconds: ", limit));
  }
  if (const double headroom = absl::GetFlag(FLAGS_headroom).value_or(0); !(headroom >= 0 && headroom <= 1000)) {
    return absl::InvalidArgumentError(absl::StrCat("--headroom must be between 0 and 1000 percent: ", headroom));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::uint32_t>> RanksToPlan(const RunDirectory& directory) {
  absl::StatusOr<std::vector<std::uint32_t>> traced = directory.TracedRanks();
  if (!traced.ok()) return traced.status();
  std::vector<std::uint32_t> wanted;
  if (const auto one = OneRank(); one.has_value()) {
    wanted.push_back(static_cast<std::uint32_t>(*one));
  } else if (const auto devices = absl::GetFlag(FLAGS_devices); devices.has_value()) {
    for (std::uint32_t rank = 0; rank < static_cast<std::uint32_t>(*devices); ++rank) {
      wanted.push_back(rank);
    }
  } else {
    return traced;
  }
  for (const std::uint32_t rank : wanted) {
    if (!std::binary_search(traced->begin(), traced->end(), rank)) {
      return absl::NotFoundError(absl::StrCat("rank ", rank, " has no trace: ", directory.TracePath(rank)));
    }
  }
  return wanted;
}

PlanJobsOptions JobsOptions() {
  PlanJobsOptions options;
  options.trace_only = absl::GetFlag(FLAGS_trace_only);
  options.refine = absl::GetFlag(FLAGS_refine);
  options.lend_graphs = absl::GetFlag(FLAGS_lend_graphs);
  options.running = absl::GetFlag(FLAGS_running);
  options.threads = absl::GetFlag(FLAGS_threads);
  if (options.threads == 0) {
    options.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  options.packing_work = WorkOfSeconds(absl::GetFlag(FLAGS_time_limit));
  options.seed = absl::GetFlag(FLAGS_seed);
  if (const auto percent = absl::GetFlag(FLAGS_headroom); percent.has_value()) {
    options.headroom = *percent / 100;
  }
  options.stop = StopOnInterrupt();
  return options;
}

void PrintWarnings(const std::vector<RankOutcome>& outcomes, Streams streams) {
  // Ranks of one run mostly share them: each text once, with the ranks that have it.
  std::vector<std::pair<std::string, std::vector<std::uint32_t>>> warnings;
  const auto add = [&](const RankOutcome& outcome, const std::string& text) {
    const auto found = std::find_if(warnings.begin(), warnings.end(), [&](const auto& w) { return w.first == text; });
    if (found == warnings.end()) {
      warnings.push_back({text, {outcome.rank}});
    } else if (found->second.back() != outcome.rank) {
      found->second.push_back(outcome.rank);
    }
  };
  for (const RankOutcome& outcome : outcomes) {
    if (!outcome.report.has_value()) continue;
    for (const std::string& text : outcome.report->warnings) add(outcome, text);
    for (const DeviceReport& device : outcome.report->devices) {
      for (const std::string& text : device.warnings) add(outcome, text);
    }
  }
  for (const auto& [text, ranks] : warnings) {
    Warn("plan", absl::StrCat(text, " (rank ", RanksText(ranks), ")"), streams);
  }
}

int PlanAndTell(const RunDirectory& directory, const std::vector<std::uint32_t>& ranks, const PlanJobsOptions& options,
                Streams streams) {
  std::vector<RankOutcome> outcomes;
  {
    Progress progress(streams.err, streams.err_is_terminal, ranks.size());
    outcomes = PlanRanks(directory, ranks, options, &progress);
  }
  PrintWarnings(outcomes, streams);
  streams.out << (absl::GetFlag(FLAGS_json) ? SummaryJson(outcomes) : SummaryTable(outcomes));
  const bool ok =
      std::all_of(outcomes.begin(), outcomes.end(), [](const RankOutcome& outcome) { return outcome.error.empty(); });
  return ok ? kExitOk : kExitBadInput;
}

// For the process that calls, and what it starts; it never becomes less.
void BeNice(int niceness) {
  if (niceness > getpriority(PRIO_PROCESS, 0)) (void)setpriority(PRIO_PROCESS, 0, niceness);
}

// A start's planner: first for the run that waits, unless nobody does any more, then for the next start. It may outlive
// the start's process.
int PlanStart(const RunDirectory& directory, const StartFolder& start, pid_t process, std::uint32_t rank,
              Streams streams) {
  PlanJobsOptions options = JobsOptions();
  int code = kExitOk;
  if (options.running) {
    const OrphanWatch watch(process, options.stop);
    PlanJobsOptions first = options;
    first.stop = watch.flag();
    code = PlanAndTell(directory, {rank}, first, streams);
    streams.out.flush();
  }
  if (code == kExitOk) {
    BeNice(kNextStartNiceness);
    options.running = false;
    options.packing_work = WorkOfSeconds(kNextStartSeconds);
    code = PlanAndTell(start.NextStart(), {rank}, options, streams);
  }
  if (code == kExitOk) {
    if (const absl::Status published = start.Publish(rank); !published.ok()) {
      code = FailInput("plan", published, streams);
    }
  }
  start.Leave(rank);
  return code;
}

int RunPlan(const std::vector<std::string>& positional, Streams streams) {
  const absl::StatusOr<std::string> path = DirectoryOf(positional);
  absl::Status usage = path.status();
  usage.Update(CheckFlags());
  if (!usage.ok()) return FailUsage("plan", std::string(usage.message()), streams);
  const RunDirectory directory(*path);
  const absl::StatusOr<std::vector<std::uint32_t>> ranks = RanksToPlan(directory);
  if (!ranks.ok()) return FailInput("plan", ranks.status(), streams);
  BeNice(absl::GetFlag(FLAGS_nice));
  const auto process = absl::GetFlag(FLAGS_next_start);
  if (!process.has_value()) return PlanAndTell(directory, *ranks, JobsOptions(), streams);
  const absl::StatusOr<StartFolder> start = StartFolder::At(*path, *process);
  if (!start.ok() || ranks->size() != 1) {
    return FailUsage("plan", start.ok() ? "--next-start needs --rank" : std::string(start.status().message()), streams);
  }
  return PlanStart(directory, *start, *process, ranks->front(), streams);
}

}  // namespace

const Command& PlanCommand() {
  static const Command command{
      {"plan",
       "DIR",
       "Plans the memory of every traced rank below DIR (all ranks in parallel).",
       "Reads  DIR/trace/rank00000.trace and so on\n"
       "Writes DIR/output/plan/rank00000.plan and DIR/output/trace_analysis/rank00000.{txt,json}\n\n"
       "The table: peak live is the greatest sum of live blocks, each rounded up to 512 bytes; arena is what the plan "
       "maps;\n"
       "ratio is arena / lower bound; E is peak live / bytes held on the device.\n",
       {"rank", "device", "devices", "model_memory_dir", "trace_only", "json", "threads", "time_limit", "headroom",
        "refine", "lend_graphs", "running", "next_start", "nice", "seed"},
       "plan run1\n"
       "plan run1 --rank=3 --time-limit=60\n"
       "plan run1 --trace-only\n"},
      RunPlan};
  return command;
}

}  // namespace stalloc::planner
