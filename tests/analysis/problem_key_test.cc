#include "planner/analysis/problem_key.h"

#include <gtest/gtest.h>

#include <set>

namespace stalloc::planner {
namespace {

Problem Example() {
  Problem problem;
  problem.blocks.push_back({.id = 0, .bytes = 512, .life = {0, 4}});
  problem.blocks.push_back({.id = 1, .bytes = 1024, .life = {1, 3}, .second_life = Lifetime{5, 6}});
  return problem;
}

TEST(ProblemKeyTest, EqualProblemsHaveEqualKeys) {
  EXPECT_EQ(KeyOfProblem(Example()), KeyOfProblem(Example()));
  EXPECT_NE(KeyOfProblem(Example()), KeyOfProblem(Example(), KeyOfProblem(Example())));
}

TEST(ProblemKeyTest, EveryFieldCounts) {
  std::set<ProblemKey> keys{KeyOfProblem(Example())};
  const auto add = [&](auto change) {
    Problem problem = Example();
    change(problem.blocks);
    keys.insert(KeyOfProblem(problem));
  };
  add([](std::vector<Block>& blocks) { blocks[0].bytes = 1024; });
  add([](std::vector<Block>& blocks) { blocks[0].life.begin = 1; });
  add([](std::vector<Block>& blocks) { blocks[0].life.end = 5; });
  add([](std::vector<Block>& blocks) { blocks[0].second_life = Lifetime{5, 6}; });
  add([](std::vector<Block>& blocks) { blocks[1].second_life.reset(); });
  add([](std::vector<Block>& blocks) { blocks[0].alignment = 2; });
  add([](std::vector<Block>& blocks) { blocks[0].stream = 1; });
  add([](std::vector<Block>& blocks) { blocks[0].persistent = true; });
  add([](std::vector<Block>& blocks) { std::swap(blocks[0], blocks[1]); });
  add([](std::vector<Block>& blocks) { blocks.pop_back(); });
  EXPECT_EQ(keys.size(), 11u);
}

}  // namespace
}  // namespace stalloc::planner
