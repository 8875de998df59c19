#include "planner/packing/finish/tidy.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/packing/finish/replacer.h"
#include "planner/packing/problem/instance.h"
#include "planner/packing/search/near_peak.h"

namespace stalloc::planner {
namespace {

constexpr std::uint32_t kPredecessors = 8;  // of one lane whose places a block wishes for
constexpr double kPeakShare = 0.9;          // of the load bound: what is near the peak

Bytes Time(const Item& item) { return Bytes{item.span.length()} + item.second.length(); }

// One stream's own blocks, which hand bytes to each other without a wait, or those of them that others use, too.
using Lane = std::pair<std::uint32_t, bool>;

Lane LaneOf(const Block& block) { return {block.stream, block.recorded}; }

class Tidier {
 public:
  Tidier(const Problem& problem, Packing packing, const TidyOptions& options)
      : problem_(problem),
        options_(options),
        instance_(problem),
        meter_(problem, options.cycle),
        may_need_waits_(MayNeedWaits(problem)),
        replacer_(instance_, [this] { return IsStopped(); }),
        best_(std::move(packing)) {}

  Packing Run() {
    if (OutOfWork()) return std::move(best_);
    tidiness_ = Judge(best_);
    loose_ = Loose();
    if (may_need_waits_ && options_.passes.Have(PackingPass::kTidyLanes)) SeparateLanes();
    if (options_.passes.Have(PackingPass::kTidyLoose)) TryLoose();
    return std::move(best_);
  }

 private:
  using Order = std::vector<BlockIndex>;

  void TryLoose() {
    const auto small_last = [this](BlockIndex block) { return ~Size(block); };
    Try(Sorted(loose_, [&](BlockIndex block) { return std::tuple(~Time(instance_[block]), small_last(block)); }));
    Try(Sorted(loose_, [&](BlockIndex block) { return std::tuple(Step(block), small_last(block)); }));
  }

  [[nodiscard]] bool IsStopped() const {
    return options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed);
  }
  // Judging the first packing took about as long as one pass.
  [[nodiscard]] bool OutOfWork() const {
    return replacer_.placements() + 2 * instance_.size() > options_.placements || IsStopped();
  }

  [[nodiscard]] Bytes Size(BlockIndex block) const { return instance_[block].bytes; }
  [[nodiscard]] std::uint32_t Step(BlockIndex block) const { return instance_[block].start_step; }

  [[nodiscard]] Tidiness Judge(const Packing& packing) const {
    Tidiness tidiness;
    if (may_need_waits_) tidiness.hand_overs = FindHandOvers(problem_, packing.offsets, options_.cycle).size();
    tidiness.scatter = meter_.Measure(packing.offsets, packing.height);
    return tidiness;
  }

  template <typename Key>
  [[nodiscard]] Order Sorted(Order order, const Key& key) const {
    std::sort(order.begin(), order.end(), [&](BlockIndex a, BlockIndex b) {
      const auto left = key(a);
      const auto right = key(b);
      return left != right ? left < right : a < b;
    });
    return order;
  }

  template <typename Predicate>
  [[nodiscard]] Order Where(const Predicate& predicate) const {
    Order order;
    for (BlockIndex block = 0; block < instance_.size(); ++block) {
      if (predicate(block)) order.push_back(block);
    }
    return order;
  }

  // Blocks that are never alive near the peak.
  [[nodiscard]] Order Loose() {
    is_near_peak_.resize(instance_.size());
    for (const BlockIndex block : BlocksNearPeak(instance_, kPeakShare)) is_near_peak_[block] = true;
    return Where([&](BlockIndex block) { return !is_near_peak_[block]; });
  }

  // Places `order` anew, and keeps the outcome if it is better. Returns whether it was.
  bool Try(const Order& order, const std::function<Offset(BlockIndex)>& home = nullptr,
           const Replacer::Wishes& wishes = nullptr) {
    if (OutOfWork() || order.empty()) return false;
    std::optional<std::vector<Offset>> offsets = replacer_.Run(best_.offsets, best_.height, order, home, wishes);
    if (!offsets) return false;
    Packing candidate{*std::move(offsets), best_.height, best_.proved_bound, best_.work};
    const Tidiness tidiness = Judge(candidate);
    if (!tidiness.BetterThan(tidiness_)) return false;
    best_ = std::move(candidate);
    tidiness_ = tidiness;
    return true;
  }

  void SeparateLanes() {
    FindRegions();
    RankByTime();
    const auto by_time = [this](BlockIndex block) { return Step(block); };
    const auto home = [this](BlockIndex block) { return regions_.at(Of(block)); };
    const Replacer::Wishes follow = [this](BlockIndex block, const std::vector<Offset>& offsets,
                                           std::vector<Offset>* wishes) { WishForOwn(block, offsets, wishes); };
    // Minor blocks first, so that the loose ones of the main lane do not break their regions.
    Try(Sorted(loose_,
               [this](BlockIndex block) {
                 const bool is_minor = IsMinor(block);
                 return std::tuple(!is_minor, is_minor ? 0 : best_.offsets[block], Step(block));
               }),
        home, follow);
    const Order minor = Sorted(Where([this](BlockIndex block) { return IsMinor(block); }), by_time);
    Try(minor, home, follow);
    while (tidiness_.hand_overs > 0 && Try(Sorted(TakingPart(), by_time), home, follow)) {
    }
  }

  [[nodiscard]] Lane Of(BlockIndex block) const { return LaneOf(problem_.blocks[block]); }
  [[nodiscard]] bool IsMinor(BlockIndex block) const { return Of(block) != main_lane_; }

  // Loose blocks at either end of a hand-over.
  [[nodiscard]] Order TakingPart() const {
    std::vector<bool> takes_part(instance_.size());
    for (const HandOver& hand_over : FindHandOvers(problem_, best_.offsets, options_.cycle)) {
      takes_part[hand_over.from] = takes_part[hand_over.to] = true;
    }
    return Where([&](BlockIndex block) { return takes_part[block] && !is_near_peak_[block]; });
  }

  void RankByTime() {
    ranks_.resize(instance_.size());
    const Order all = Where([](BlockIndex) { return true; });
    for (const BlockIndex block : Sorted(all, [this](BlockIndex b) { return Step(b); })) {
      Order& blocks = by_lane_[Of(block)];
      ranks_[block] = static_cast<std::uint32_t>(blocks.size());
      blocks.push_back(block);
    }
  }

  // The places of the blocks of the same lane that came just before and are gone.
  void WishForOwn(BlockIndex block, const std::vector<Offset>& offsets, std::vector<Offset>* wishes) const {
    const Order& own = by_lane_.at(Of(block));
    const std::uint32_t rank = ranks_[block];
    for (std::uint32_t back = 1; back <= std::min(rank, kPredecessors); ++back) {
      const BlockIndex before = own[rank - back];
      const bool gone = instance_[before].end_step <= Step(block);
      if (gone && Size(before) >= Size(block) && offsets[before] % instance_[block].alignment == 0) {
        wishes->push_back(offsets[before]);
      }
    }
  }

  // Minor lanes get regions at the top, one below the other, each as high as the lane's own load; the main lane has the
  // rest.
  void FindRegions() {
    const std::map<Lane, Bytes> peaks = LoadBoundBy(problem_, LaneOf);
    const auto main =
        std::max_element(peaks.begin(), peaks.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    main_lane_ = main->first;
    Offset top = best_.height;
    for (const auto& [lane, peak] : peaks) {
      if (lane == main_lane_) continue;
      top -= std::min(top, peak);
      regions_[lane] = top;
    }
    regions_[main_lane_] = 0;
  }

  const Problem& problem_;
  const TidyOptions& options_;
  const Instance instance_;
  const ScatterMeter meter_;
  const bool may_need_waits_;
  Replacer replacer_;
  Packing best_;
  Tidiness tidiness_;  // of best_
  Order loose_;
  std::vector<bool> is_near_peak_;
  Lane main_lane_;
  std::map<Lane, Offset> regions_;    // where each lane's blocks look first
  std::map<Lane, Order> by_lane_;     // blocks in order of time
  std::vector<std::uint32_t> ranks_;  // of each block in by_lane_
};

}  // namespace

Packing Tidy(const Problem& problem, Packing packing, const TidyOptions& options) {
  if (problem.blocks.empty() || 2 * problem.blocks.size() > options.placements) return packing;
  return Tidier(problem, std::move(packing), options).Run();
}

}  // namespace stalloc::planner
