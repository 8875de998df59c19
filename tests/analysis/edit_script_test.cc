#include "planner/analysis/edit_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace stalloc::planner {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

// The textbook table: quadratic, and obviously right.
std::size_t NaiveLength(const std::vector<RequestKey>& left, const std::vector<RequestKey>& right) {
  std::vector<std::vector<std::size_t>> table(left.size() + 1, std::vector<std::size_t>(right.size() + 1));
  for (std::size_t i = 1; i <= left.size(); ++i) {
    for (std::size_t j = 1; j <= right.size(); ++j) {
      table[i][j] = left[i - 1] == right[j - 1] ? table[i - 1][j - 1] + 1 : std::max(table[i - 1][j], table[i][j - 1]);
    }
  }
  return table[left.size()][right.size()];
}

void ExpectCommonSubsequence(const Matches& matches, const std::vector<RequestKey>& left,
                             const std::vector<RequestKey>& right) {
  for (std::size_t i = 0; i < matches.size(); ++i) {
    ASSERT_LT(matches[i].first, left.size());
    ASSERT_LT(matches[i].second, right.size());
    EXPECT_EQ(left[matches[i].first], right[matches[i].second]);
    if (i > 0) {
      EXPECT_GT(matches[i].first, matches[i - 1].first);
      EXPECT_GT(matches[i].second, matches[i - 1].second);
    }
  }
}

TEST(EditScriptTest, FindsOneInsertion) {
  const std::vector<RequestKey> left{1, 2, 3};
  const std::vector<RequestKey> right{1, 9, 2, 3};
  EXPECT_THAT(*LongestCommonSubsequence(left, right, 1), ElementsAre(Pair(0, 0), Pair(1, 2), Pair(2, 3)));
}

TEST(EditScriptTest, HandlesEmptySequences) {
  const std::vector<RequestKey> some{1, 2};
  EXPECT_THAT(*LongestCommonSubsequence({}, {}, 0), IsEmpty());
  EXPECT_THAT(*LongestCommonSubsequence(some, {}, 2), IsEmpty());
  EXPECT_THAT(*LongestCommonSubsequence({}, some, 2), IsEmpty());
}

TEST(EditScriptTest, GivesUpBeyondTheAllowedEdits) {
  const std::vector<RequestKey> left{1, 2, 3, 4};
  const std::vector<RequestKey> right{5, 6, 7, 8};
  EXPECT_FALSE(LongestCommonSubsequence(left, right, 7).has_value());
  EXPECT_TRUE(LongestCommonSubsequence(left, right, 8).has_value());
}

TEST(EditScriptTest, IsAsLongAsTheNaiveAnswerOnRandomSequences) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto draw = [&](unsigned bound) { return random() % bound; };
    std::vector<RequestKey> left(draw(40));
    std::vector<RequestKey> right(draw(40));
    const unsigned alphabet = 1 + draw(6);
    for (auto& key : left) key = draw(alphabet);
    for (auto& key : right) key = draw(alphabet);
    const auto matches = LongestCommonSubsequence(left, right, 80);
    ASSERT_TRUE(matches.has_value());
    ExpectCommonSubsequence(*matches, left, right);
    EXPECT_EQ(matches->size(), NaiveLength(left, right));
  }
}

}  // namespace
}  // namespace stalloc::planner
