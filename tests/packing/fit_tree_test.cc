#include "planner/packing/search/fit_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "planner/packing/problem/instance.h"
#include "planner/packing/search/interval_list.h"
#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

TEST(IntervalListTest, JoinsWhatTouchesAndKeepsTheRestApart) {
  IntervalList list;
  list.Insert(10, 20);
  list.Insert(30, 40);
  EXPECT_EQ(list.intervals(), (std::vector<IntervalList::Interval>{{10, 20}, {30, 40}}));
  list.Insert(20, 25);
  EXPECT_EQ(list.intervals(), (std::vector<IntervalList::Interval>{{10, 25}, {30, 40}}));
  list.Insert(25, 30);
  EXPECT_EQ(list.intervals(), (std::vector<IntervalList::Interval>{{10, 40}}));
}

TEST(IntervalListTest, HoldsTheSameAddressesAsASetOfThem) {
  constexpr std::uint64_t kSeed = 21;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 100; ++round) {
    IntervalList list;
    std::set<Offset> addresses;
    for (int i = 0; i < 30; ++i) {
      const Offset begin = random() % 200;
      const Offset end = begin + 1 + random() % 20;
      list.Insert(begin, end);
      for (Offset a = begin; a < end; ++a) addresses.insert(a);
      std::set<Offset> held;
      for (std::size_t k = 0; k < list.intervals().size(); ++k) {
        const auto& interval = list.intervals()[k];
        for (Offset a = interval.begin; a < interval.end; ++a) held.insert(a);
        if (k > 0) {
          ASSERT_GT(interval.begin, list.intervals()[k - 1].end) << "not coalesced";
        }
      }
      ASSERT_EQ(held, addresses) << "round " << round << " insertion " << i;
    }
  }
}

// Places blocks in random order at random bases; every answer must be the naive one.
void ExpectNaiveAnswers(const RandomProblemShape& shape, std::uint64_t seed, int rounds) {
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < rounds; ++round) {
    const Problem problem = RandomProblem(shape, random);
    const Instance instance(problem);
    FitTree tree(instance.positions());
    std::vector<std::size_t> order(problem.blocks.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    std::vector<Offset> offsets(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto block = static_cast<BlockIndex>(order[i]);
      const Offset base = random() % 3 == 0 ? random() % 100 : 0;
      const Offset expected = NaiveLowestFit(problem, offsets, {order.data(), i}, order[i], base);
      ASSERT_EQ(tree.LowestFit(instance[block], base), expected) << "round " << round << " block " << block;
      offsets[block] = expected;
      tree.Insert(instance[block].span, expected, expected + instance[block].bytes);
      if (!instance[block].second.empty()) {
        tree.Insert(instance[block].second, expected, expected + instance[block].bytes);
      }
    }
  }
}

TEST(FitTreeTest, FindsTheLowestFitOfBlocksWithOneLifetime) {
  ExpectNaiveAnswers({.blocks = 60, .ticks = 80, .max_bytes = 30}, 22, 100);
}

TEST(FitTreeTest, FindsTheLowestFitOfManyShortBlocks) {
  ExpectNaiveAnswers({.blocks = 300, .ticks = 2000, .max_bytes = 1000}, 23, 5);
}

TEST(FitTreeTest, FindsTheLowestFitOfBlocksWithTwoLifetimes) {
  ExpectNaiveAnswers({.blocks = 60, .ticks = 80, .max_bytes = 30, .second_lives = true}, 24, 100);
}

TEST(FitTreeTest, FindsTheLowestFitOfAlignedBlocks) {
  ExpectNaiveAnswers({.blocks = 60, .ticks = 40, .max_bytes = 30, .second_lives = true, .max_alignment = 64}, 25, 100);
}

TEST(FitTreeTest, ForgetsEverythingWhenCleared) {
  const Problem problem{{{.id = 0, .bytes = 8, .life = {0, 5}}, {.id = 1, .bytes = 6, .life = {3, 9}}}};
  const Instance instance(problem);
  FitTree tree(instance.positions());
  tree.Insert(instance[0].span, 0, 8);
  EXPECT_EQ(tree.LowestFit(instance[1], 0), 8u);
  tree.Clear();
  EXPECT_EQ(tree.LowestFit(instance[1], 0), 0u);
}

}  // namespace
}  // namespace stalloc::planner
