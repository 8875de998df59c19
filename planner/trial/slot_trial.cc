#include "planner/trial/slot_trial.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/analysis/held_bytes.h"
#include "planner/analysis/plan_builder.h"
#include "planner/analysis/problem_key.h"
#include "planner/analysis/refine.h"
#include "planner/analysis/sweep.h"
#include "planner/analysis/turns.h"
#include "planner/trial/trial_run.h"
#include "planner/trial/without_lent.h"
#include "proto/model/plan_shape.h"

namespace stalloc::planner {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostHeldOut = 2;
// For one trial: which candidate is better shows long before the last ten-thousandth of its height is found.
constexpr Work kMostPackingWork = kWorkPerSecond;
// At most this part of the work is spent on trials.
constexpr Work kTrialShare = 2;
// Of that, what serving more iterations may take.
constexpr Work kServingShare = 2;

// What one trial knows, and what it serves.
struct Fold {
  SteadyModel model;
  std::vector<bool> served;  // by segment
};

// What comes before the cycle, and of the iterations those that `is_served` is true for.
template <typename IsServed>
std::vector<bool> ServedSegments(const DeviceTrace& device, const Cycle& cycle, IsServed is_served) {
  std::vector<bool> served(device.segments.size(), false);
  for (std::uint32_t segment = 0; segment <= cycle.complete; ++segment) {
    served[segment] = segment <= cycle.warmup || is_served(segment - 1);
  }
  return served;
}

std::vector<bool> AllTypical(const DeviceTrace& device, const Cycle& cycle, std::uint32_t but_first = 0) {
  return ServedSegments(device, cycle, [&](std::uint32_t i) {
    return i >= cycle.warmup + but_first && static_cast<bool>(cycle.typical[i]);
  });
}

std::vector<bool> UpTo(const DeviceTrace& device, const Cycle& cycle, std::uint32_t held_out) {
  return ServedSegments(device, cycle, [&](std::uint32_t i) { return i == held_out || i + 1 == held_out; });
}

absl::StatusOr<Fold> HoldOut(const DeviceTrace& device, const SteadyModel& model, std::uint32_t iteration) {
  Fold fold{WithoutIteration(device, model, iteration), UpTo(device, model.cycle, iteration)};
  if (model.observed != nullptr) {
    Widened ignored;
    if (absl::Status status = Widen(device, *model.observed, &fold.model, &ignored); !status.ok()) return status;
  }
  return fold;
}

// What serving takes but for packings, roughly, in nanoseconds of a core of 2025: the engine's tables of a plan, in
// which each entry meets all that is live with it, and then each request.
class Costs {
 public:
  explicit Costs(const DeviceTrace& device) : device_(device) {
    std::size_t live = 0;
    Sweep sweep(device);
    for (SweepStep step; sweep.Next(&step);) {
      live = step.is_free ? live - 1 : live + 1;
      most_live_ = std::max(most_live_, live);
    }
  }

  // By a plan of this cycle; `served`: by segment.
  [[nodiscard]] Work OfServing(const Cycle& cycle, const std::vector<bool>& served) const {
    std::size_t requests = 0;
    for (std::uint32_t i = 0; i < served.size(); ++i) requests += served[i] ? Requests(i, i + 1) : 0;
    return Entries(cycle) * (kOfEntry + kOfLive * most_live_) + requests * kOfRequest;
  }
  // With no more than a first packing of the plan.
  [[nodiscard]] Work OfTry(const Cycle& cycle, const std::vector<bool>& served) const {
    return OfServing(cycle, served) + WorkOfFirstPacking(Entries(cycle));
  }

 private:
  static constexpr Work kOfEntry = 1'000;
  static constexpr Work kOfLive = 1;
  static constexpr Work kOfRequest = 2'000;

  [[nodiscard]] std::size_t Requests(std::uint32_t first, std::uint32_t last) const {
    std::size_t requests = 0;
    for (std::uint32_t i = first; i < last; ++i) requests += device_.segments[i].allocations.size();
    return requests;
  }
  // For a plan of this cycle, its prologue included.
  [[nodiscard]] std::size_t Entries(const Cycle& cycle) const { return Requests(0, cycle.warmup + 1 + cycle.period); }

  const DeviceTrace& device_;
  std::size_t most_live_ = 0;
};

// What is the same for all candidates.
struct Bench {
  const TracedRank& traced;
  const DeviceTrace& device;
  const std::vector<Fold>& folds;
  const Costs& costs;
  const PackingOptions& packing;
  Solver& solver;
};

absl::StatusOr<TrialOutcome> ServeSegments(const TracedRank& traced, const DeviceTrace& device, DevicePlan device_plan,
                                           const std::vector<bool>& served, const std::vector<bool>& lent = {}) {
  Plan plan;
  plan.devices.push_back(std::move(device_plan));
  if (const Status shape = CheckPlanShape(plan); !shape.ok()) {
    return absl::InternalError(absl::StrCat("a plan on trial is malformed: ", shape.error()));
  }
  const TrialRun run = ServeTraced(traced, device, plan.devices.front(), served, lent);
  return TrialOutcome{.choice = {},
                      .served = true,
                      .plan_bytes = plan.devices.front().arena_bytes,
                      .arena_bytes = run.arena_bytes,
                      .upstream_bytes = HeldByUpstream(run.upstream_peak_bytes),
                      .peak_live_bytes = run.peak_live_bytes,
                      .requests = run.requests,
                      .slot_hits = run.slot_hits,
                      .dynamic_hits = run.dynamic_hits,
                      .times_moved = run.times_moved};
}

absl::StatusOr<TrialOutcome> ServeFold(const Bench& bench, const Fold& fold, const SlotChoice& choice,
                                       Timeline timeline, Work* spent) {
  const auto build = [&](std::uint32_t turns) { return BuildTimeline(bench.device, fold.model, choice, turns); };
  SolvedPacking solved = SolveTimeline(timeline, MostCopies(fold.model), build, bench.packing, bench.solver);
  *spent += solved.work + bench.costs.OfServing(fold.model.cycle, fold.served);
  if (solved.turns > 1) {
    timeline = build(solved.turns);
    JoinTurns(&timeline, &solved.packing);
  }
  return ServeSegments(bench.traced, bench.device, BuildDevicePlan(bench.device, timeline, solved.packing),
                       fold.served);
}

// Gives up as soon as the candidate is known to hold more than `least_held`.
absl::StatusOr<TrialOutcome> Try(const Bench& bench, const SlotChoice& choice, Bytes least_held, Work* spent) {
  const Clock::time_point start = Clock::now();
  std::optional<TrialOutcome> worst;
  for (const Fold& fold : bench.folds) {
    Timeline timeline = BuildTimeline(bench.device, fold.model, choice);
    const Bytes bound = LoadBound(timeline.problem);
    if (RoundUp(bound, kMappingUnit) > least_held) {
      worst = TrialOutcome{.choice = choice, .plan_bytes = bound, .arena_bytes = RoundUp(bound, kMappingUnit)};
      break;
    }
    absl::StatusOr<TrialOutcome> outcome = ServeFold(bench, fold, choice, std::move(timeline), spent);
    if (!outcome.ok()) return outcome.status();
    outcome->choice = choice;
    if (!worst.has_value() || outcome->held_bytes() > worst->held_bytes()) worst = *outcome;
  }
  worst->seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return *worst;
}

// Some request of the cycle has a slot under one choice and not under another.
bool VariesInLarge(const SteadyModel& model) {
  return std::ranges::any_of(model.scripts, [&](const std::vector<CycleEntry>& script) {
    return std::ranges::any_of(script, [&](const CycleEntry& entry) {
      const bool varies = entry.unplanned == Unplanned::kDynamic || entry.unplanned == Unplanned::kOptional;
      return varies && entry.max_bytes >= model.small_bytes;
    });
  });
}

// More than this share of what is live above it: iterations come in orders that no plan of one of them fits.
constexpr Bytes kFarAbove = 64;
bool IsFarAboveLive(const TrialOutcome& outcome) {
  return outcome.held_bytes() > outcome.peak_live_bytes + outcome.peak_live_bytes / kFarAbove;
}

// `left`, with slots for more of what varies, is taken instead of `right`. One or two iterations on trial are not much
// evidence, and what such slots hold no other request has while they wait: they must be better by this share.
constexpr Bytes kClearlyLess = 128;
bool IsBetter(const TrialOutcome& left, const TrialOutcome& right) {
  if (left.held_bytes() != right.held_bytes()) {
    return left.held_bytes() + left.held_bytes() / kClearlyLess < right.held_bytes();
  }
  if (left.times_moved != right.times_moved) return left.times_moved < right.times_moved;  // they cost time
  return left.slot_hits > right.slot_hits;
}

// The trial of one device.
class Trial {
 public:
  Trial(const TracedRank& traced, const DeviceTrace& device, const SteadyModel& model, const PackingOptions& packing,
        const std::vector<SlotChoice>& choices)
      : traced_(traced),
        device_(device),
        model_(model),
        packing_(packing),
        choices_(choices),
        costs_(device),
        share_(choices.size() > 1 ? packing.work / kTrialShare : kUnlimitedWork) {}

  absl::StatusOr<TrialReport> Run() {
    if (IsDecided()) return TrialReport{};
    if (absl::Status status = MakeFolds(); !status.ok()) return status;
    const auto tries = static_cast<std::size_t>(std::min<Work>(share_ / once_, choices_.size()));
    if (tries < std::min(choices_.size(), kFewestTries)) {
      report_.too_large = true;
      return std::move(report_);
    }
    const Work search = std::min(packing_.work, share_ - tries * once_);
    PackingOptions options = packing_;
    options.work = std::min(search / (folds_.size() * tries), kMostPackingWork);
    options.on_progress = nullptr;
    const std::unique_ptr<Solver> solver = MakePortfolio();
    const Bench bench{traced_, device_, folds_, costs_, options, *solver};
    absl::Status status = tries == choices_.size() ? TryAll(bench) : TryWhatPays(bench);
    return status.ok() ? absl::StatusOr<TrialReport>(std::move(report_)) : status;
  }

 private:
  static constexpr std::size_t kFewestTries = 2;  // of one candidate alone nothing is learnt

  // All that varies is small, or nearly so: each choice comes to the same plan.
  [[nodiscard]] bool IsDecided() const {
    if (choices_.size() == 1 || VariesInLarge(model_)) return false;
    const auto key_of = [&](const SlotChoice& choice) {
      return KeyOfProblem(BuildTimeline(device_, model_, choice).problem, {});
    };
    const ProblemKey first = key_of(choices_.front());
    return std::all_of(choices_.begin() + 1, choices_.end(),
                       [&](const SlotChoice& choice) { return key_of(choice) == first; });
  }

  // Chooses what is held out: as many iterations as there is work for.
  absl::Status MakeFolds() {
    report_.held_out = IterationsToHoldOut(model_.cycle);
    for (std::size_t i = 0; i < report_.held_out.size(); ++i) {
      const Work more = costs_.OfTry(model_.cycle, UpTo(device_, model_.cycle, report_.held_out[i]));
      if (i > 0 && choices_.size() * (once_ + more) > share_) report_.held_out.resize(i);
      if (i < report_.held_out.size()) once_ += more;
    }
    if (once_ > share_) return absl::OkStatus();
    for (const std::uint32_t iteration : report_.held_out) {
      absl::StatusOr<Fold> fold = HoldOut(device_, model_, iteration);
      if (!fold.ok()) return fold.status();
      folds_.push_back(*std::move(fold));
    }
    if (std::ranges::none_of(folds_, [](const Fold& fold) { return HasVarying(fold.model); })) {
      report_.held_out.clear();
      folds_.assign(1, {model_, AllTypical(device_, model_.cycle)});
      once_ = costs_.OfTry(model_.cycle, folds_.front().served);
      return absl::OkStatus();
    }
    ServeMore();
    return absl::OkStatus();
  }

  // What varies differs among the iterations that a fold knows, too: where there is work for it, it serves them all but
  // the template.
  void ServeMore() {
    const std::vector<bool> all = AllTypical(device_, model_.cycle, model_.cycle.period);
    Work more = 0;
    for (const Fold& fold : folds_) more += costs_.OfServing(fold.model.cycle, all);
    const Work tries = choices_.size();
    if (tries * more > share_ / kServingShare || tries * (once_ + more) > share_) return;
    once_ += more;
    for (Fold& fold : folds_) fold.served = all;
  }

  absl::Status TryAll(const Bench& bench) {
    for (const SlotChoice& choice : choices_) {
      if (absl::Status status = TryOne(bench, choice); !status.ok()) return status;
    }
    const bool goes_on = choices_.size() > 1 && HasWork() && IsFarAboveLive(report_.candidates[report_.taken]);
    return goes_on ? TryOne(bench, {SlotPolicy::kWhatStays}) : absl::OkStatus();
  }

  // Without work for all: first without slots for what varies, then whatever may be better than that.
  absl::Status TryWhatPays(const Bench& bench) {
    if (absl::Status status = TryOne(bench, choices_.front()); !status.ok()) return status;
    std::vector<SlotChoice> others(choices_.rbegin(), choices_.rend() - 1);
    if (IsFarAboveLive(report_.candidates.front())) others.insert(others.begin(), {SlotPolicy::kWhatStays});
    for (const SlotChoice& choice : others) {
      if (!HasWork()) break;
      if (absl::Status status = TryOne(bench, choice); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  [[nodiscard]] bool HasWork() const { return report_.work + once_ <= share_; }

  absl::Status TryOne(const Bench& bench, const SlotChoice& choice) {
    const bool is_first = report_.candidates.empty();
    const Bytes least = is_first ? std::numeric_limits<Bytes>::max() : report_.candidates[report_.taken].held_bytes();
    absl::StatusOr<TrialOutcome> outcome = Try(bench, choice, least, &report_.work);
    if (!outcome.ok()) return outcome.status();
    report_.candidates.push_back(*outcome);
    const std::size_t last = report_.candidates.size() - 1;
    if (IsBetter(report_.candidates[last], report_.candidates[report_.taken])) report_.taken = last;
    return absl::OkStatus();
  }

  const TracedRank& traced_;
  const DeviceTrace& device_;
  const SteadyModel& model_;
  const PackingOptions& packing_;
  const std::vector<SlotChoice>& choices_;
  const Costs costs_;
  const Work share_;  // of the work that trials may take
  Work once_ = 0;     // of one candidate, but for the search for better packings
  std::vector<Fold> folds_;
  TrialReport report_;
};

}  // namespace

std::vector<std::uint32_t> IterationsToHoldOut(const Cycle& cycle) {
  std::vector<std::uint32_t> compared;  // the template stays in any case
  for (std::uint32_t i = cycle.complete; i-- > cycle.warmup + cycle.period;) {
    if (cycle.typical[i]) compared.push_back(i);
  }
  // Each script of the period needs another iteration to be compared with; warm-up will do (CompareIterations).
  const std::size_t kept = std::min<std::size_t>(cycle.period, compared.size());
  const std::size_t spare = compared.size() - kept;
  compared.resize(spare == 0 && cycle.warmup > 0 ? std::min<std::size_t>(kept, 1) : std::min(spare, kMostHeldOut));
  return compared;
}

SlotTrial::SlotTrial(std::optional<double> headroom) {
  if (headroom.has_value()) {
    choices_ = {{SlotPolicy::kLargest, *headroom}};
  } else {
    choices_ = {{SlotPolicy::kStaticOnly}, {SlotPolicy::kTemplate}, {SlotPolicy::kLargest}};
  }
}

absl::StatusOr<TrialReport> SlotTrial::Judge(const TracedRank& traced, const DeviceTrace& device,
                                             const SteadyModel& model, const PackingOptions& packing) const {
  return Trial(traced, device, model, packing, choices_).Run();
}

absl::StatusOr<TrialOutcome> SlotTrial::Serve(const TracedRank& traced, const DeviceTrace& device,
                                              const DevicePlan& plan, const std::vector<bool>& lent) const {
  const std::vector<bool> all(device.segments.size(), true);
  return ServeSegments(traced, device, plan.lent_slots.empty() ? plan : WithoutLent(plan), all, lent);
}

}  // namespace stalloc::planner
