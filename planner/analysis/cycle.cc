#include "planner/analysis/cycle.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/analysis/alignment.h"

namespace stalloc::planner {
namespace {

// An iteration with fewer requests than this share of the one before was broken off. The first one requests more than
// others.
constexpr double kCompleteShare = 0.9;
constexpr double kCompleteShareOfFirst = 0.5;
// An iteration is typical if it has this much less in common with the model than others have, at most.
constexpr double kLikenessSlack = 0.002;
constexpr double kLikenessShare = 0.25;  // of what those do not have in common
// A longer period must explain half of what a period of one leaves unlike, and at least so much.
constexpr double kPeriodGain = 0.02;
// If only one pair of iterations shows a longer period, this part may differ: of three
// iterations two are always most alike.
constexpr double kLeftByOnePair = 0.125;
constexpr double kLeft = 0.5;
// Iterations that are compared each with each.
constexpr std::size_t kMostCompared = 9;
// An iteration that is so much longer may have a tail of something else.
constexpr double kTailShare = 1.1;
constexpr std::size_t kLeastTail = 8;
// Iterations that have less in common are of different programs.
constexpr double kOtherProgram = 0.5;
// With fewer requests an iteration shows no more than what a captured step leaves.
constexpr std::size_t kLeastRequests = 8;

class CycleFinder {
 public:
  CycleFinder(const DeviceTrace& device, const Segmentation& segmentation, bool trace_complete, std::uint32_t capturing)
      : device_(device), segmentation_(segmentation), trace_complete_(trace_complete), capturing_(capturing) {}

  absl::StatusOr<Cycle> Find() {
    cycle_.traced = static_cast<std::uint32_t>(segmentation_.iterations());
    if (cycle_.traced == 0) {
      return absl::FailedPreconditionError(
          "the trace has no iteration mark, so nothing can be planned: call stalloc.iteration() at the top of the "
          "training "
          "loop, or step a torch optimizer at least twice, and trace again");
    }
    cycle_.complete = cycle_.traced - (LastIsBrokenOff() ? 1 : 0);
    if (cycle_.complete == 0 || Requests(0) + Requests(cycle_.complete - 1) == 0) {
      return absl::FailedPreconditionError(
          "the trace ends inside its first iteration, so nothing can be planned: trace at least 3 iterations");
    }
    cycle_.period = FindPeriod();
    FindTypical();
    cycle_.warmup = FindWarmup();
    if (CapturesAreFollowedByAnotherProgram()) {
      BeginAfterCaptures();
    }
    std::fill_n(cycle_.typical.begin() + cycle_.warmup, cycle_.period, true);
    Warn();
    return cycle_;
  }

 private:
  std::size_t Requests(std::uint32_t iteration) const { return device_.segments[iteration + 1].allocations.size(); }

  std::span<const std::uint32_t> Requested(std::uint32_t iteration) const {
    return device_.segments[iteration + 1].allocations;
  }

  double Like(std::uint32_t left, std::uint32_t right) const { return LikenessOf(Requested(left), Requested(right)); }

  // Share of requests that both have, as sizes with their numbers.
  double LikenessOf(std::span<const std::uint32_t> left, std::span<const std::uint32_t> right) const {
    absl::flat_hash_map<RequestKey, std::int64_t> balance;
    const auto add = [&](std::span<const std::uint32_t> requests, std::int64_t step) {
      for (const std::uint32_t index : requests) {
        balance[MakeKey(device_.allocations[index].bytes, device_.allocations[index].stream)] += step;
      }
    };
    add(left, 1);
    add(right, -1);
    std::int64_t unlike = 0;
    for (const auto& [key, count] : balance) {
      unlike += count < 0 ? -count : count;
    }
    const std::size_t total = left.size() + right.size();
    return total == 0 ? 1.0 : 1.0 - static_cast<double>(unlike) / static_cast<double>(total);
  }

  // Compared with the least of the few before it: one that also evaluates, or one of several that alternate, is no
  // measure.
  bool LastIsBrokenOff() const {
    const std::uint32_t last = cycle_.traced - 1;
    if (last == 0) {
      return Requests(0) == 0;
    }
    std::size_t least = Requests(last - 1);
    for (std::uint32_t back = 2; back <= kMaxPeriod && back < last; ++back) {
      least = std::min(least, Requests(last - back));
    }
    const bool lacks_end = segmentation_.segments[last].ended && !segmentation_.segments[last + 1].ended;
    const bool cut = !trace_complete_ && Requests(last) < least;
    const double share = last == 1 ? kCompleteShareOfFirst : kCompleteShare;
    return lacks_end || cut || static_cast<double>(Requests(last)) < share * static_cast<double>(least);
  }

  // For iterations a period apart. The first iteration takes part only if there are no others.
  std::uint32_t FirstOfPairs(std::uint32_t period) const { return cycle_.complete > period + 1 ? 1 : 0; }
  std::uint32_t Pairs(std::uint32_t period) const { return cycle_.complete - period - FirstOfPairs(period); }
  double MeanLikeness(std::uint32_t period) const {
    double sum = 0;
    for (std::uint32_t i = FirstOfPairs(period); i + period < cycle_.complete; ++i) {
      sum += Like(i, i + period);
    }
    return sum / Pairs(period);
  }

  std::uint32_t FindPeriod() const {
    if (cycle_.complete < 3) {
      return 1;
    }
    const double base = MeanLikeness(1);
    double best = base;
    std::uint32_t best_period = 1;
    for (std::uint32_t period = 2; period <= kMaxPeriod && period + 1 < cycle_.complete; ++period) {
      const double likeness = MeanLikeness(period);
      const double left = Pairs(period) == 1 ? kLeftByOnePair : kLeft;
      const bool explains = 1 - likeness <= left * (1 - base) && likeness - base >= kPeriodGain;
      if (explains && likeness > best + kPeriodGain) {  // the smallest of those that are as good
        best = likeness;
        best_period = period;
      }
    }
    return best_period;
  }

  // Bytes and number of blocks that an iteration leaves live for good.
  struct Residue {
    Bytes bytes = 0;
    std::uint64_t blocks = 0;
    Bytes requested = 0;
  };
  Residue ResidueOf(std::uint32_t iteration) const {
    Residue residue;
    for (const std::uint32_t index : device_.segments[iteration + 1].allocations) {
      const Allocation& allocation = device_.allocations[index];
      residue.requested += allocation.bytes;
      if (!allocation.freed() || FreedAtExit(device_, allocation)) {
        residue.bytes += allocation.bytes;
        ++residue.blocks;
      }
    }
    return residue;
  }

  static bool LeavesMore(const Residue& residue, const Residue& later) {
    return residue.blocks > later.blocks + 2 ||
           residue.bytes > later.bytes + std::max<Bytes>(4096, residue.requested / 1000);
  }

  // For each script of the period the iteration that is most like the others of its kind; the first period takes part
  // only if there is no other.
  struct Model {
    std::uint32_t iteration = 0;
    double likeness = 1;  // of the others to it, in the middle
  };
  Model FindModel(std::uint32_t remainder) const {
    std::vector<std::uint32_t> candidates;
    for (std::uint32_t i = remainder; i < cycle_.complete; i += cycle_.period) {
      candidates.push_back(i);
    }
    if (candidates.size() > 1) {
      candidates.erase(candidates.begin());
    }
    while (candidates.size() > kMostCompared) {  // every second, so that all of the run is seen
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    Model best{candidates[0], candidates.size() == 1 ? 1.0 : -1.0};
    for (std::size_t i = 0; i < candidates.size() && candidates.size() > 1; ++i) {
      std::vector<double> likeness;
      for (std::size_t j = 0; j < candidates.size(); ++j) {
        if (j != i) likeness.push_back(LikeAsFarAsBothGo(candidates[i], candidates[j]));
      }
      const auto middle = likeness.begin() + static_cast<std::ptrdiff_t>((likeness.size() - 1) / 2);
      std::nth_element(likeness.begin(), middle, likeness.end(), std::greater<>());
      if (*middle > best.likeness) {
        best = {candidates[i], *middle};
      }
    }
    return best;
  }

  void FindTypical() {
    cycle_.typical.assign(cycle_.traced, false);
    for (std::uint32_t i = 0; i < cycle_.traced; ++i) {
      cycle_.compared.push_back(static_cast<std::uint32_t>(Requests(i)));
    }
    for (std::uint32_t remainder = 0; remainder < std::min(cycle_.period, cycle_.complete); ++remainder) {
      const Model model = FindModel(remainder);
      const double least = model.likeness - kLikenessSlack - kLikenessShare * (1 - model.likeness);
      const Residue residue = ResidueOf(model.iteration);
      for (std::uint32_t i = remainder; i < cycle_.complete; i += cycle_.period) {
        cycle_.typical[i] =
            i == model.iteration || (LikeAsFarAsBothGo(i, model.iteration) >= least && !LeavesTooMuch(i, residue));
        if (cycle_.typical[i] && HasTail(i, model.iteration)) {
          // A little more than the model has, for where numbers of requests differ.
          cycle_.compared[i] = static_cast<std::uint32_t>(Requests(model.iteration) * 65 / 64);
        }
      }
    }
  }

  // Longer, and like the model up to where the model ends: something else follows there, an evaluation at the end.
  bool HasTail(std::uint32_t iteration, std::uint32_t model) const {
    const std::size_t longer = Requests(iteration);
    const std::size_t shorter = Requests(model);
    return longer >= shorter + kLeastTail && static_cast<double>(longer) > kTailShare * static_cast<double>(shorter) &&
           LikenessOf(Requested(iteration).first(shorter), Requested(model)) > Like(iteration, model);
  }

  double LikeAsFarAsBothGo(std::uint32_t left, std::uint32_t right) const {
    if (!HasTail(left, right) && !HasTail(right, left)) {
      return Like(left, right);
    }
    const std::size_t shorter = std::min(Requests(left), Requests(right));
    return LikenessOf(Requested(left).first(shorter), Requested(right).first(shorter));
  }

  // What the last iteration leaves, the next one might have freed.
  bool LeavesTooMuch(std::uint32_t iteration, const Residue& usual) const {
    return iteration + 1 < cycle_.complete && LeavesMore(ResidueOf(iteration), usual);
  }

  // The first whole period of typical iterations, with a follower for it where the trace is long enough for that.
  std::uint32_t FindWarmup() const {
    const std::uint32_t period = cycle_.period;
    if (cycle_.complete <= period) {
      return 0;
    }
    const std::uint32_t most = cycle_.complete > period + 1 ? cycle_.complete - period - 1 : cycle_.complete - period;
    for (std::uint32_t warmup = 0; warmup < most; ++warmup) {
      const auto first = cycle_.typical.begin() + warmup;
      if (std::all_of(first, first + period, [](bool typical) { return typical; })) {
        return warmup;
      }
    }
    return most;
  }

  [[nodiscard]] bool CapturesAreFollowedByAnotherProgram() const {
    const bool is_about_captures = cycle_.warmup < capturing_ || Requests(cycle_.warmup) < kLeastRequests;
    if (capturing_ == 0 || capturing_ >= cycle_.complete || !is_about_captures) {
      return false;
    }
    const std::uint32_t before = std::min(cycle_.warmup, std::max(capturing_, 2u) - 2);
    for (std::uint32_t i = capturing_; i < cycle_.complete; ++i) {
      if (Like(i, before) >= kOtherProgram) {
        return false;
      }
    }
    return true;
  }

  // With a follower for the template, unless the last iteration is clearly longer than all others.
  void BeginAfterCaptures() {
    cycle_.period = 1;
    cycle_.warmup = capturing_;
    for (std::uint32_t i = capturing_ + 1; i + 1 < cycle_.complete; ++i) {
      if (Requests(i) > Requests(cycle_.warmup)) cycle_.warmup = i;
    }
    const std::uint32_t last = cycle_.complete - 1;
    if (static_cast<double>(Requests(last)) > kTailShare * static_cast<double>(Requests(cycle_.warmup))) {
      cycle_.warmup = last;
    }
    for (std::uint32_t i = 0; i < cycle_.traced; ++i) {
      cycle_.typical[i] = i >= capturing_ && i < cycle_.complete;
      cycle_.compared[i] = i < capturing_ ? 0 : static_cast<std::uint32_t>(Requests(i));
    }
  }

  void Warn() {
    if (cycle_.complete == 1) {
      cycle_.warnings.push_back(
          "only one complete iteration was traced: it serves as the template although the first one nearly always "
          "differs; trace at least 3 iterations");
    } else if (cycle_.Followers(cycle_.warmup + cycle_.period - 1) == 0) {
      cycle_.warnings.push_back(absl::StrCat(
          "no complete iteration follows the template (iteration ", cycle_.warmup, " of ", cycle_.complete,
          "): blocks that outlive it keep their places for ever, and it is unknown which sizes vary; trace one more"));
    }
    if (cycle_.broken_off() && Requests(cycle_.traced - 1) > 0) {
      cycle_.warnings.push_back(absl::StrCat("the last traced iteration was broken off after ",
                                             Requests(cycle_.traced - 1), " requests and is not compared"));
    }
  }

  const DeviceTrace& device_;
  const Segmentation& segmentation_;
  bool trace_complete_;
  std::uint32_t capturing_;
  Cycle cycle_;
};

}  // namespace

bool FreedAtExit(const DeviceTrace& device, const Allocation& allocation) {
  return allocation.freed() && allocation.free_segment + 1 == device.segments.size() &&
         allocation.free_segment != allocation.segment &&
         allocation.free_ordinal == device.segments.back().allocations.size();
}

absl::StatusOr<Cycle> FindCycle(const DeviceTrace& device, const Segmentation& segmentation, bool trace_complete,
                                std::uint32_t capturing) {
  return CycleFinder(device, segmentation, trace_complete, capturing).Find();
}

}  // namespace stalloc::planner
