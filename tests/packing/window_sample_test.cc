#include "planner/packing/search/window_sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

// `count` blocks that live one after the other, block i of size i + 1, and one that outlives them all.
Problem Row(Tick count) {
  Problem problem;
  for (Tick i = 0; i < count; ++i) {
    problem.blocks.push_back(
        {.id = static_cast<std::uint64_t>(i), .bytes = static_cast<Bytes>(i + 1), .life = {.begin = i, .end = i + 1}});
  }
  problem.blocks.push_back({.id = 999, .bytes = 7, .life = {.begin = 0, .end = count}});
  return problem;
}

std::set<std::uint64_t> Ids(const Instance& instance) {
  std::set<std::uint64_t> ids;
  for (const Block& block : instance.problem().blocks) ids.insert(block.id);
  return ids;
}

TEST(WindowSampleTest, HoldsWhatIsAliveAroundItsCentres) {
  const Problem problem = Row(100);
  const Instance whole(problem);
  const std::vector<std::uint32_t> centres = {20, 80};
  const std::set<std::uint64_t> ids = Ids(WindowSample(whole, centres, 10).instance());
  for (const std::uint64_t id : {20, 17, 22, 80, 77, 82, 999}) EXPECT_TRUE(ids.contains(id)) << id;
  for (const std::uint64_t id : {0, 10, 50, 70, 99}) EXPECT_FALSE(ids.contains(id)) << id;
}

TEST(WindowSampleTest, KeepsTheGreatestLoadWhenAWindowIsOnIt) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20; ++round) {
    const Problem problem =
        RandomProblem({.blocks = 300, .ticks = 200, .max_bytes = 999, .second_lives = round % 2 == 0}, random);
    const Instance whole(problem);
    const std::vector<std::uint32_t> peaks = LoadPeaks(whole, 8);
    const WindowSample sample(whole, std::span(peaks).first(1), 20);
    EXPECT_EQ(sample.instance().load_bound(), whole.load_bound()) << "round " << round;
    EXPECT_LT(sample.instance().size(), whole.size()) << "round " << round;
  }
}

TEST(WindowSampleTest, PeaksAreOnePerStretchGreatestFirst) {
  const Problem problem = Row(100);
  const Instance whole(problem);
  EXPECT_EQ(LoadPeaks(whole, 4), (std::vector<std::uint32_t>{99, 74, 49, 24}));
  EXPECT_EQ(LoadPeaks(whole, 1000).size(), 100u) << "never more than there are positions";
}

}  // namespace
}  // namespace stalloc::planner
