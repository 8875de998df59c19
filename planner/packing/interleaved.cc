#include "planner/packing/interleaved.h"

#include <optional>
#include <utility>
#include <vector>

#include "planner/packing/compaction.h"
#include "planner/packing/core.h"
#include "planner/packing/fit_tree.h"
#include "planner/packing/pass_rounds.h"
#include "planner/packing/ring_blocks.h"
#include "planner/packing/room_trails.h"
#include "planner/packing/search_solver.h"
#include "planner/packing/size_first_fit.h"
#include "planner/packing/trail_layout.h"

namespace stalloc::planner {
namespace {

// Trails that are laid out before the search gives up: the tensors of some pass may not fill its segments.
constexpr std::uint64_t kAttempts = 4;
// Rounds served in search of one: a second's work.
constexpr std::uint64_t kEffort = 2'000'000;

std::optional<std::vector<PlacedBlock>> LayOutIteration(const Instance& instance, const PassRounds& rounds,
                                                        std::uint64_t seed) {
  const TrailProblem problem = TrailProblemOf(instance, rounds);
  for (std::uint64_t attempt = 0; attempt < kAttempts; ++attempt) {
    std::optional<Trails> trails = FindTrails(problem, kEffort, seed + attempt);
    if (!trails) return std::nullopt;
    std::optional<std::vector<PlacedBlock>> placed = LayOutPasses(instance, rounds, *std::move(trails));
    if (placed) return placed;
  }
  return std::nullopt;
}

// The rest by size, first fit.
std::vector<Offset> Complete(const Instance& instance, const std::vector<PlacedBlock>& placed) {
  FitTree tree(instance.positions());
  std::vector<Offset> offsets(instance.size());
  std::vector<bool> is_placed(instance.size());
  const auto place = [&](BlockIndex block, Offset offset) {
    const Item& item = instance[block];
    tree.Insert(item.span, offset, offset + item.bytes);
    offsets[block] = offset;
    is_placed[block] = true;
  };
  for (const auto& [block, offset] : placed) place(block, offset);
  // What lives for long first: it must not lie where temporaries need to.
  for (const bool longs : {true, false}) {
    for (const BlockIndex block : SizeOrder(instance)) {
      const Item& item = instance[block];
      if (is_placed[block] || (item.end_step - item.start_step >= kLeastRingSteps) != longs) continue;
      place(block, tree.LowestFit(item, 0));
    }
  }
  return offsets;
}

}  // namespace

void SearchInterleaved(Evaluator& evaluator, std::uint64_t seed) {
  const Core core(evaluator.instance(), 0.5, LightBytes(evaluator.instance()));
  const Instance& instance = core.instance();
  const std::optional<std::vector<PassRounds>> iterations = FindPassRounds(instance, kLeastRingSteps);
  if (!iterations) return;
  std::vector<PlacedBlock> placed;
  for (const PassRounds& rounds : *iterations) {
    if (!rounds.interleaved() || evaluator.state().Done()) return;
    const std::optional<std::vector<PlacedBlock>> of_iteration = LayOutIteration(instance, rounds, seed);
    if (!of_iteration) return;
    placed.insert(placed.end(), of_iteration->begin(), of_iteration->end());
  }
  evaluator.FirstFit(core.Completed(OrderByOffset(instance, Complete(instance, placed))));
}

std::unique_ptr<Solver> MakeInterleaved() {
  return MakeSearchSolver("interleaved", [](Evaluator& evaluator, const SolveOptions& options) {
    SolveBySize(evaluator);
    if (!evaluator.state().Done()) SearchInterleaved(evaluator, options.seed);
  });
}

}  // namespace stalloc::planner
