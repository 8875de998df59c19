#include "planner/packing/finish/hand_overs.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

namespace stalloc::planner {
namespace {

// Who held each byte of an arena last; bytes that nobody held are absent. A use costs O(log n) for each holder it
// meets, and holders are few since ranges are overwritten whole.
class LastHolders {
 public:
  // Calls visit(holder, bytes) for every run of bytes of [begin, end) with one holder, then makes `holder` the holder
  // of all of it. The same holder may be visited more than once.
  template <typename Visit>
  void Take(Offset begin, Offset end, std::uint32_t holder, Visit visit) {
    Split(begin);
    Split(end);
    auto range = ranges_.lower_bound(begin);
    while (range != ranges_.end() && range->first < end) {
      visit(range->second.holder, range->second.end - range->first);
      range = ranges_.erase(range);
    }
    ranges_.emplace_hint(range, begin, Range{end, holder});
  }

 private:
  struct Range {
    Offset end = 0;
    std::uint32_t holder = 0;
  };

  void Split(Offset at) {
    auto range = ranges_.upper_bound(at);
    if (range == ranges_.begin()) return;
    range = std::prev(range);
    if (range->first < at && at < range->second.end) {
      ranges_.emplace(at, range->second);
      range->second.end = at;
    }
  }

  std::map<Offset, Range> ranges_;
};

struct Use {
  Tick begin;
  std::uint32_t block;

  bool operator<(const Use& other) const { return std::pair(begin, block) < std::pair(other.begin, other.block); }
};

// Where an arc comes round: it is alive already, and in the first round only its place is reserved.
bool IsArc(const Block& block, const CycleAxis& cycle) {
  return !cycle.empty() && block.second_life && block.second_life->begin == cycle.begin && block.life.end == cycle.end;
}

std::vector<Use> UsesInOrder(const Problem& problem, const CycleAxis& cycle) {
  std::vector<Use> uses;
  uses.reserve(problem.blocks.size());
  for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
    const Block& block = problem.blocks[i];
    const auto index = static_cast<std::uint32_t>(i);
    uses.push_back({block.life.begin, index});
    if (block.second_life && !IsArc(block, cycle)) uses.push_back({block.second_life->begin, index});
  }
  std::sort(uses.begin(), uses.end());
  return uses;
}

// Whether the cycle allocates the block anew each time round. What lives through all of it is allocated once.
bool Recurs(const Block& block, const Use& use, const CycleAxis& cycle) {
  return use.begin >= cycle.begin && block.life != Lifetime{cycle.begin, cycle.end};
}

// Ticks from the end of a block to a later use of its bytes: of this round, or the last one.
Tick TicksSince(const Block& from, Tick use, const CycleAxis& cycle) {
  const Tick end = from.life.end;
  const Tick second_end = from.second_life ? from.second_life->end : end;
  const Tick last = std::max(end, second_end);
  const Tick first = std::min(end, second_end);
  const Tick before = last <= use ? last : first <= use ? first : last - cycle.length();
  return use - before;
}

bool NeedsWait(const Block& from, const Block& to, Tick use, const CycleAxis& cycle) {
  return from.stream != to.stream || (from.recorded && TicksSince(from, use, cycle) < kRecordedStreamsAreDone);
}

// Several runs of bytes, and both rounds, may have the same pair: the greatest sum of one use stays.
void MergePairs(std::vector<HandOver>& found) {
  std::sort(found.begin(), found.end(), [](const HandOver& a, const HandOver& b) {
    return std::tuple(a.from, a.to, b.bytes) < std::tuple(b.from, b.to, a.bytes);
  });
  found.erase(std::unique(found.begin(), found.end(),
                          [](const HandOver& a, const HandOver& b) { return a.from == b.from && a.to == b.to; }),
              found.end());
}

}  // namespace

std::vector<HandOver> FindHandOvers(const Problem& problem, std::span<const Offset> offsets, const CycleAxis& cycle) {
  const std::vector<Use> uses = UsesInOrder(problem, cycle);
  LastHolders holders;
  std::vector<HandOver> found;
  const auto play = [&](const Use& use) {
    const Block& block = problem.blocks[use.block];
    const Offset begin = offsets[use.block];
    const std::size_t first = found.size();
    holders.Take(begin, begin + block.bytes, use.block, [&](std::uint32_t from, Bytes bytes) {
      if (!NeedsWait(problem.blocks[from], block, use.begin, cycle)) return;
      const auto same = std::find_if(found.begin() + static_cast<std::ptrdiff_t>(first), found.end(),
                                     [from](const HandOver& other) { return other.from == from; });
      if (same == found.end()) {
        found.push_back({from, use.block, bytes});
      } else {
        same->bytes += bytes;
      }
    });
  };
  for (const Use& use : uses) play(use);
  if (!cycle.empty()) {
    for (const Use& use : uses) {
      if (Recurs(problem.blocks[use.block], use, cycle)) play(use);
    }
  }
  MergePairs(found);
  return found;
}

std::vector<StreamPair> CountByStreams(const Problem& problem, std::span<const HandOver> hand_overs) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, StreamPair> counts;
  for (const HandOver& hand_over : hand_overs) {
    const std::uint32_t from = problem.blocks[hand_over.from].stream;
    const std::uint32_t to = problem.blocks[hand_over.to].stream;
    if (from == to) continue;
    StreamPair& pair = counts[{from, to}];
    pair.from_stream = from;
    pair.to_stream = to;
    ++pair.hand_overs;
    pair.bytes += hand_over.bytes;
  }
  std::vector<StreamPair> pairs;
  for (const auto& [key, pair] : counts) pairs.push_back(pair);
  return pairs;
}

bool MayNeedWaits(const Problem& problem) {
  return std::any_of(problem.blocks.begin(), problem.blocks.end(), [&](const Block& block) {
    return block.recorded || block.stream != problem.blocks.front().stream;
  });
}

}  // namespace stalloc::planner
