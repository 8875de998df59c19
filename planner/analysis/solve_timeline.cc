#include "planner/analysis/solve_timeline.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "planner/analysis/held_bytes.h"
#include "planner/analysis/turns.h"
#include "planner/packing/finish/apart.h"
#include "planner/packing/finish/sink.h"

namespace stalloc::planner {
namespace {

using Clock = std::chrono::steady_clock;

// The search ends within a ten-thousandth of the lower bound, or of a small one within a 256th of it and a 64th of what
// is mapped at once: more would not be seen in what a device holds.
Bytes GoodEnough(Bytes bound) { return bound + std::max(bound / 10000, std::min(bound / 256, kMappingUnit / 64)); }
// So small a part of the bound small blocks may cost where nothing varies.
constexpr Bytes kApart = 16384;
// One place in all turns may cost this part of the bound.
constexpr Bytes kTurns = 1000;
// With more blocks, one more turn is more to search than there is work for, and more to plan than it is worth.
constexpr std::size_t kMostGoingRound = 20'000;
// The part of the work that is added for what is tried last.
constexpr Work kLastShare = 5;

// A run that does what the traced one did needs no safety from itself.
bool SomethingVaries(const Timeline& timeline) {
  return std::any_of(timeline.scripts.begin(), timeline.scripts.end(), [](const TimelineScript& script) {
    return std::any_of(script.entries.begin(), script.entries.end(), [](const TimelineEntry& entry) {
      return entry.entry_class == EntryClass::kDynamic || entry.entry_class == EntryClass::kOptional;
    });
  });
}

SolvedPacking Solve(const Timeline& timeline, const PackingOptions& options, Solver& solver) {
  SolvedPacking solved;
  solved.solver = std::string(solver.name());
  solved.lower_bound = LoadBound(timeline.problem);
  SolveOptions solve = options.solve;
  solve.lower_bound = GoodEnough(solved.lower_bound);
  solve.cycle = timeline.cycle();
  if (options.on_progress) {
    solve.on_progress = [&](Bytes height) { options.on_progress(height, solved.lower_bound); };
  }
  solve.work = options.work;
  const Bytes small = SmallBlockBytes(solved.lower_bound);
  const bool may_be_apart = solve.passes.Have(PackingPass::kApart);
  if (may_be_apart && SomethingVaries(timeline)) {
    solved.packing = PackApart(timeline.problem, small, [&](const Problem& large, Work spent) {
      solve.work -= std::min(solve.work, spent);
      solve.lower_bound = GoodEnough(LoadBound(large));
      return solver.Solve(large, solve);
    });
  } else {
    solved.packing = solver.Solve(timeline.problem, solve);
    const Bytes proved = solved.packing.proved_bound;
    const Work work = solved.packing.work;
    const Bytes most = solved.lower_bound + solved.lower_bound / kApart;
    const Bytes apart = may_be_apart ? WorthApart(timeline.problem, small, most) : 0;
    if (apart > 0) solved.packing = LiftApart(timeline.problem, apart, solved.packing);
    solved.packing.proved_bound = proved;
    solved.packing.work = work;
  }
  solved.work = solved.packing.work;
  if (solve.passes.Have(PackingPass::kSink)) SinkResidents(timeline.problem, &solved.packing);
  solved.lower_bound = std::max(solved.lower_bound, solved.packing.proved_bound);
  return solved;
}

// The part of the greatest load, which turns may reach; one place for all may have a higher bound.
bool IsNear(Bytes height, Bytes load) { return height <= load + load / kTurns; }

bool IsEnough(Work work, const Timeline& timeline) {
  return work >= WorkOfFirstPacking(timeline.problem.blocks.size());
}

// For the unrolled timeline's blocks. What need not have several places is packed as one block first: that is less to
// search, and keeps the plan small.
SolvedPacking SolveInTurns(const Timeline& unrolled, PackingOptions options, Solver& solver) {
  if (!options.solve.passes.Have(PackingPass::kJoinLoose)) return Solve(unrolled, options, solver);
  const Work work = options.work;
  options.work = work / 4 * 3;
  Timeline joined = unrolled;
  const Bytes load = LoadBound(unrolled.problem);
  const std::vector<std::uint32_t> numbers = JoinLoose(&joined, load);
  SolvedPacking solved = Solve(joined, options, solver);
  if (!IsNear(solved.packing.height, load) && IsEnough(work / 4, unrolled)) {
    options.work = work / 4;
    SolvedPacking free = Solve(unrolled, options, solver);
    solved.work = free.work += solved.work;
    if (free.packing.height + load / kTurns < solved.packing.height) return free;
  }
  std::vector<Offset> offsets(numbers.size());
  for (std::size_t block = 0; block < offsets.size(); ++block) offsets[block] = solved.packing.offsets[numbers[block]];
  solved.packing.offsets = std::move(offsets);
  solved.lower_bound = load;  // what is proved of the joined problem is not of this one
  return solved;
}

// One timeline's packings: with one place for all turns, and with one for each turn.
class TurnSolver {
 public:
  TurnSolver(const Timeline& timeline, std::uint32_t most, const TurnsBuilder& build, const PackingOptions& options,
             Solver& solver)
      : timeline_(timeline),
        least_(std::max(timeline.copies, 2u)),
        most_(timeline.problem.blocks.size() <= kMostGoingRound ? most : std::min(least_, most)),
        build_(build),
        options_(options),
        solver_(solver),
        load_(LoadBound(timeline.problem)) {}

  SolvedPacking Run() {
    const bool crosses =
        options_.solve.passes.Have(PackingPass::kTurns) && least_ <= most_ && CrossesIterations(timeline_);
    const Work last = options_.work / kLastShare;
    if (crosses && timeline_.copies > 1) {
      one_place_ = BoundOfOnePlace(build_(least_));
      if (!IsNear(one_place_, load_)) {
        TryAllTurns();
        if (!IsSolved() && IsEnough(last, timeline_)) TryOnePlace(last);
        return Best();
      }
    }
    TryOnePlace(options_.work);
    const bool may_gain = crosses && (timeline_.copies > 1 || !SomethingVaries(timeline_));
    if (may_gain && !IsSolved() && IsEnough(last / least_, timeline_)) Try(least_, last);
    return Best();
  }

 private:
  [[nodiscard]] bool IsSolved() const { return best_ && IsNear(best_->packing.height, load_); }

  // Two turns mostly suffice; else places may still go round in the largest number of turns. The largest problem
  // has half of the work.
  void TryAllTurns() {
    if (least_ == most_) return Try(most_, options_.work);
    const Work work = options_.work / (2 * (most_ - least_));
    Try(least_, work);
    if (!IsSolved()) Try(most_, options_.work / 2);
    for (std::uint32_t turns = least_ + 1; turns < most_ && !IsSolved(); ++turns) Try(turns, work);
  }

  void Try(std::uint32_t turns, Work work) {
    PackingOptions options = options_;
    options.work = work;
    SolvedPacking solved = SolveInTurns(build_(turns), options, solver_);
    solved.turns = turns;
    Keep(std::move(solved));
  }

  void TryOnePlace(Work work) {
    PackingOptions options = options_;
    options.work = work;
    SolvedPacking solved = Solve(timeline_, options, solver_);
    one_place_ = std::max(one_place_, solved.packing.height);
    Keep(std::move(solved));
  }

  void Keep(SolvedPacking solved) {
    work_ += solved.work;
    if (!best_ || solved.packing.height + load_ / kTurns < best_->packing.height) best_ = std::move(solved);
  }

  SolvedPacking Best() {
    best_->one_place = one_place_;
    best_->work = work_;
    return *std::move(best_);
  }

  const Timeline& timeline_;
  const std::uint32_t least_;
  const std::uint32_t most_;
  const TurnsBuilder& build_;
  const PackingOptions& options_;
  Solver& solver_;
  const Bytes load_;
  Bytes one_place_ = 0;
  Work work_ = 0;
  std::optional<SolvedPacking> best_;
};

}  // namespace

SolvedPacking SolveTimeline(const Timeline& timeline, std::uint32_t most_copies, const TurnsBuilder& build,
                            const PackingOptions& options, Solver& solver) {
  const Clock::time_point start = Clock::now();
  SolvedPacking solved = TurnSolver(timeline, most_copies, build, options, solver).Run();
  solved.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return solved;
}

}  // namespace stalloc::planner
