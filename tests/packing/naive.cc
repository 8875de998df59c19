#include "tests/packing/naive.h"

#include <algorithm>
#include <numeric>

namespace stalloc::planner {
namespace {

std::vector<Lifetime> Lives(const Block& block) {
  std::vector<Lifetime> lives = {block.life};
  if (block.second_life) lives.push_back(*block.second_life);
  return lives;
}

std::int64_t Below(std::mt19937_64& random, std::int64_t bound) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
}

Lifetime RandomLifetime(std::mt19937_64& random, Tick begin, Tick end) {
  const Tick from = begin + Below(random, end - begin);
  return {from, from + 1 + Below(random, end - from)};
}

}  // namespace

Problem RandomProblem(const RandomProblemShape& shape, std::mt19937_64& random) {
  Problem problem;
  for (int i = 0; i < shape.blocks; ++i) {
    Block block;
    block.id = static_cast<std::uint64_t>(i);
    block.bytes = 1 + static_cast<Bytes>(Below(random, static_cast<std::int64_t>(shape.max_bytes)));
    block.life = RandomLifetime(random, 0, shape.ticks);
    if (shape.second_lives && Below(random, 2) == 0 && block.life.end < shape.ticks) {
      block.second_life = RandomLifetime(random, block.life.end, shape.ticks);
      if (Below(random, 2) == 0) std::swap(block.life, *block.second_life);
    }
    while (block.alignment < shape.max_alignment && Below(random, 2) == 0) block.alignment *= 2;
    problem.blocks.push_back(block);
  }
  return problem;
}

bool NaiveConflict(const Block& a, const Block& b) {
  for (const Lifetime& x : Lives(a)) {
    for (const Lifetime& y : Lives(b)) {
      if (std::max(x.begin, y.begin) < std::min(x.end, y.end)) return true;
    }
  }
  return false;
}

Bytes NaiveLoadBound(const Problem& problem) {
  Bytes greatest = 0;
  for (const Block& moment : problem.blocks) {
    for (const Lifetime& life : Lives(moment)) {
      Bytes load = 0;
      for (const Block& block : problem.blocks) {
        for (const Lifetime& other : Lives(block)) {
          if (other.begin <= life.begin && life.begin < other.end) load += block.bytes;
        }
      }
      greatest = std::max(greatest, load);
    }
  }
  return greatest;
}

bool NaiveIsValid(const Problem& problem, const Packing& packing) {
  if (packing.offsets.size() != problem.blocks.size()) return false;
  for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
    const Block& a = problem.blocks[i];
    const Offset at = packing.offsets[i];
    if (at % a.alignment != 0 || at + a.bytes > packing.height) return false;
    for (std::size_t j = 0; j < i; ++j) {
      const Block& b = problem.blocks[j];
      const bool apart = at + a.bytes <= packing.offsets[j] || packing.offsets[j] + b.bytes <= at;
      if (!apart && NaiveConflict(a, b)) return false;
    }
  }
  return true;
}

Offset NaiveLowestFit(const Problem& problem, const std::vector<Offset>& offsets, std::span<const std::size_t> placed,
                      std::size_t block, Offset base) {
  const Block& it = problem.blocks[block];
  std::vector<Offset> candidates = {base};
  for (const std::size_t other : placed) {
    const Offset end = offsets[other] + problem.blocks[other].bytes;
    if (end >= base) candidates.push_back(end);
  }
  for (Offset& candidate : candidates) candidate = RoundUp(candidate, it.alignment);
  std::sort(candidates.begin(), candidates.end());
  for (const Offset candidate : candidates) {
    const bool free = std::all_of(placed.begin(), placed.end(), [&](std::size_t other) {
      const Offset at = offsets[other];
      return candidate + it.bytes <= at || at + problem.blocks[other].bytes <= candidate ||
             !NaiveConflict(it, problem.blocks[other]);
    });
    if (free) return candidate;
  }
  return candidates.back();  // above everything
}

Bytes BruteForceOptimum(const Problem& problem) {
  const std::size_t count = problem.blocks.size();
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  Bytes best = ~Bytes{0};
  do {
    std::vector<Offset> offsets(count);
    Bytes height = 0;
    for (std::size_t i = 0; i < count; ++i) {
      offsets[order[i]] = NaiveLowestFit(problem, offsets, {order.data(), i}, order[i], 0);
      height = std::max(height, offsets[order[i]] + problem.blocks[order[i]].bytes);
    }
    best = std::min(best, height);
  } while (std::next_permutation(order.begin(), order.end()));
  return count == 0 ? 0 : best;
}

}  // namespace stalloc::planner
