#include "planner/cli/plan_jobs.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/analysis/rank_planner.h"
#include "planner/cli/version.h"
#include "planner/packing/portfolio.h"
#include "planner/report/quantities.h"
#include "planner/report/rank_json.h"
#include "planner/report/rank_text.h"
#include "proto/codec/plan_writer.h"
#include "proto/codec/trace_reader.h"
#include "proto/codec/whole_file.h"

namespace stalloc::planner {
namespace {

// One rank, start to end, on one thread.
class Job {
 public:
  Job(const RunDirectory& directory, std::uint32_t rank, const PlanJobsOptions& options, int solver_threads,
      Progress* progress)
      : directory_(directory), rank_(rank), options_(options), solver_threads_(solver_threads), progress_(progress) {
    outcome_.rank = rank;
  }

  RankOutcome Run() {
    const auto start = std::chrono::steady_clock::now();
    absl::Status status = absl::InternalError("not run");
    try {
      status = Plan();
    } catch (const std::exception& failure) {  // out of memory on a huge trace: the others go on
      status = absl::ResourceExhaustedError(failure.what());
    }
    outcome_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!status.ok()) {
      outcome_.error = std::string(status.message());
    }
    progress_->Finished(rank_, status.ok() ? Result() : absl::StrCat("error: ", status.message(), StalePlanNote()));
    return std::move(outcome_);
  }

 private:
  absl::Status Plan() {
    const absl::StatusOr<Trace> trace =
        ReadTrace(directory_.TracePath(rank_), [this](std::uint64_t read, std::uint64_t all) {
          progress_->Doing(rank_, absl::StrFormat("reading, %d %%", all == 0 ? 100 : 100 * read / all));
        });
    if (!trace.ok()) {
      return trace.status();
    }
    if (trace->fingerprint.world_size > 0 && trace->fingerprint.rank != rank_) {
      return absl::InvalidArgumentError(absl::StrCat(directory_.TracePath(rank_),
                                                     " is the trace of another rank: expected ", rank_, ", found ",
                                                     trace->fingerprint.rank));
    }
    const std::unique_ptr<Solver> solver = MakePortfolio();
    absl::StatusOr<RankResult> result = PlanRank(*trace, PlannerOptions(), *solver);
    if (!result.ok()) {
      return absl::Status(result.status().code(),
                          absl::StrCat(directory_.TracePath(rank_), ": ", result.status().message()));
    }
    return Write(*std::move(result));
  }

  RankPlannerOptions PlannerOptions() {
    RankPlannerOptions options;
    options.plan = !options_.trace_only;
    options.packing_time = options_.packing_time;
    options.solve.threads = solver_threads_;
    options.solve.seed = options_.seed;
    options.solve.stop = options_.stop;
    options.solve.on_progress = [this](Bytes height) {
      progress_->Doing(rank_, absl::StrCat("packing, arena ", FormatBytes(height)));
    };
    options.planner_version = Version();
    return options;
  }

  // The report is worth having even where nothing can be planned. The plan comes last: where it is, all is.
  absl::Status Write(RankResult result) {
    outcome_.report = std::move(result.report);
    absl::Status status = WriteWholeFile(directory_.ReportPath(rank_, "txt"), RankText(*outcome_.report));
    status.Update(WriteWholeFile(directory_.ReportPath(rank_, "json"), RankJson(*outcome_.report)));
    status.Update(result.plan_status);
    if (status.ok() && result.plan.has_value()) {
      status = WritePlanFile(directory_.PlanPath(rank_), *result.plan);
      outcome_.plan_path = status.ok() ? directory_.PlanPath(rank_) : "";
    }
    return status;
  }

  [[nodiscard]] std::string Result() const {
    std::string text;
    for (const DeviceReport& device : outcome_.report->devices) {
      absl::StrAppend(&text, text.empty() ? "" : "; ", "peak ", FormatBytes(device.peak.live_bytes));
      if (device.packing.has_value()) {
        absl::StrAppend(&text, ", arena ", FormatBytes(device.packing->arena_bytes));
      }
    }
    return absl::StrCat(text, ", ", FormatSeconds(outcome_.seconds));
  }

  [[nodiscard]] std::string StalePlanNote() const {
    std::error_code ignored;
    const bool exists = !options_.trace_only && std::filesystem::exists(directory_.PlanPath(rank_), ignored);
    return exists ? absl::StrCat(" (the plan of an earlier run stays: ", directory_.PlanPath(rank_), ")") : "";
  }

  const RunDirectory& directory_;
  const std::uint32_t rank_;
  const PlanJobsOptions& options_;
  const int solver_threads_;
  Progress* const progress_;
  RankOutcome outcome_;
};

}  // namespace

std::vector<RankOutcome> PlanRanks(const RunDirectory& directory, const std::vector<std::uint32_t>& ranks,
                                   const PlanJobsOptions& options, Progress* progress) {
  std::vector<RankOutcome> outcomes(ranks.size());
  const int workers = std::clamp(options.threads, 1, static_cast<int>(ranks.size()));
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < ranks.size(); i = next++) {
      outcomes[i] = Job(directory, ranks[i], options, std::max(1, options.threads / workers), progress).Run();
    }
  };
  std::vector<std::jthread> pool;
  for (int i = 1; i < workers; ++i) {
    pool.emplace_back(work);
  }
  work();
  pool.clear();  // joins
  return outcomes;
}

}  // namespace stalloc::planner
