#include "planner/analysis/solve_timeline.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "planner/analysis/held_bytes.h"
#include "planner/analysis/turns.h"
#include "planner/packing/apart.h"
#include "planner/packing/sink.h"

namespace stalloc::planner {
namespace {

using Clock = std::chrono::steady_clock;

// The search ends within a ten-thousandth of the lower bound: more would not be seen in what a device holds.
constexpr Bytes kGoodEnough = 10000;
// So small a part of the bound small blocks may cost where nothing varies.
constexpr Bytes kApart = 16384;
// So small a part of the bound one place in all iterations may cost.
constexpr Bytes kTurns = 1000;
// The part of the time that the search in turns may take.
constexpr int kTimeShare = 5;

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
  solve.lower_bound = solved.lower_bound + solved.lower_bound / kGoodEnough;
  solve.cycle = timeline.cycle();
  if (options.on_progress) {
    solve.on_progress = [&](Bytes height) { options.on_progress(height, solved.lower_bound); };
  }
  solve.deadline = Clock::now() + options.time;
  const Bytes small = SmallBlockBytes(solved.lower_bound);
  if (SomethingVaries(timeline)) {
    solved.packing = PackApart(timeline.problem, small, [&](const Problem& large) {
      const Bytes bound = LoadBound(large);
      solve.lower_bound = bound + bound / kGoodEnough;
      return solver.Solve(large, solve);
    });
  } else {
    solved.packing = solver.Solve(timeline.problem, solve);
    const Bytes proved = solved.packing.proved_bound;
    const Bytes apart = WorthApart(timeline.problem, small, solved.lower_bound + solved.lower_bound / kApart);
    if (apart > 0) solved.packing = LiftApart(timeline.problem, apart, solved.packing);
    solved.packing.proved_bound = proved;
  }
  SinkResidents(timeline.problem, &solved.packing);
  solved.lower_bound = std::max(solved.lower_bound, solved.packing.proved_bound);
  return solved;
}

// Of the greatest load, which is what turns may come to; more may be proved of one place for all.
bool IsNear(Bytes height, Bytes load) { return height <= load + load / kTurns; }

// Of the unrolled timeline's blocks. What need not have several places is packed as one block first: that is less to
// search, and keeps the plan small.
SolvedPacking SolveInTurns(const Timeline& unrolled, PackingOptions options, Solver& solver) {
  options.time /= 2;
  Timeline joined = unrolled;
  const Bytes load = LoadBound(unrolled.problem);
  const std::vector<std::uint32_t> numbers = JoinLoose(&joined, load);
  SolvedPacking solved = Solve(joined, options, solver);
  if (!IsNear(solved.packing.height, load)) {
    SolvedPacking free = Solve(unrolled, options, solver);
    if (free.packing.height + load / kTurns < solved.packing.height) return free;
  }
  std::vector<Offset> offsets(numbers.size());
  for (std::size_t block = 0; block < offsets.size(); ++block) offsets[block] = solved.packing.offsets[numbers[block]];
  solved.packing.offsets = std::move(offsets);
  solved.lower_bound = load;  // what is proved of the joined problem is not of this one
  return solved;
}

}  // namespace

SolvedPacking SolveTimeline(const Timeline& timeline, std::uint32_t most_copies,
                            const std::function<Timeline(std::uint32_t turns)>& build, const PackingOptions& options,
                            Solver& solver) {
  const Clock::time_point start = Clock::now();
  const Bytes load = LoadBound(timeline.problem);
  const std::uint32_t turns = std::min(std::max(timeline.copies, 2u), most_copies);
  PackingOptions brief = options;
  brief.time = options.time / kTimeShare;
  const auto solve_in_turns = [&] {
    SolvedPacking solved = SolveInTurns(build(turns), brief, solver);
    solved.turns = turns;
    return solved;
  };
  // Where blocks outlive an iteration turns are likely to pay, and one place for all to be searched in vain.
  std::optional<SolvedPacking> in_turns;
  if (timeline.copies > 1) in_turns = solve_in_turns();
  const bool brief_will_do = in_turns && IsNear(in_turns->packing.height, load);
  SolvedPacking solved = Solve(timeline, brief_will_do ? brief : options, solver);
  const Bytes one_place = solved.packing.height;
  const bool may_gain = turns > 1 && !SomethingVaries(timeline) && CrossesIterations(timeline);
  if (!in_turns && may_gain && !IsNear(one_place, load)) in_turns = solve_in_turns();
  if (in_turns && in_turns->packing.height + load / kTurns < one_place) solved = *std::move(in_turns);
  if (in_turns) solved.one_place_height = one_place;
  solved.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return solved;
}

}  // namespace stalloc::planner
