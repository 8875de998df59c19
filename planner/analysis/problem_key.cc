#include "planner/analysis/problem_key.h"

namespace stalloc::planner {
namespace {

void AddLife(const Lifetime& life, ContentHash* hash) {
  hash->Add(life.begin);
  hash->Add(life.end);
}

}  // namespace

ProblemKey KeyOfProblem(const Problem& problem, ProblemKey seed) {
  ContentHash hash(seed);
  hash.Add(problem.blocks.size());
  for (const Block& block : problem.blocks) {
    hash.Add(block.bytes);
    AddLife(block.life, &hash);
    AddLife(block.second_life.value_or(Lifetime{}), &hash);
    hash.Add(block.alignment);
    hash.Add(std::uint64_t{block.stream} << 2 | (block.recorded ? 2 : 0) | (block.persistent ? 1 : 0));
  }
  return hash.value();
}

}  // namespace stalloc::planner
