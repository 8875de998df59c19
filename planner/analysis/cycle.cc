#include "planner/analysis/cycle.h"

#include <algorithm>
#include <cstddef>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/analysis/alignment.h"

namespace stalloc::planner {
namespace {

// An iteration with fewer requests than this share of the one before was broken off. The first one asks for more than
// others.
constexpr double kCompleteShare = 0.9;
constexpr double kCompleteShareOfFirst = 0.5;
// Iterations are alike if they have this much less in common, at most, than the last ones have.
constexpr double kLikenessSlack = 0.002;
constexpr double kLikenessShare = 0.25;  // of what the last ones do not have in common
// A longer period must explain half of what a period of one leaves unlike, and at least so much.
constexpr double kPeriodGain = 0.02;

class CycleFinder {
 public:
  CycleFinder(const DeviceTrace& device, const Segmentation& segmentation, bool trace_complete)
      : device_(device), segmentation_(segmentation), trace_complete_(trace_complete) {}

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
    cycle_.warmup = FindWarmup();
    Warn();
    return cycle_;
  }

 private:
  std::size_t Requests(std::uint32_t iteration) const { return device_.segments[iteration + 1].allocations.size(); }

  double Like(std::uint32_t left, std::uint32_t right) const { return Likeness(device_, left + 1, right + 1); }

  // The last iteration is compared with the one before, or with earlier ones that it may be a repetition of.
  bool LastIsBrokenOff() const {
    const std::uint32_t last = cycle_.traced - 1;
    if (last == 0) {
      return Requests(0) == 0;
    }
    std::size_t least = Requests(last - 1);
    for (std::uint32_t period = 2; period <= std::min(kMaxPeriod, last); ++period) {
      if (Like(last - period, last) > Like(last - 1, last) + kPeriodGain) {
        least = std::min(least, Requests(last - period));
      }
    }
    const bool lacks_end = segmentation_.segments[last].ended && !segmentation_.segments[last + 1].ended;
    const bool cut = !trace_complete_ && Requests(last) < least;
    const double share = last == 1 ? kCompleteShareOfFirst : kCompleteShare;
    return lacks_end || cut || static_cast<double>(Requests(last)) < share * static_cast<double>(least);
  }

  // The first iteration takes part only if there are no others.
  double MeanLikeness(std::uint32_t period) const {
    const std::uint32_t first = cycle_.complete > period + 1 ? 1 : 0;
    double sum = 0;
    for (std::uint32_t i = first; i + period < cycle_.complete; ++i) {
      sum += Like(i, i + period);
    }
    return sum / (cycle_.complete - period - first);
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
      const bool explains = 1 - likeness <= (1 - base) / 2 && likeness - base >= kPeriodGain;
      if (explains && likeness > best + kPeriodGain) {  // the smallest of those that are as good
        best = likeness;
        best_period = period;
      }
    }
    return best_period;
  }

  // Bytes and number of blocks that an iteration leaves behind for good.
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

  // What the last iterations leave includes what the next one would have freed, so it bounds from above.
  static bool LeavesMore(const Residue& residue, const Residue& later) {
    return residue.blocks > later.blocks + 2 ||
           residue.bytes > later.bytes + std::max<Bytes>(4096, residue.requested / 1000);
  }

  std::uint32_t FindWarmup() const {
    const std::uint32_t period = cycle_.period;
    if (cycle_.complete < 2) {
      return 0;
    }
    if (cycle_.complete <= period) {
      return 0;
    }
    // With a follower for the whole template where the trace is long enough for that.
    const std::uint32_t most = cycle_.complete > period + 1 ? cycle_.complete - period - 1 : cycle_.complete - period;
    const std::uint32_t last = cycle_.complete - 1;
    const double reference = Like(last - period, last);
    const double least = reference - kLikenessSlack - kLikenessShare * (1 - reference);
    std::uint32_t warmup = last - period + 1;
    for (std::uint32_t i = warmup; i-- > 0;) {
      if (Like(i, i + period) < least || LeavesMore(ResidueOf(i), ResidueOf(i + period))) {
        break;
      }
      warmup = i;
    }
    return std::min(warmup, most);
  }

  void Warn() {
    if (cycle_.complete == 1) {
      cycle_.warnings.push_back(
          "only one complete iteration was traced: it serves as the template although the first one nearly always "
          "differs; "
          "trace at least 3 iterations");
    } else if (cycle_.Followers(cycle_.warmup + cycle_.period - 1) == 0) {
      cycle_.warnings.push_back(absl::StrCat(
          "no complete iteration follows the template (iteration ", cycle_.warmup, " of ", cycle_.complete,
          "): blocks that outlive it keep their places for ever, and nothing tells sizes that vary; trace one more"));
    }
    if (cycle_.broken_off() && Requests(cycle_.traced - 1) > 0) {
      cycle_.warnings.push_back(absl::StrCat("the last traced iteration was broken off after ",
                                             Requests(cycle_.traced - 1), " requests and is not compared"));
    }
  }

  const DeviceTrace& device_;
  const Segmentation& segmentation_;
  bool trace_complete_;
  Cycle cycle_;
};

}  // namespace

double Likeness(const DeviceTrace& device, std::uint32_t left_segment, std::uint32_t right_segment) {
  absl::flat_hash_map<RequestKey, std::int64_t> balance;
  const auto add = [&](std::uint32_t segment, std::int64_t step) {
    for (const std::uint32_t index : device.segments[segment].allocations) {
      balance[MakeKey(device.allocations[index].bytes, device.allocations[index].stream)] += step;
    }
  };
  add(left_segment, 1);
  add(right_segment, -1);
  std::int64_t unlike = 0;
  for (const auto& [key, count] : balance) {
    unlike += count < 0 ? -count : count;
  }
  const std::size_t total =
      device.segments[left_segment].allocations.size() + device.segments[right_segment].allocations.size();
  return total == 0 ? 1.0 : 1.0 - static_cast<double>(unlike) / static_cast<double>(total);
}

bool FreedAtExit(const DeviceTrace& device, const Allocation& allocation) {
  return allocation.freed() && allocation.free_segment + 1 == device.segments.size() &&
         allocation.free_segment != allocation.segment &&
         allocation.free_ordinal == device.segments.back().allocations.size();
}

absl::StatusOr<Cycle> FindCycle(const DeviceTrace& device, const Segmentation& segmentation, bool trace_complete) {
  return CycleFinder(device, segmentation, trace_complete).Find();
}

}  // namespace stalloc::planner
