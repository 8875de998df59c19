#include "bench/plan_quality/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stalloc::planner {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<Measurement> Three() {
  return {{.instance = "small",
           .solver = "a",
           .blocks = 2,
           .load_bound = 100,
           .finished = true,
           .height = 100,
           .proved_bound = 100,
           .seconds = 0.25,
           .improvements = {{0.125, 100}}},
          {.instance = "small", .solver = "b", .blocks = 2, .load_bound = 100, .seconds = 120},
          {.instance = "large",
           .solver = "b",
           .blocks = 3,
           .load_bound = 1000,
           .capacity = 1040,
           .finished = true,
           .height = 1050,
           .proved_bound = 1000,
           .seconds = 1}};
}

TEST(ResultsTest, MarkdownHasARowForEachInstanceAndAColumnForEachSolver) {
  EXPECT_EQ(ResultsMarkdown(Three()),
            "| instance | blocks | bound | a | b |\n"
            "|---|---:|---:|---:|---:|\n"
            "| small | 2 | 100 | 1.00000= (0.25) | did not finish in 120 s |\n"
            "| large | 3 | 1000 | - | 1.05000 (1.00) |\n");
}

TEST(ResultsTest, JsonHasFactsAndMeasurements) {
  const std::string json = ResultsJson(
      Three(), {.date = "2026-01-02", .version = "0.1.0", .compiler = "C 1", .command_line = "x --y"}, {.threads = 2});
  EXPECT_THAT(
      json, AllOf(HasSubstr("\"date\": \"2026-01-02\""), HasSubstr("\"threads\": 2"), HasSubstr("\"finished\": false"),
                  HasSubstr("\"capacity\": 1040"), HasSubstr("\"ratio\": 1.05")));
}

TEST(ResultsTest, TheCommandLineHasNoFolders) {
  EXPECT_EQ(CommandLineWithoutFolders({"--root=/home/me/x", "--input=/a/b.csv,c/d.csv", "--solver", "a,b", "../e.csv"}),
            "--root=x --input=b.csv,d.csv --solver a,b e.csv");
  EXPECT_THAT(CommandLineWithoutFolders({"--json", "/home/me/out.json"}), Not(HasSubstr("home")));
}

}  // namespace
}  // namespace stalloc::planner
