#include "planner/packing/plan_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/packing/naive.h"

namespace stalloc::planner {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

Problem TwoThatMeet() { return {{{.id = 7, .bytes = 8, .life = {0, 5}}, {.id = 9, .bytes = 6, .life = {4, 9}}}}; }

TEST(CheckPackingTest, AcceptsBlocksThatTouchInSpaceOrInTime) {
  EXPECT_TRUE(CheckPacking(TwoThatMeet(), {{0, 8}, 14}).ok());
  const Problem in_turn{{{.id = 0, .bytes = 8, .life = {0, 5}}, {.id = 1, .bytes = 6, .life = {5, 9}}}};
  EXPECT_TRUE(CheckPacking(in_turn, {{0, 0}, 8}).ok());
}

TEST(CheckPackingTest, NamesBothBlocksThatOverlap) {
  const absl::Status status = CheckPacking(TwoThatMeet(), {{0, 7}, 13});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("block 7 at [0, 8) alive [0, 5)"), HasSubstr("block 9 at [7, 13) alive [4, 9)")));
}

TEST(CheckPackingTest, FindsAnOverlapInTheSecondLifetimeOnly) {
  const Problem problem{
      {{.id = 1, .bytes = 8, .life = {8, 10}, .second_life = Lifetime{0, 2}}, {.id = 2, .bytes = 6, .life = {1, 4}}}};
  EXPECT_TRUE(CheckPacking(problem, {{0, 8}, 14}).ok());
  EXPECT_THAT(Message(CheckPacking(problem, {{0, 2}, 8})), HasSubstr("overlap"));
}

TEST(CheckPackingTest, RefusesAMisalignedOffset) {
  const Problem problem{{{.id = 3, .bytes = 8, .life = {0, 5}, .alignment = 512}}};
  EXPECT_TRUE(CheckPacking(problem, {{1024}, 2000}).ok());
  EXPECT_THAT(Message(CheckPacking(problem, {{256}, 2000})), HasSubstr("block 3 is misaligned"));
}

TEST(CheckPackingTest, RefusesAHeightThatIsTooSmall) {
  EXPECT_THAT(Message(CheckPacking(TwoThatMeet(), {{0, 8}, 13})), HasSubstr("height 13 is too small"));
}

TEST(CheckPackingTest, RefusesAnotherNumberOfOffsets) {
  EXPECT_THAT(Message(CheckPacking(TwoThatMeet(), {{0}, 14})), HasSubstr("blocks 2, offsets 1"));
}

TEST(CheckPackingTest, RefusesAnOffsetWhoseEndOverflows) {
  EXPECT_THAT(Message(CheckPacking(TwoThatMeet(), {{0, ~Offset{0} - 2}, ~Bytes{0}})), HasSubstr("address space"));
}

TEST(CheckPackingTest, RefusesLifetimesThatAreEmptyOrOverlapEachOther) {
  const Problem empty{{{.id = 1, .bytes = 8, .life = {5, 5}}}};
  EXPECT_THAT(Message(CheckPacking(empty, {{0}, 8})), HasSubstr("empty lifetime"));
  const Problem twice{{{.id = 1, .bytes = 8, .life = {0, 5}, .second_life = Lifetime{4, 6}}}};
  EXPECT_THAT(Message(CheckPacking(twice, {{0}, 8})), HasSubstr("lifetimes that overlap"));
}

TEST(CheckPackingTest, AgreesWithAllPairsOnRandomOffsets) {
  constexpr std::uint64_t kSeed = 31;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  int valid = 0;
  for (int round = 0; round < 4000; ++round) {
    const Problem problem =
        RandomProblem({.blocks = 2 + round % 7, .ticks = 30, .max_bytes = 8, .second_lives = round % 2 == 0}, random);
    Packing packing{std::vector<Offset>(problem.blocks.size()), 60};
    for (Offset& offset : packing.offsets) offset = random() % 60;
    const bool expected = NaiveIsValid(problem, packing);
    valid += expected ? 1 : 0;
    ASSERT_EQ(CheckPacking(problem, packing).ok(), expected) << "round " << round;
  }
  EXPECT_GT(valid, 200) << "the rounds must see both answers";
  EXPECT_LT(valid, 3800);
}

}  // namespace
}  // namespace stalloc::planner
