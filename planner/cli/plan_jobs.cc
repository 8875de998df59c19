#include "planner/cli/plan_jobs.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/analysis/equal_ranks.h"
#include "planner/analysis/rank_planner.h"
#include "planner/cli/read_observed.h"
#include "planner/cli/read_trace.h"
#include "planner/cli/shared_packings.h"
#include "planner/cli/task_queue.h"
#include "planner/cli/version.h"
#include "planner/packing/portfolio.h"
#include "planner/report/quantities.h"
#include "planner/report/rank_json.h"
#include "planner/report/rank_text.h"
#include "planner/trial/slot_trial.h"
#include "proto/codec/plan_writer.h"
#include "proto/codec/whole_file.h"

namespace stalloc::planner {
namespace {

// `call`, with what it throws as a status: out of memory on a huge trace, and the others go on.
template <typename Call>
auto Guarded(const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& failure) {
    return absl::ResourceExhaustedError(failure.what());
  }
}

// What the jobs of one run share.
struct Shop {
  const RunDirectory& directory;
  const PlanJobsOptions& options;
  const int solver_threads;
  const SlotTrial trial;
  Progress* const progress;
  SharedPackings packings;
  TaskQueue tasks;
};

// What a rank was planned to, for those whose traces are equal.
struct Planned {
  std::uint32_t rank = 0;
  RankIdentity identity;
  RankResult result;
  std::optional<ProblemKey> key;
};

// One rank: read and analyse, use the packing of its problem, write. Each step on one thread, not always the same. Or,
// where another rank's trace is equal, that one's result.
class Job : public std::enable_shared_from_this<Job> {
 public:
  Job(Shop& shop, std::uint32_t rank) : shop_(shop), rank_(rank) { outcome_.rank = rank; }

  // Reads the trace once, for its key. If that fails, or there is no key, Run will.
  void Compare() {
    (void)Guarded([this] {
      const absl::StatusOr<TracedRank> traced = Read("comparing");
      if (traced.ok() && !IsOfAnother(traced->head.fingerprint)) {
        identity_ = IdentityOf(*traced);
        trace_key_ = KeyOfTrace(*traced);
      }
      return traced.status();
    });
  }
  [[nodiscard]] const std::optional<TraceKey>& trace_key() const { return trace_key_; }
  // Takes this one's result, or is planned for itself where there is none.
  void AddEqual(std::shared_ptr<Job> job) { equals_.push_back(std::move(job)); }

  void Run() {
    start_ = Clock::now();
    if (shop_.options.running) ForgetRunningPlan();
    const absl::Status status = Guarded([this] { return Analyse(); });
    if (!status.ok() || !planner_->HasProblem()) {
      return End(status.ok() ? Guarded([this] { return Finish({}); }) : status);
    }
    key_ = planner_->Key();
    shop_.packings.Use(
        *key_, [this] { return Guarded([this] { return Solve(); }); },
        [self = shared_from_this()](SharedPacking packing) {
          self->shop_.tasks.PushFront([self, packing] { self->UsePacking(*packing); });
        });
  }

  // When all have run.
  [[nodiscard]] RankOutcome& outcome() { return outcome_; }
  [[nodiscard]] const std::optional<ProblemKey>& key() const { return key_; }

  // REQUIRES: Compare found the same key for both.
  void RunAs(const Planned& planned) {
    start_ = Clock::now();
    key_ = planned.key;
    End(Guarded([&] {
      RankResult result = ResultOfEqual(planned.result, planned.identity, *identity_);
      result.report.same_as_rank = result.report.equal_to_rank = planned.rank;
      const absl::Status written = WritePlan(result.plan);
      return Report(std::move(result), written);
    }));
  }

  absl::Status WriteReports() const {
    absl::Status status = WriteWholeFile(shop_.directory.ReportPath(rank_, "txt"), RankText(*outcome_.report));
    status.Update(WriteWholeFile(shop_.directory.ReportPath(rank_, "json"), RankJson(*outcome_.report)));
    return status;
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Where one lies, it is that of this trace: a run may take it up before the planner has ended.
  void ForgetRunningPlan() const {
    std::error_code ignored;
    std::filesystem::remove(PlanPath(), ignored);
  }

  absl::StatusOr<TracedRank> Read(const char* why) const {
    return ReadTracedRank(shop_.directory.TracePath(rank_), [this, why](std::uint64_t read, std::uint64_t all) {
      shop_.progress->Doing(rank_, absl::StrFormat("%s, %d %%", why, all == 0 ? 100 : 100 * read / all));
    });
  }

  absl::Status Analyse() {
    const std::string path = shop_.directory.TracePath(rank_);
    absl::StatusOr<TracedRank> traced = Read("reading");
    if (!traced.ok()) return traced.status();
    if (IsOfAnother(traced->head.fingerprint)) {
      return absl::InvalidArgumentError(absl::StrCat(path, " is the trace of another rank: expected ", rank_,
                                                     ", found ", traced->head.fingerprint.rank));
    }
    RankPlannerOptions options = PlannerOptions();
    if (shop_.options.refine) {
      absl::StatusOr<Observed> observed = ReadObserved(shop_.directory.ObservedPath(rank_));
      if (!observed.ok()) return observed.status();
      options.observed = *std::move(observed);
    }
    shop_.progress->Doing(rank_, "analysis");
    planner_.emplace(*std::move(traced), std::move(options));
    const absl::Status status = planner_->Analyse();
    return status.ok() ? status : absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  }

  absl::StatusOr<RankPacking> Solve() {
    const std::unique_ptr<Solver> solver = MakePortfolio();
    return planner_->Solve(*solver);
  }

  void UsePacking(const absl::StatusOr<RankPacking>& packing) {
    End(packing.ok() ? Guarded([&] { return Finish(*packing); }) : packing.status());
  }

  // The plan is written before the report is made: it may be waited for.
  absl::Status Finish(const RankPacking& packing) {
    if (absl::Status status = planner_->MakePlan(packing); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat(shop_.directory.TracePath(rank_), ": ", status.message()));
    }
    const absl::Status written = WritePlan(planner_->plan());
    RankResult result = planner_->Finish(packing);
    if (!equals_.empty() && result.plan_status.ok()) {
      planned_ = std::make_shared<const Planned>(Planned{rank_, *identity_, result, key_});
    }
    return Report(std::move(result), written);
  }

  RankPlannerOptions PlannerOptions() {
    RankPlannerOptions options;
    options.plan = !shop_.options.trace_only;
    options.running = shop_.options.running;
    options.lend_graphs = shop_.options.lend_graphs;
    options.packing.work = shop_.options.packing_work;
    options.packing.solve.threads = shop_.solver_threads;
    options.packing.solve.seed = shop_.options.seed;
    options.packing.solve.stop = shop_.options.stop;
    options.packing.on_progress = [this](Bytes height, Bytes lower_bound) {
      shop_.progress->Doing(rank_, PackingProgressText(height, lower_bound));
    };
    options.slot_judge = &shop_.trial;
    options.planner_version = Version();
    return options;
  }

  absl::Status WritePlan(const std::optional<Plan>& plan) {
    if (!plan.has_value()) return absl::OkStatus();
    const absl::Status status = WritePlanFile(PlanPath(), *plan);
    if (status.ok()) outcome_.plan_path = PlanPath();
    return status;
  }

  // Worth having even where nothing could be planned, or written.
  absl::Status Report(RankResult result, absl::Status status) {
    outcome_.report = std::move(result.report);
    status.Update(result.plan_status);
    status.Update(WriteReports());
    return status;
  }

  [[nodiscard]] bool IsOfAnother(const Fingerprint& fingerprint) const {
    return fingerprint.world_size > 0 && fingerprint.rank != rank_;
  }

  // The equal ranks come next, so that this result need not be kept.
  void LeadEquals(bool planned) {
    const std::shared_ptr<const Planned> result = planned ? std::exchange(planned_, nullptr) : nullptr;
    for (const std::shared_ptr<Job>& job : equals_) {
      if (result != nullptr) {
        shop_.tasks.PushFront([job, result] { job->RunAs(*result); });
      } else {
        shop_.tasks.PushBack([job] { job->Run(); });
      }
    }
    planned_ = nullptr;
    equals_.clear();
  }

  void End(const absl::Status& status) {
    planner_.reset();
    outcome_.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    if (!status.ok()) outcome_.error = std::string(status.message());
    if (status.ok() && outcome_.report->equal_to_rank.has_value()) {
      shop_.progress->FinishedAlike(rank_, absl::StrCat("equal to rank ", *outcome_.report->equal_to_rank));
    } else {
      shop_.progress->Finished(rank_,
                               status.ok() ? Result() : absl::StrCat("error: ", status.message(), StalePlanNote()));
    }
    LeadEquals(status.ok());
  }

  [[nodiscard]] std::string PlanPath() const {
    return shop_.options.running ? shop_.directory.RunningPlanPath(rank_) : shop_.directory.PlanPath(rank_);
  }

  [[nodiscard]] std::string Result() const {
    std::string text;
    for (const DeviceReport& device : outcome_.report->devices) {
      absl::StrAppend(&text, text.empty() ? "" : "; ", "peak ", FormatBytes(device.peak.live_bytes));
      if (device.packing.has_value()) {
        absl::StrAppend(&text, ", arena ", FormatBytes(device.packing->arena_bytes), ", ",
                        DistanceText(device.packing->arena_bytes, device.packing->lower_bound_bytes));
      }
    }
    return absl::StrCat(text, ", ", FormatSeconds(outcome_.seconds));
  }

  [[nodiscard]] std::string StalePlanNote() const {
    std::error_code ignored;
    const bool is_old = !shop_.options.trace_only && outcome_.plan_path.empty();
    const bool exists = is_old && std::filesystem::exists(PlanPath(), ignored);
    return exists ? absl::StrCat(" (the plan of an earlier run stays: ", PlanPath(), ")") : "";
  }

  Shop& shop_;
  const std::uint32_t rank_;
  Clock::time_point start_;
  std::optional<RankPlanner> planner_;
  std::optional<ProblemKey> key_;
  RankOutcome outcome_;

  // Of Compare, and what it led to.
  std::optional<RankIdentity> identity_;
  std::optional<TraceKey> trace_key_;
  std::vector<std::shared_ptr<Job>> equals_;
  std::shared_ptr<const Planned> planned_;
};

// Those that are to be planned: of ranks whose traces are equal the lowest, which has the others.
std::vector<std::shared_ptr<Job>> Different(const std::vector<std::shared_ptr<Job>>& jobs, Shop* shop, int threads) {
  for (const std::shared_ptr<Job>& job : jobs) shop->tasks.PushBack([job] { job->Compare(); });
  shop->tasks.Run(threads);
  std::map<TraceKey, std::shared_ptr<Job>> first;
  std::vector<std::shared_ptr<Job>> different;
  for (const std::shared_ptr<Job>& job : jobs) {
    if (job->trace_key().has_value()) {
      const auto [found, is_first] = first.try_emplace(*job->trace_key(), job);
      if (!is_first) {
        found->second->AddEqual(job);
        continue;
      }
    }
    different.push_back(job);
  }
  return different;
}

// Equal problems are named after the lowest rank that has them, not after the one that solved them first. REQUIRES:
// ranks ascend.
void TellWhoIsAlike(const std::vector<std::shared_ptr<Job>>& jobs) {
  std::map<ProblemKey, std::uint32_t> lowest;
  for (const std::shared_ptr<Job>& job : jobs) {
    RankOutcome& outcome = job->outcome();
    if (!job->key().has_value() || !outcome.report.has_value()) continue;
    const auto [found, is_lowest] = lowest.try_emplace(*job->key(), outcome.rank);
    if (is_lowest) continue;
    if (outcome.report->same_as_rank == found->second) continue;
    outcome.report->same_as_rank = found->second;
    if (const absl::Status status = job->WriteReports(); !status.ok() && outcome.error.empty()) {
      outcome.error = std::string(status.message());
    }
  }
}

}  // namespace

std::vector<RankOutcome> PlanRanks(const RunDirectory& directory, const std::vector<std::uint32_t>& ranks,
                                   const PlanJobsOptions& options, Progress* progress) {
  const int workers = std::clamp(options.threads, 1, static_cast<int>(ranks.size()));
  Shop shop{directory, options, std::max(1, options.threads / workers), SlotTrial(options.headroom), progress, {}, {}};
  std::vector<std::shared_ptr<Job>> jobs;
  for (const std::uint32_t rank : ranks) jobs.push_back(std::make_shared<Job>(shop, rank));
  // What runs saw of their plans is each rank's own.
  const bool compares = jobs.size() > 1 && !options.refine;
  for (const std::shared_ptr<Job>& job : compares ? Different(jobs, &shop, workers) : jobs) {
    shop.tasks.PushBack([job] { job->Run(); });
  }
  shop.tasks.Run(workers);
  TellWhoIsAlike(jobs);
  std::vector<RankOutcome> outcomes;
  for (const std::shared_ptr<Job>& job : jobs) outcomes.push_back(std::move(job->outcome()));
  return outcomes;
}

}  // namespace stalloc::planner
