#include "planner/packing/time_decomposition.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "planner/packing/search_solver.h"
#include "planner/packing/size_classes.h"
#include "planner/packing/size_first_fit.h"

namespace stalloc::planner {
namespace {

constexpr std::size_t kMinPartBlocks = 2'000;
constexpr Bytes kToleratedShare = 64;
constexpr std::size_t kMinCuts = 3;  // fewer gain nothing over an order for everything
constexpr int kBatches = 4;          // of size classes a part

// Bytes alive both right before and at each position.
std::vector<Bytes> CrossingBytes(const Instance& instance) {
  std::vector<Bytes> crossing(instance.positions() + 1);
  for (const Item& item : instance.items()) {
    for (const Span& span : {item.span, item.second}) {
      if (span.empty()) continue;
      crossing[span.begin + 1] += item.bytes;
      crossing[span.end] -= item.bytes;
    }
  }
  for (std::size_t i = 1; i < crossing.size(); ++i) crossing[i] += crossing[i - 1];
  return crossing;
}

std::vector<std::uint32_t> BeginningsAt(const Instance& instance) {
  std::vector<std::uint32_t> beginnings(instance.positions());
  for (const Item& item : instance.items()) ++beginnings[item.span.begin];
  return beginnings;
}

// The part that a position lies in.
std::size_t PartOf(const std::vector<std::uint32_t>& cuts, std::uint32_t position) {
  return static_cast<std::size_t>(std::upper_bound(cuts.begin(), cuts.end(), position) - cuts.begin());
}

struct Parts {
  std::vector<BlockIndex> crossing;
  std::vector<std::vector<BlockIndex>> inside;  // by part
};

Parts Divide(const Instance& instance, const std::vector<std::uint32_t>& cuts) {
  Parts parts;
  parts.inside.resize(cuts.size() + 1);
  for (BlockIndex i = 0; i < instance.size(); ++i) {
    const Item& item = instance[i];
    const std::size_t part = PartOf(cuts, item.span.begin);
    bool crosses = PartOf(cuts, item.span.end - 1) != part;
    if (!item.second.empty()) {
      crosses = crosses || PartOf(cuts, item.second.begin) != part || PartOf(cuts, item.second.end - 1) != part;
    }
    (crosses ? parts.crossing : parts.inside[part]).push_back(i);
  }
  return parts;
}

struct PartOrder {
  std::vector<BlockIndex> order;
  Work work = 0;
};

// One part as an instance of its own.
class PartSearch {
 public:
  PartSearch(const Instance& whole, std::vector<BlockIndex> blocks)
      : blocks_(std::move(blocks)), problem_(Subset(whole, blocks_)), instance_(problem_) {}

  // The best order found, in indices of the whole, and what it took.
  PartOrder Search(const SolveOptions& options) {
    SearchState state(instance_, options);
    Evaluator evaluator(instance_, state, 1);
    SolveBySize(evaluator);
    SizeClassSearch(instance_, options.seed).Run(evaluator, kBatches);
    PartOrder part;
    for (const BlockIndex block : state.best().order.blocks()) part.order.push_back(blocks_[block]);
    part.work = state.budget().spent();
    return part;
  }

 private:
  static Problem Subset(const Instance& whole, const std::vector<BlockIndex>& blocks) {
    Problem problem;
    problem.blocks.reserve(blocks.size());
    for (const BlockIndex block : blocks) problem.blocks.push_back(whole.problem().blocks[block]);
    return problem;
  }

  const std::vector<BlockIndex> blocks_;
  const Problem problem_;
  const Instance instance_;
};

// What a part may take above the blocks that cross it, so that the whole reaches its target.
SolveOptions OptionsOfParts(SolveOptions options, Bytes target, Bytes crossing) {
  options.on_progress = nullptr;
  options.capacity.reset();
  options.threads = 1;
  options.lower_bound = target - std::min(target, crossing);
  return options;
}

}  // namespace

std::vector<std::uint32_t> TimeCuts(const Instance& instance, std::size_t min_blocks) {
  std::vector<std::uint32_t> cuts;
  if (instance.positions() < 2) return cuts;
  const std::vector<Bytes> crossing = CrossingBytes(instance);
  const std::vector<std::uint32_t> beginnings = BeginningsAt(instance);
  const Bytes least = *std::min_element(crossing.begin() + 1, crossing.end() - 1);
  const Bytes tolerated = least + instance.load_bound() / kToleratedShare;
  std::size_t since_cut = beginnings[0];
  std::size_t left = instance.size() - beginnings[0];
  for (std::uint32_t position = 1; position < instance.positions(); ++position) {
    if (crossing[position] <= tolerated && since_cut >= min_blocks && left >= min_blocks) {
      cuts.push_back(position);
      since_cut = 0;
    }
    since_cut += beginnings[position];
    left -= beginnings[position];
  }
  return cuts;
}

void SearchParts(Evaluator& evaluator, const SolveOptions& options) {
  const Instance& instance = evaluator.instance();
  const std::vector<std::uint32_t> cuts = TimeCuts(instance, kMinPartBlocks);
  if (cuts.size() < kMinCuts) return;
  const Parts parts = Divide(instance, cuts);
  Bytes crossing = 0;
  for (const BlockIndex block : parts.crossing) crossing += instance[block].bytes;
  const SolveOptions part_options = OptionsOfParts(options, evaluator.state().target(), crossing);
  // Shared out by their blocks beforehand; a quarter is kept, for the whole is still to be placed.
  const double work_of_block =
      0.75 * static_cast<double>(evaluator.state().WorkLeft()) / static_cast<double>(instance.size());

  std::vector<PartOrder> orders(parts.inside.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < orders.size(); i = next++) {
      if (parts.inside[i].empty()) continue;  // all that began in it may cross
      SolveOptions own = part_options;
      own.work = static_cast<Work>(work_of_block * static_cast<double>(parts.inside[i].size()));
      orders[i] = PartSearch(instance, parts.inside[i]).Search(own);
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int i = 1; i < evaluator.threads(); ++i) helpers.emplace_back(work);
    work();
  }

  std::vector<BlockIndex> order = parts.crossing;
  std::stable_sort(order.begin(), order.end(),
                   [&](BlockIndex a, BlockIndex b) { return instance[a].bytes > instance[b].bytes; });
  for (const PartOrder& part : orders) {
    order.insert(order.end(), part.order.begin(), part.order.end());
    evaluator.state().budget().Charge(part.work);
  }
  evaluator.FirstFit(StackOrder(order));
}

std::unique_ptr<Solver> MakeTimeDecomposition() {
  return MakeSearchSolver("time_decomposition", [](Evaluator& evaluator, const SolveOptions& options) {
    SearchParts(evaluator, options);
    if (evaluator.state().height() == SearchState::kNothingYet) SolveBySize(evaluator);
  });
}

}  // namespace stalloc::planner
