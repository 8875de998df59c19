#include "bench/plan_quality/baselines/gap_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/packing/naive.h"

namespace stalloc::planner {

static bool operator==(const Gap& a, const Gap& b) { return a.begin == b.begin && a.end == b.end; }

namespace {

using ::testing::ElementsAre;

std::vector<Gap> GapsFor(const Block& block, GapIndex& index) {
  std::vector<Gap> gaps;
  index.ForEachGap(block, [&](const Gap& gap) {
    gaps.push_back(gap);
    return true;
  });
  return gaps;
}

// Address by address.
std::vector<Gap> NaiveGaps(const Problem& problem, const std::vector<Offset>& offsets, std::size_t placed,
                           const Block& block, Offset limit) {
  std::vector<bool> occupied(limit, false);
  for (std::size_t i = 0; i < placed; ++i) {
    if (!NaiveConflict(block, problem.blocks[i])) continue;
    for (Offset at = offsets[i]; at < offsets[i] + problem.blocks[i].bytes; ++at) occupied[at] = true;
  }
  std::vector<Gap> gaps;
  for (Offset at = 0; at < limit; ++at) {
    if (occupied[at]) continue;
    const Offset begin = at;
    while (at < limit && !occupied[at]) ++at;
    gaps.push_back({begin, at == limit ? Gap::kOpen : at});
  }
  return gaps;
}

TEST(GapIndexTest, SeesOnlyWhatLivesAtTheSameTime) {
  const Problem problem{{{.id = 0, .bytes = 4, .life = {0, 5}},
                         {.id = 1, .bytes = 2, .life = {3, 9}},
                         {.id = 2, .bytes = 1, .life = {5, 6}},
                         {.id = 3, .bytes = 1, .life = {4, 5}}}};
  GapIndex index(problem);
  index.Insert(problem.blocks[0], 0);
  index.Insert(problem.blocks[1], 7);
  EXPECT_THAT(GapsFor(problem.blocks[2], index), ElementsAre(Gap{0, 7}, Gap{9, Gap::kOpen}));
  EXPECT_THAT(GapsFor(problem.blocks[3], index), ElementsAre(Gap{4, 7}, Gap{9, Gap::kOpen}));
  index.Clear();
  EXPECT_THAT(GapsFor(problem.blocks[3], index), ElementsAre(Gap{0, Gap::kOpen}));
}

TEST(GapIndexTest, AgreesWithAddressByAddressOnRandomBlocks) {
  constexpr std::uint64_t kSeed = 71;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 300; ++round) {
    const Problem problem = RandomProblem({.blocks = 1 + round % 20, .ticks = 25, .second_lives = true}, random);
    std::vector<Offset> offsets(problem.blocks.size());
    GapIndex index(problem);
    for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
      ASSERT_EQ(GapsFor(problem.blocks[i], index), NaiveGaps(problem, offsets, i, problem.blocks[i], 200))
          << "round " << round << ", block " << i;
      offsets[i] = random() % 150;
      index.Insert(problem.blocks[i], offsets[i]);
    }
  }
}

}  // namespace
}  // namespace stalloc::planner
