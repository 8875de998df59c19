#include "planner/packing/finish/room_ahead.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

namespace stalloc::planner {
namespace {

// No further back than some layers' requests: by then a device is through with what it was given.
constexpr Tick kFurthest = 256;
constexpr std::size_t kNearest = 64;  // blocks that are looked at

// Bytes alive, by tick.
class Load {
 public:
  explicit Load(const Problem& problem) {
    const auto add = [this](const Lifetime& life, Bytes bytes) {
      const auto end = static_cast<std::size_t>(life.end);
      if (bytes_.size() <= end) bytes_.resize(end + 1);
      bytes_[static_cast<std::size_t>(life.begin)] += bytes;
      bytes_[end] -= bytes;  // may wrap around: the sum does so again
    };
    for (const Block& block : problem.blocks) {
      add(block.life, block.bytes);
      if (block.second_life) add(*block.second_life, block.bytes);
    }
    std::partial_sum(bytes_.begin(), bytes_.end(), bytes_.begin());
    greatest_ = *std::max_element(bytes_.begin(), bytes_.end());
  }

  // Takes so much from as early on, though not before `least`, as it raises no peak until `begin`. Returns since when.
  Tick TakeBefore(Tick begin, Tick least, Bytes bytes) {
    for (; begin > least; --begin) {
      Bytes& before = bytes_[static_cast<std::size_t>(begin) - 1];
      if (before + bytes > greatest_) break;
      before += bytes;
    }
    return begin;
  }

 private:
  std::vector<Bytes> bytes_;
  Bytes greatest_ = 0;
};

// The one whose blocks are most at some time.
std::uint32_t MainStream(const Problem& problem) {
  std::map<std::uint32_t, Problem> parts;
  for (const Block& block : problem.blocks) parts[block.stream].blocks.push_back(block);
  std::map<std::uint32_t, Bytes> peaks;
  for (const auto& [stream, part] : parts) peaks[stream] = LoadBound(part);
  return std::ranges::max_element(peaks, {}, [](const auto& peak) { return peak.second; })->first;
}

// When the stream last freed a block as large as that of `order[at]`, or some time before.
Tick LastFree(const std::vector<Block>& blocks, const std::vector<std::size_t>& order, std::size_t at) {
  const Block& block = blocks[order[at]];
  Tick last = block.life.begin - std::min(block.life.begin, kFurthest);
  for (std::size_t back = 1; back <= std::min(at, kNearest); ++back) {
    const Block& before = blocks[order[at - back]];
    const bool is_like = before.stream == block.stream && before.bytes >= block.bytes;
    if (is_like && before.life.end <= block.life.begin) last = std::max(last, before.life.end);
  }
  return last;
}

}  // namespace

Problem WithRoomAhead(const Problem& problem, const CycleAxis& cycle) {
  Problem ahead = problem;
  if (problem.blocks.empty()) return ahead;
  const std::uint32_t main = MainStream(problem);
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
    if (problem.blocks[i].stream != main) others.push_back(i);
  }
  if (others.empty()) return ahead;
  std::ranges::stable_sort(others, {}, [&](std::size_t i) { return problem.blocks[i].life.begin; });
  Load load(problem);
  for (std::size_t at = 0; at < others.size(); ++at) {
    Block& block = ahead.blocks[others[at]];
    if (block.second_life) continue;
    const Tick least = block.life.begin >= cycle.begin ? cycle.begin : 0;  // a block of the cycle comes in each round
    block.life.begin =
        load.TakeBefore(block.life.begin, std::max(least, LastFree(problem.blocks, others, at)), block.bytes);
  }
  return ahead;
}

}  // namespace stalloc::planner
