#include "planner/analysis/problem_key.h"

namespace stalloc::planner {
namespace {

// The finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
std::uint64_t Mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// Two chains with different constants; each value passes through both.
void Add(std::uint64_t value, ProblemKey* key) {
  (*key)[0] = Mix((*key)[0] + value + 0x9e3779b97f4a7c15u);
  (*key)[1] = Mix(((*key)[1] ^ value) * 0xd6e8feb86659fd93u + 0xa0761d6478bd642fu);
}

void Add(const Lifetime& life, ProblemKey* key) {
  Add(life.begin, key);
  Add(life.end, key);
}

}  // namespace

ProblemKey KeyOfProblem(const Problem& problem, ProblemKey seed) {
  ProblemKey key = seed;
  Add(problem.blocks.size(), &key);
  for (const Block& block : problem.blocks) {
    Add(block.bytes, &key);
    Add(block.life, &key);
    Add(block.second_life.value_or(Lifetime{}), &key);
    Add(block.alignment, &key);
    Add(std::uint64_t{block.stream} << 2 | (block.recorded ? 2 : 0) | (block.persistent ? 1 : 0), &key);
  }
  return key;
}

}  // namespace stalloc::planner
