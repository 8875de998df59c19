#include "bench/plan_quality/measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/plan_quality/contenders.h"

namespace stalloc::planner {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Problem kTwo{{{.id = 7, .bytes = 8, .life = {0, 5}}, {.id = 9, .bytes = 6, .life = {4, 9}}}};

// Answers what it was told to, after two reports.
class Canned final : public Solver {
 public:
  explicit Canned(Packing packing) : packing_(std::move(packing)) {}
  [[nodiscard]] std::string_view name() const override { return "canned"; }
  [[nodiscard]] Packing Solve(const Problem&, const SolveOptions& options) override {
    options.on_progress(20);
    options.on_progress(packing_.height);
    return packing_;
  }

 private:
  Packing packing_;
};

TEST(MeasureTest, TellsRatioTimesAndImprovements) {
  Canned solver({{0, 8}, 15});
  const auto result = Measure("two", kTwo, solver, {.time_limit_s = 1});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->finished);
  EXPECT_EQ(result->load_bound, 14u);
  EXPECT_DOUBLE_EQ(result->ratio(), 15.0 / 14.0);
  EXPECT_FALSE(result->optimal());
  ASSERT_EQ(result->improvements.size(), 2u);
  EXPECT_LE(result->improvements[0].seconds, result->improvements[1].seconds);
  EXPECT_EQ(result->SecondsTo(20), result->improvements[0].seconds);
  EXPECT_EQ(result->SecondsTo(15), result->improvements[1].seconds);
  EXPECT_EQ(result->SecondsTo(14), std::nullopt);
}

TEST(MeasureTest, OptimalIsWhatReachesTheLoadBoundOrTheBoundThatTheSolverProved) {
  Canned at_load({{0, 8}, 14});
  EXPECT_TRUE(Measure("two", kTwo, at_load, {})->optimal());
  Canned proved({.offsets = {0, 8}, .height = 15, .proved_bound = 15});
  EXPECT_TRUE(Measure("two", kTwo, proved, {})->optimal());
  Canned less_proved({.offsets = {0, 8}, .height = 16, .proved_bound = 15});
  EXPECT_FALSE(Measure("two", kTwo, less_proved, {})->optimal());
}

TEST(MeasureTest, AnInvalidPackingIsAnErrorThatNamesSolverInstanceAndBlocks) {
  Canned solver({{0, 7}, 14});
  const auto result = Measure("two", kTwo, solver, {});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("two by canned"), HasSubstr("block 7"), HasSubstr("block 9")));
}

TEST(MeasureTest, NoOffsetsAreNoFinish) {
  Canned solver({});
  const auto result = Measure("two", kTwo, solver, {});
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->finished);
  EXPECT_FALSE(result->optimal());
  EXPECT_EQ(result->SecondsTo(1000), std::nullopt);
}

TEST(ContendersTest, AreChosenByNameEachOnce) {
  const auto two = MakeContenders({"online_best_fit", "portfolio"});
  ASSERT_TRUE(two.ok());
  ASSERT_EQ(two->size(), 2u);
  EXPECT_EQ((*two)[0].solver->name(), "online_best_fit");
  EXPECT_TRUE((*two)[0].by_clock);
  EXPECT_FALSE((*two)[1].by_clock);
  EXPECT_EQ(MakeContenders({})->size(), 3u);
  EXPECT_GT(MakeContenders({"all"})->size(), 3u);
  EXPECT_THAT(std::string(MakeContenders({"best"}).status().message()),
              AllOf(HasSubstr("online_best_fit"), HasSubstr("found best")));
  EXPECT_FALSE(MakeContenders({"portfolio", "portfolio"}).ok());
}

}  // namespace
}  // namespace stalloc::planner
