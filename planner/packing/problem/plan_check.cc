#include "planner/packing/problem/plan_check.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"

namespace stalloc::planner {
namespace {

struct SweepEvent {
  Tick tick;
  bool begins;  // false sorts first: lifetimes are half-open
  std::uint32_t block;

  bool operator<(const SweepEvent& other) const {
    if (tick != other.tick) return tick < other.tick;
    if (begins != other.begins) return begins < other.begins;
    return block < other.block;
  }
};

std::string Describe(const Block& block, Offset offset) {
  std::string text = absl::StrCat("block ", block.id, " at [", offset, ", ", offset + block.bytes, ") alive [",
                                  block.life.begin, ", ", block.life.end, ")");
  if (block.second_life) {
    absl::StrAppend(&text, " and [", block.second_life->begin, ", ", block.second_life->end, ")");
  }
  return text;
}

absl::Status CheckLifetimes(const Block& block) {
  if (block.life.begin >= block.life.end) {
    return absl::InvalidArgumentError(
        absl::StrCat("block ", block.id, " has an empty lifetime: [", block.life.begin, ", ", block.life.end, ")"));
  }
  if (!block.second_life) return absl::OkStatus();
  const Lifetime& second = *block.second_life;
  if (second.begin >= second.end) {
    return absl::InvalidArgumentError(
        absl::StrCat("block ", block.id, " has an empty second lifetime: [", second.begin, ", ", second.end, ")"));
  }
  if (second.Overlaps(block.life)) {
    return absl::InvalidArgumentError(absl::StrCat("block ", block.id, " has lifetimes that overlap: [",
                                                   block.life.begin, ", ", block.life.end, ") and [", second.begin,
                                                   ", ", second.end, ")"));
  }
  return absl::OkStatus();
}

// What can be said of one block alone.
absl::Status CheckBlock(const Block& block, Offset offset, Bytes height) {
  if (absl::Status status = CheckLifetimes(block); !status.ok()) return status;
  if (block.bytes == 0) return absl::InvalidArgumentError(absl::StrCat("block ", block.id, " has no bytes"));
  if (block.alignment == 0) return absl::InvalidArgumentError(absl::StrCat("block ", block.id, " has alignment 0"));
  if (offset % block.alignment != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("block ", block.id, " is misaligned: offset ", offset, " is not a multiple of ", block.alignment));
  }
  if (offset > std::numeric_limits<Offset>::max() - block.bytes) {
    return absl::InvalidArgumentError(absl::StrCat("block ", block.id, " passes the end of the address space: offset ",
                                                   offset, ", bytes ", block.bytes));
  }
  if (offset + block.bytes > height) {
    return absl::InvalidArgumentError(absl::StrCat("height ", height, " is too small: ", Describe(block, offset)));
  }
  return absl::OkStatus();
}

std::vector<SweepEvent> SortedEvents(const Problem& problem) {
  std::vector<SweepEvent> events;
  events.reserve(2 * problem.blocks.size());
  for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
    const Block& block = problem.blocks[i];
    const auto index = static_cast<std::uint32_t>(i);
    events.push_back({block.life.begin, true, index});
    events.push_back({block.life.end, false, index});
    if (!block.second_life) continue;
    events.push_back({block.second_life->begin, true, index});
    events.push_back({block.second_life->end, false, index});
  }
  std::sort(events.begin(), events.end());
  return events;
}

// Blocks alive now, by offset; free of overlap, so only the two neighbours of a newcomer can touch it.
class LiveRanges {
 public:
  LiveRanges(const Problem& problem, const Packing& packing) : problem_(problem), packing_(packing) {}

  absl::Status Add(std::uint32_t block) {
    const Offset begin = packing_.offsets[block];
    const Offset end = begin + problem_.blocks[block].bytes;
    const auto next = live_.lower_bound(begin);
    if (next != live_.end() && next->first < end) return Overlap(next->second, block);
    if (next != live_.begin()) {
      const std::uint32_t below = std::prev(next)->second;
      if (packing_.offsets[below] + problem_.blocks[below].bytes > begin) return Overlap(below, block);
    }
    live_.emplace(begin, block);
    return absl::OkStatus();
  }

  void Remove(std::uint32_t block) { live_.erase(packing_.offsets[block]); }

 private:
  absl::Status Overlap(std::uint32_t first, std::uint32_t second) const {
    return absl::InvalidArgumentError(
        absl::StrCat("overlap: ", Describe(problem_.blocks[first], packing_.offsets[first]), " and ",
                     Describe(problem_.blocks[second], packing_.offsets[second])));
  }

  const Problem& problem_;
  const Packing& packing_;
  absl::btree_map<Offset, std::uint32_t> live_;
};

}  // namespace

absl::Status CheckPacking(const Problem& problem, const Packing& packing) {
  if (packing.offsets.size() != problem.blocks.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the packing must give one offset for each block: blocks ",
                                                   problem.blocks.size(), ", offsets ", packing.offsets.size()));
  }
  for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
    if (absl::Status status = CheckBlock(problem.blocks[i], packing.offsets[i], packing.height); !status.ok()) {
      return status;
    }
  }
  LiveRanges live(problem, packing);
  for (const SweepEvent& event : SortedEvents(problem)) {
    if (!event.begins) {
      live.Remove(event.block);
    } else if (absl::Status status = live.Add(event.block); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace stalloc::planner
