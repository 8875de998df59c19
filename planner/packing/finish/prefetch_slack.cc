#include "planner/packing/finish/prefetch_slack.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace stalloc::planner {
namespace {

// No further back than some layers' requests: by then a device is through with what it was given.
constexpr Tick kFurthest = 256;
constexpr std::size_t kNearest = 64;  // blocks that are looked at

// The one whose blocks are most at some time.
std::uint32_t MainStream(const Problem& problem) {
  const auto bounds = LoadBoundBy(problem, [](const Block& block) { return block.stream; });
  return std::ranges::max_element(bounds, {}, [](const auto& bound) { return bound.second; })->first;
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

std::optional<Problem> ExtendForPrefetch(const Problem& problem, const CycleAxis& cycle) {
  if (problem.blocks.empty()) return std::nullopt;
  const std::uint32_t main = MainStream(problem);
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
    if (problem.blocks[i].stream != main) others.push_back(i);
  }
  if (others.empty()) return std::nullopt;
  std::ranges::stable_sort(others, {}, [&](std::size_t i) { return problem.blocks[i].life.begin; });
  std::vector<Bytes> load = LoadByTick(problem, AxisOf(problem).end);
  const Bytes greatest = *std::ranges::max_element(load);
  Problem ahead = problem;
  bool any = false;
  for (std::size_t at = 0; at < others.size(); ++at) {
    Block& block = ahead.blocks[others[at]];
    if (block.second_life) continue;
    const Tick first = block.life.begin >= cycle.begin ? cycle.begin : 0;  // a block of the cycle comes in each round
    const Tick least = std::max(first, LastFree(problem.blocks, others, at));
    for (; block.life.begin > least; --block.life.begin, any = true) {
      Bytes& before = load[static_cast<std::size_t>(block.life.begin) - 1];
      if (before + block.bytes > greatest) break;
      before += block.bytes;
    }
  }
  return any ? std::optional(std::move(ahead)) : std::nullopt;
}

}  // namespace stalloc::planner
