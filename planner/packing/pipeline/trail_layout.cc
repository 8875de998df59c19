#include "planner/packing/pipeline/trail_layout.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

namespace stalloc::planner {
namespace {

// The chain of each pass: that of the pass whose place it takes.
std::vector<std::uint32_t> ChainsOf(const PassRounds& rounds) {
  std::vector<std::uint32_t> chains(rounds.passes.size());
  for (std::uint32_t pass = 0; pass < rounds.in_flight; ++pass) chains[pass] = pass;
  // A pass that came later was begun after the one it replaces was freed: passes are by begin.
  for (std::uint32_t pass = rounds.in_flight; pass < chains.size(); ++pass) {
    chains[pass] = chains[rounds.freed[pass - rounds.in_flight]];
  }
  return chains;
}

// Fills free ranges of addresses with tensors, to the last unit. Depth first, the longest tensors first, each where
// most is left; equal choices are tried once.
class RangeFiller {
 public:
  RangeFiller(std::vector<std::uint32_t> room, std::vector<std::uint32_t> sizes)
      : room_(std::move(room)), sizes_(std::move(sizes)), chosen_(sizes_.size()) {
    for (const std::uint32_t size : sizes_) odd_sizes_ += size & 1;
  }

  // Of each size, which must descend: the range; empty where there is no way, or none was found soon.
  [[nodiscard]] std::span<const std::uint32_t> Fill() {
    return Place(0) ? std::span<const std::uint32_t>(chosen_) : std::span<const std::uint32_t>();
  }

 private:
  static constexpr std::size_t kMostSteps = 2000;

  // An odd rest needs an odd tensor.
  [[nodiscard]] bool IsHopeless() const {
    const auto odd = std::count_if(room_.begin(), room_.end(), [](std::uint32_t room) { return (room & 1) != 0; });
    return odd > odd_sizes_;
  }

  bool Place(std::size_t index) {
    if (index == sizes_.size()) return true;
    if (++steps_ > kMostSteps || IsHopeless()) return false;
    const std::uint32_t size = sizes_[index];
    std::vector<std::uint32_t> ranges(room_.size());
    std::iota(ranges.begin(), ranges.end(), 0u);
    std::stable_sort(ranges.begin(), ranges.end(), [&](std::uint32_t a, std::uint32_t b) {
      // An odd tensor mends an odd rest first.
      if ((size & 1) != 0 && (room_[a] & 1) != (room_[b] & 1)) return (room_[a] & 1) != 0;
      return room_[a] > room_[b];
    });
    std::uint32_t tried = kNoSegment;
    for (const std::uint32_t range : ranges) {
      if (room_[range] < size || room_[range] == tried) continue;
      tried = room_[range];
      room_[range] -= size;
      odd_sizes_ -= size & 1;
      chosen_[index] = range;
      const bool placed = Place(index + 1);
      room_[range] += size;
      odd_sizes_ += size & 1;
      if (placed) return true;
    }
    return false;
  }

  std::vector<std::uint32_t> room_;
  const std::vector<std::uint32_t> sizes_;
  std::vector<std::uint32_t> chosen_;
  std::ptrdiff_t odd_sizes_ = 0;
  std::size_t steps_ = 0;
};

class LayOut {
 public:
  LayOut(const Instance& instance, const PassRounds& rounds, Trails trails)
      : instance_(instance), rounds_(rounds), trails_(std::move(trails)), chains_(ChainsOf(rounds)) {
    GiveWhatIsLeft();
    if (rounds_.late_bytes > 0) FindFirstLate();
    LayTrails();
    placed_.reserve(instance.size());
  }

  [[nodiscard]] std::optional<std::vector<PlacedBlock>> Run() {
    for (std::uint32_t pass = 0; pass < rounds_.in_flight; ++pass) {
      if (!PlacePass(pass, pass + 1 == rounds_.in_flight ? first_late_ : std::nullopt)) return std::nullopt;
    }
    for (std::uint32_t round = 0; round < rounds_.rounds; ++round) {
      Move(trails_.moves[round]);
      // The pass that came since the last peak: its chain has just lost the room again.
      if (round > 0 && !PlacePass(rounds_.in_flight + round - 1, trails_.moves[round])) return std::nullopt;
    }
    return std::move(placed_);
  }

 private:
  struct Range {
    Offset begin = 0;
    Offset end = 0;
  };

  // To the longest segment of each chain; an odd rest is a segment of its own, for lengths are odd or even as they are.
  void GiveWhatIsLeft() {
    const auto pass = static_cast<std::uint32_t>(rounds_.pass_bytes / rounds_.unit);
    std::vector<std::uint32_t> left(rounds_.in_flight, pass);
    std::vector<std::uint32_t> longest(rounds_.in_flight, kNoSegment);
    for (std::uint32_t i = 0; i < trails_.segments.size(); ++i) {
      const TrailSegment& segment = trails_.segments[i];
      if (segment.chain == rounds_.in_flight) continue;
      left[segment.chain] -= segment.length;
      std::uint32_t& best = longest[segment.chain];
      if (best == kNoSegment || trails_.segments[best].length < segment.length) best = i;
    }
    for (std::uint32_t chain = 0; chain < rounds_.in_flight; ++chain) {
      const bool is_first_late = rounds_.late_bytes > 0 && chain + 1 == rounds_.in_flight;
      if (longest[chain] == kNoSegment || (left[chain] & 1) != 0 || is_first_late) {
        trails_.segments.push_back({.chain = chain, .length = left[chain]});
      } else {
        trails_.segments[longest[chain]].length += left[chain];
      }
    }
  }

  // The last pass before the first peak comes beside the first round's room, where that has no neighbour yet.
  void FindFirstLate() {
    const std::uint32_t room = trails_.moves.front().from;
    const std::uint32_t chain = rounds_.in_flight - 1;
    std::uint32_t free = kNoSegment;
    for (std::uint32_t i = 0; i < trails_.segments.size(); ++i) {
      const TrailSegment& segment = trails_.segments[i];
      const bool is_alone = segment.left == kNoSegment && segment.right == kNoSegment;
      if (segment.chain == chain && is_alone && segment.length >= Units(rounds_.late_bytes)) free = i;
    }
    if (free == kNoSegment) return;
    TrailSegment& entry = trails_.segments[room];
    if (entry.left == kNoSegment) {
      entry.left = free;
      trails_.segments[free].right = room;
    } else if (entry.right == kNoSegment) {
      entry.right = free;
      trails_.segments[free].left = room;
    } else {
      return;
    }
    first_late_ = SeamMove{free, room};
  }

  // One trail above the other.
  void LayTrails() {
    ranges_.resize(trails_.segments.size());
    of_chain_.resize(rounds_.in_flight + 1);
    Offset next = 0;
    for (std::uint32_t first = 0; first < trails_.segments.size(); ++first) {
      if (trails_.segments[first].left != kNoSegment) continue;
      for (std::uint32_t segment = first; segment != kNoSegment; segment = trails_.segments[segment].right) {
        ranges_[segment] = {next, next + trails_.segments[segment].length * rounds_.unit};
        next = ranges_[segment].end;
      }
    }
    for (std::uint32_t i = 0; i < trails_.segments.size(); ++i) of_chain_[trails_.segments[i].chain].push_back(i);
  }

  // Whether the room comes from below.
  [[nodiscard]] bool IsLeft(const SeamMove& move) const { return trails_.segments[move.from].right == move.to; }

  void Move(const SeamMove& move) {
    Range& from = ranges_[move.from];
    Range& to = ranges_[move.to];
    if (IsLeft(move)) {
      from.end -= rounds_.room_bytes;
      to.begin -= rounds_.room_bytes;
    } else {
      from.begin += rounds_.room_bytes;
      to.end += rounds_.room_bytes;
    }
  }

  // The move of the round in which each pass is freed; none where that is after the last peak.
  [[nodiscard]] std::optional<SeamMove> MoveOf(std::uint32_t pass) {
    if (round_of_.empty()) {
      round_of_.resize(rounds_.passes.size());
      for (std::uint32_t i = 0; i < rounds_.freed.size(); ++i) round_of_[rounds_.freed[i]] = i;
    }
    const std::uint32_t round = round_of_[pass];
    if (round >= rounds_.rounds) return std::nullopt;
    return trails_.moves[round];
  }

  // `came`: the move with which the room has left the pass's place, if it has.
  bool PlacePass(std::uint32_t index, const std::optional<SeamMove>& came) {
    const Pass& pass = rounds_.passes[index];
    std::vector<Range> ranges;
    std::vector<BlockIndex> blocks = pass.body;
    const std::optional<SeamMove> move = MoveOf(index);
    bool is_late_placed = pass.late.empty();
    for (const std::uint32_t segment : of_chain_[chains_[index]]) {
      Range range = ranges_[segment];
      if (move && move->to == segment) {
        if (range.end - range.begin < rounds_.critical_bytes) return false;
        range = PlacePiece(pass.critical, range, IsLeft(*move));
      }
      if (came && came->from == segment && !pass.late.empty()) {
        if (range.end - range.begin < rounds_.late_bytes) return false;
        range = PlacePiece(pass.late, range, !IsLeft(*came));
        is_late_placed = true;
      }
      if (range.begin < range.end) ranges.push_back(range);
    }
    if (!is_late_placed && !PlaceLateAnywhere(pass, ranges)) return false;
    if (!move) blocks.insert(blocks.end(), pass.critical.begin(), pass.critical.end());
    return FillRanges(std::move(blocks), std::move(ranges));
  }

  // In one run; false where no range is long enough.
  bool PlaceLateAnywhere(const Pass& pass, std::vector<Range>& ranges) {
    const auto longest = std::max_element(
        ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.end - a.begin < b.end - b.begin; });
    if (longest == ranges.end() || longest->end - longest->begin < rounds_.late_bytes) return false;
    *longest = PlacePiece(pass.late, *longest, true);
    std::erase_if(ranges, [](const Range& range) { return range.begin == range.end; });
    return true;
  }

  // At the range's begin or end; returns the rest. REQUIRES: the range is long enough.
  Range PlacePiece(const std::vector<BlockIndex>& piece, Range range, bool at_begin) {
    for (const BlockIndex block : piece) {
      const Bytes bytes = instance_[block].bytes;
      placed_.emplace_back(block, at_begin ? range.begin : range.end - bytes);
      (at_begin ? range.begin : range.end) += at_begin ? bytes : -bytes;
    }
    return range;
  }

  bool FillRanges(std::vector<BlockIndex> blocks, std::vector<Range> ranges) {
    std::stable_sort(blocks.begin(), blocks.end(),
                     [&](BlockIndex a, BlockIndex b) { return instance_[a].bytes > instance_[b].bytes; });
    std::vector<std::uint32_t> room;
    std::vector<std::uint32_t> sizes;
    for (const Range& range : ranges) room.push_back(Units(range.end - range.begin));
    for (const BlockIndex block : blocks) sizes.push_back(Units(instance_[block].bytes));
    RangeFiller filler(std::move(room), std::move(sizes));
    const std::span<const std::uint32_t> chosen = filler.Fill();
    if (chosen.empty()) return false;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      Range& range = ranges[chosen[i]];
      placed_.emplace_back(blocks[i], range.begin);
      range.begin += instance_[blocks[i]].bytes;
    }
    return true;
  }

  [[nodiscard]] std::uint32_t Units(Bytes bytes) const { return static_cast<std::uint32_t>(bytes / rounds_.unit); }

  const Instance& instance_;
  const PassRounds& rounds_;
  Trails trails_;
  const std::vector<std::uint32_t> chains_;
  std::vector<Range> ranges_;  // of each segment, now
  std::vector<std::vector<std::uint32_t>> of_chain_;
  std::optional<SeamMove> first_late_;   // of the last pass before the first peak
  std::vector<std::uint32_t> round_of_;  // of a pass: when it is freed
  std::vector<PlacedBlock> placed_;
};

}  // namespace

TrailProblem TrailProblemOf(const Instance& instance, const PassRounds& rounds) {
  const auto units = [&](Bytes bytes) { return static_cast<std::uint32_t>(bytes / rounds.unit); };
  const auto odd = [&](const std::vector<BlockIndex>& blocks) {
    return static_cast<std::uint32_t>(std::count_if(
        blocks.begin(), blocks.end(), [&](BlockIndex block) { return (units(instance[block].bytes) & 1) != 0; }));
  };
  const Pass& pass = rounds.passes.front();
  TrailProblem problem{.chains = rounds.in_flight,
                       .pass = units(rounds.pass_bytes),
                       .room = units(rounds.room_bytes),
                       .critical = units(rounds.critical_bytes),
                       .late = units(rounds.late_bytes),
                       .odd_tensors = odd(pass.critical) + odd(pass.late) + odd(pass.body),
                       .odd_critical = odd(pass.critical)};
  problem.least_even = problem.least_odd = problem.pass;
  for (const BlockIndex block : pass.body) {
    std::uint32_t& least = (units(instance[block].bytes) & 1) != 0 ? problem.least_odd : problem.least_even;
    least = std::min(least, units(instance[block].bytes));
  }
  const std::vector<std::uint32_t> chains = ChainsOf(rounds);
  for (std::uint32_t round = 0; round < rounds.rounds; ++round) {
    problem.chain_of_round.push_back(chains[rounds.freed[round]]);
  }
  return problem;
}

std::optional<std::vector<PlacedBlock>> LayOutPasses(const Instance& instance, const PassRounds& rounds,
                                                     Trails trails) {
  return LayOut(instance, rounds, std::move(trails)).Run();
}

}  // namespace stalloc::planner
