#include "planner/packing/window_repair.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "planner/packing/compaction.h"
#include "planner/packing/core.h"
#include "planner/packing/exact_window.h"
#include "planner/packing/random.h"
#include "planner/packing/repair_window.h"
#include "planner/packing/search_solver.h"
#include "planner/packing/size_first_fit.h"
#include "planner/packing/window_choice.h"

namespace stalloc::planner {
namespace {

constexpr std::size_t kWindowBatch = 4;  // of any number of threads, so that the outcome does not depend on it
constexpr int kTriesPerWindow = 12;
// Windows of so few blocks are searched exactly.
constexpr std::size_t kMostExact = 32;
constexpr std::uint64_t kExactNodes = 2000;

// Blocks that moved, and how many bytes have no place now that had none, or had one, before.
struct Repaired {
  std::vector<BlockIndex> blocks;
  std::vector<Offset> offsets;  // parallel
  Bytes before = 0;
  Bytes after = 0;
};

// Of one window.
struct Trial {
  std::optional<Repaired> best;
  Work work = 0;
};

// What the taken blocks are sorted by, lowest key first.
enum class OrderKind : std::uint8_t { kSize, kArea, kStart, kLength, kEnd, kOffset, kCount };

double KeyOf(OrderKind kind, const Item& item, Offset offset) {
  const double bytes = static_cast<double>(item.bytes);
  const double length = static_cast<double>(item.span.length() + item.second.length());
  switch (kind) {
    case OrderKind::kSize:
      return -bytes;
    case OrderKind::kArea:
      return -bytes * length;
    case OrderKind::kStart:
      return item.start_step;
    case OrderKind::kLength:
      return -length;
    case OrderKind::kEnd:
      return -static_cast<double>(item.end_step);
    default:
      return offset == kUnplaced ? -1.0 : static_cast<double>(offset);
  }
}

// Some order of the taken blocks: by one key, often with noise, sometimes with the homeless block (index 0) in front.
std::vector<std::uint32_t> DrawOrder(const Instance& instance, std::span<const Offset> offsets,
                                     const std::vector<BlockIndex>& taken, Random& random) {
  const auto kind = static_cast<OrderKind>(random.Below(static_cast<std::size_t>(OrderKind::kCount)));
  const double noise = random.Below(2) == 0 ? 0.0 : 0.3 * random.Unit();
  std::vector<double> keys(taken.size());
  for (std::size_t i = 0; i < taken.size(); ++i) {
    keys[i] = KeyOf(kind, instance[taken[i]], offsets[taken[i]]) * (1.0 + noise * (random.Unit() - 0.5));
  }
  std::vector<std::uint32_t> order(taken.size());
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  const auto first = order.begin() + (random.Below(3) == 0 ? 1 : 0);
  std::stable_sort(first, order.end(), [&](std::uint32_t a, std::uint32_t b) { return keys[a] < keys[b]; });
  return order;
}

class Repair {
 public:
  Repair(const Instance& instance, SearchState& state, std::vector<Offset> offsets, Bytes ceiling, std::uint64_t seed,
         int threads)
      : instance_(instance),
        state_(state),
        ceiling_(ceiling),
        threads_(std::max(threads, 1)),
        random_(seed),
        offsets_(std::move(offsets)) {
    for (BlockIndex block = 0; block < instance.size(); ++block) {
      if (offsets_[block] + instance[block].bytes <= ceiling) {
        by_offset_.push_back(block);
      } else {
        offsets_[block] = kUnplaced;
        homeless_.push_back(block);
        homeless_bytes_ += instance[block].bytes;
      }
    }
    SortByOffset(by_offset_);
  }

  bool Run(const RepairLimits& limits) {
    std::uint32_t idle = 0;
    for (std::uint32_t windows = 0; windows < limits.windows && idle < limits.patience; windows += kWindowBatch) {
      if (homeless_.empty()) break;
      if (state_.IsOver()) return false;
      const Bytes before = homeless_bytes_;
      // Orders are faster; what they have not mended for long is searched exactly.
      RunBatch(idle >= limits.patience / 2);
      idle = homeless_bytes_ < before ? 0 : idle + kWindowBatch;
    }
    return homeless_.empty();
  }

  [[nodiscard]] std::vector<Offset>& offsets() { return offsets_; }

 private:
  void RunBatch(bool exactly) {
    std::array<BlockIndex, kWindowBatch> centres;
    std::array<std::uint64_t, kWindowBatch> seeds;
    for (std::size_t i = 0; i < kWindowBatch; ++i) {
      centres[i] = homeless_[random_.Below(homeless_.size())];
      seeds[i] = random_.Next();
    }
    std::array<Trial, kWindowBatch> trials;
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t i = next++; i < kWindowBatch; i = next++) trials[i] = TryWindow(centres[i], seeds[i], exactly);
    };
    {
      std::vector<std::jthread> pool;
      for (int thread = 1; thread < std::min(threads_, static_cast<int>(kWindowBatch)); ++thread)
        pool.emplace_back(work);
      work();
    }
    applied_.clear();
    for (const Trial& trial : trials) {
      state_.budget().Charge(trial.work);
      if (trial.best && AgreesWithApplied(*trial.best)) Apply(*trial.best);
    }
  }

  // The best of some orders, or an exact fit, if no more bytes are without a place than before.
  [[nodiscard]] Trial TryWindow(BlockIndex homeless, std::uint64_t seed, bool exactly) const {
    Random random(seed);
    Trial trial{.best = std::nullopt, .work = 2 * kWorkOfLook * by_offset_.size()};
    std::vector<BlockIndex> taken = ChooseWindow(instance_, offsets_, by_offset_, homeless, ceiling_, random);
    if (taken.size() < 2) return trial;
    RepairWindow window(instance_, offsets_, by_offset_, std::move(taken), ceiling_);
    const Bytes before = instance_[homeless].bytes;
    Bytes limit = before;
    std::optional<Repaired>& best = trial.best;
    for (int i = 0; i < kTriesPerWindow; ++i) {
      const std::vector<std::uint32_t> order = DrawOrder(instance_, offsets_, window.taken(), random);
      const auto fit = static_cast<RepairWindow::Fit>(random.Below(4));
      const Bytes after = window.Place(order, fit, limit, random);
      if (after > limit) continue;
      best = Repaired{window.taken(), window.offsets(), before, after};
      if (after == 0) break;
      limit = after - 1;
    }
    trial.work += window.work() + kTriesPerWindow * kWorkOfSort * window.taken().size();
    const bool all_placed = best && best->after == 0;
    if (all_placed || !exactly || window.taken().size() > kMostExact) return trial;
    if (auto fit = FitWindow(instance_, offsets_, by_offset_, window.taken(), ceiling_, kExactNodes, trial.work)) {
      best = Repaired{window.taken(), *std::move(fit), before, 0};
    }
    return trial;
  }

  // Windows of one batch were chosen from the same packing: what one has moved may be in the way of the next.
  [[nodiscard]] bool AgreesWithApplied(const Repaired& candidate) const {
    for (std::size_t i = 0; i < candidate.blocks.size(); ++i) {
      const Item& item = instance_[candidate.blocks[i]];
      const Offset begin = candidate.offsets[i];
      for (const BlockIndex other : applied_) {
        if (other == candidate.blocks[i]) return false;
        const Offset at = offsets_[other];
        if (begin == kUnplaced || at == kUnplaced) continue;
        const bool apart = begin >= at + instance_[other].bytes || at >= begin + item.bytes;
        if (!apart && item.Conflicts(instance_[other])) return false;
      }
    }
    return true;
  }

  void Apply(const Repaired& repaired) {
    std::vector<BlockIndex> gone = repaired.blocks;
    std::sort(gone.begin(), gone.end());
    const auto is_gone = [&](BlockIndex block) { return std::binary_search(gone.begin(), gone.end(), block); };
    std::erase_if(by_offset_, is_gone);
    std::erase_if(homeless_, is_gone);
    const auto middle = static_cast<std::ptrdiff_t>(by_offset_.size());
    for (std::size_t i = 0; i < repaired.blocks.size(); ++i) {
      offsets_[repaired.blocks[i]] = repaired.offsets[i];
      (repaired.offsets[i] == kUnplaced ? homeless_ : by_offset_).push_back(repaired.blocks[i]);
    }
    std::vector<BlockIndex> moved(by_offset_.begin() + middle, by_offset_.end());
    SortByOffset(moved);
    std::copy(moved.begin(), moved.end(), by_offset_.begin() + middle);
    std::inplace_merge(by_offset_.begin(), by_offset_.begin() + middle, by_offset_.end(),
                       [this](BlockIndex a, BlockIndex b) { return IsLower(a, b); });
    applied_.insert(applied_.end(), repaired.blocks.begin(), repaired.blocks.end());
    homeless_bytes_ -= repaired.before;
    homeless_bytes_ += repaired.after;
  }

  [[nodiscard]] bool IsLower(BlockIndex a, BlockIndex b) const {
    return offsets_[a] != offsets_[b] ? offsets_[a] < offsets_[b] : a < b;
  }
  void SortByOffset(std::vector<BlockIndex>& blocks) const {
    std::sort(blocks.begin(), blocks.end(), [this](BlockIndex a, BlockIndex b) { return IsLower(a, b); });
  }

  const Instance& instance_;
  SearchState& state_;
  const Bytes ceiling_;
  const int threads_;
  Random random_;
  std::vector<Offset> offsets_;
  std::vector<BlockIndex> by_offset_;  // those that have a place, lowest first
  std::vector<BlockIndex> homeless_;
  Bytes homeless_bytes_ = 0;
  std::vector<BlockIndex> applied_;  // moved in this batch
};

// Blocks that are searched: all of them, or of many those that decide the height.
constexpr std::size_t kMostWhole = 30000;
constexpr double kCoreShare = 0.95;

// Lowers the evaluator's best packing ceiling by ceiling. Of a large instance the core is repaired and completed.
class Descent {
 public:
  Descent(Evaluator& whole, std::uint64_t seed) : whole_(whole), random_(seed) {
    whole.state().budget().Charge(kWorkOfSort * whole.instance().size());
    if (whole.instance().size() > kMostWhole) core_.emplace(whole.instance(), kCoreShare);
    const std::vector<Offset> offsets = whole.state().best().offsets;
    TakeOver(core_ ? core_->Of(offsets) : offsets);
  }

  // The step is a share of what could be gained: greater after a success, smaller after a failure.
  void Search(const RepairLimits& limits) {
    constexpr Bytes kFirstShare = 8;
    constexpr Bytes kLeastShare = 2048;
    constexpr int kMaxVain = 2;
    int vain = 0;
    for (Bytes share = kFirstShare; share <= kLeastShare && vain < kMaxVain && !whole_.state().Done();) {
      const Bytes gain = Gain();
      if (gain == 0) return;
      const Bytes ceiling = top_ - std::max<Bytes>(gain / share, 1);
      std::optional<std::vector<Offset>> lower =
          RepairBelow(instance(), whole_.state(), offsets_, ceiling, limits, random_.Next(), whole_.threads());
      if (!lower) {
        share *= 4;
        continue;
      }
      share = std::max<Bytes>(1, share / 2);
      TakeOver(*std::move(lower));
      vain = Complete() ? 0 : vain + 1;
    }
  }

 private:
  [[nodiscard]] const Instance& instance() const { return core_ ? core_->instance() : whole_.instance(); }

  void TakeOver(std::vector<Offset> offsets) {
    offsets_ = std::move(offsets);
    top_ = 0;
    for (BlockIndex block = 0; block < offsets_.size(); ++block) {
      top_ = std::max(top_, offsets_[block] + instance()[block].bytes);
    }
  }

  // How much lower these blocks could be and still matter.
  [[nodiscard]] Bytes Gain() const {
    const SearchState& state = whole_.state();
    const Bytes above_target = state.height() - std::min(state.height(), state.target());
    return std::min(above_target, top_ - std::min(top_, instance().load_bound()));
  }

  // First fit in order of offsets never ends higher. Returns whether all blocks are lower now.
  bool Complete() {
    const Bytes before = whole_.state().height();
    const StackOrder order = OrderByOffset(instance(), offsets_);
    whole_.FirstFit(core_ ? core_->Completed(order) : order);
    return whole_.state().height() < before;
  }

  Evaluator& whole_;
  Random random_;
  std::optional<Core> core_;
  std::vector<Offset> offsets_;  // of the blocks of instance()
  Bytes top_ = 0;
};

}  // namespace

std::optional<std::vector<Offset>> RepairBelow(const Instance& instance, SearchState& state,
                                               std::vector<Offset> offsets, Bytes ceiling, const RepairLimits& limits,
                                               std::uint64_t seed, int threads) {
  Repair repair(instance, state, std::move(offsets), ceiling, seed, threads);
  if (!repair.Run(limits)) return std::nullopt;
  return std::move(repair.offsets());
}

void SearchWindows(Evaluator& evaluator, const RepairLimits& limits, std::uint64_t seed) {
  Descent(evaluator, seed).Search(limits);
}

std::unique_ptr<Solver> MakeWindowRepair() {
  return MakeSearchSolver("window_repair", [](Evaluator& evaluator, const SolveOptions& options) {
    SolveBySize(evaluator);
    if (!evaluator.state().Done()) SearchWindows(evaluator, RepairLimits{}, options.seed);
  });
}

}  // namespace stalloc::planner
