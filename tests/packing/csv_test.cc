#include "planner/packing/problem/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace stalloc::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::StatusOr<CsvInstance> Read(const std::string& text) {
  std::istringstream input(text);
  return ReadCsv(input, "in.csv");
}

std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<CsvInstance> instance = Read(text);
  return instance.ok() ? "no error" : std::string(instance.status().message());
}

TEST(CsvTest, ReadsWhatMinimallocReads) {
  const auto instance = Read("id,lower,upper,size\n0,3,9,4\n7,-1,2,100\n");
  ASSERT_TRUE(instance.ok()) << instance.status();
  ASSERT_EQ(instance->problem.blocks.size(), 2u);
  EXPECT_EQ(instance->problem.blocks[1].id, 7u);
  EXPECT_EQ(instance->problem.blocks[1].life, (Lifetime{-1, 2}));
  EXPECT_EQ(instance->problem.blocks[1].bytes, 100u);
  EXPECT_THAT(instance->offsets, IsEmpty());
}

TEST(CsvTest, ReadsColumnsInAnyOrderAndDosLineEnds) {
  const auto instance = Read("size,offset,id,upper,lower\r\n4,64,0,9,3\r\n\r\n");
  ASSERT_TRUE(instance.ok()) << instance.status();
  EXPECT_EQ(instance->problem.blocks.at(0).bytes, 4u);
  EXPECT_EQ(instance->problem.blocks.at(0).life, (Lifetime{3, 9}));
  EXPECT_THAT(instance->offsets, ElementsAre(64u));
}

TEST(CsvTest, WritesAnOffsetColumnThatReadsBack) {
  const auto instance = Read("id,lower,upper,size\n0,3,9,4\n7,1,2,100\n");
  ASSERT_TRUE(instance.ok());
  std::ostringstream output;
  WriteCsv(instance->problem, {{512, 0}, 516}, output);
  EXPECT_EQ(output.str(), "id,lower,upper,size,offset\n0,3,9,4,512\n7,1,2,100,0\n");
  const auto again = Read(output.str());
  ASSERT_TRUE(again.ok());
  EXPECT_THAT(again->offsets, ElementsAre(512u, 0u));
}

TEST(CsvTest, AnErrorTellsFileLineExpectationAndValue) {
  EXPECT_EQ(ErrorOf("id,lower,upper,size\n0,1,2,4\n1,5,x,4\n"),
            "in.csv:3: expected a number in column 'upper', found 'x'");
}

TEST(CsvTest, RefusesEachKindOfBadInput) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("in.csv:1: expected a header"));
  EXPECT_THAT(ErrorOf("id,lower,upper\n"), HasSubstr("expected a column 'size'"));
  EXPECT_THAT(ErrorOf("id,lower,upper,size,colour\n"), HasSubstr("found 'colour'"));
  EXPECT_THAT(ErrorOf("id,lower,upper,size,id\n"), HasSubstr("'id' twice"));
  EXPECT_THAT(ErrorOf("id,lower,upper,size\n1,2,3\n"), HasSubstr("in.csv:2: expected 4 fields, found 3"));
  EXPECT_THAT(ErrorOf("id,lower,upper,size\n1,2,3,4,5\n"), HasSubstr("found 5"));
  EXPECT_THAT(ErrorOf("id,lower,upper,size\n-1,2,3,4\n"), HasSubstr("not negative in column 'id', found '-1'"));
  EXPECT_THAT(ErrorOf("id,lower,upper,size\n1,2,3,0\n"), HasSubstr("expected a size above 0"));
  EXPECT_THAT(ErrorOf("id,lower,upper,size\n1,3,3,4\n"), HasSubstr("expected lower < upper, found 3 and 3"));
  EXPECT_THAT(ErrorOf("id,lower,upper,size\n1,2,3,4\n1,5,6,4\n"), HasSubstr("found id 1 of line 2 again"));
  EXPECT_THAT(ErrorOf("id,lower,upper,size\n1,2,3,99999999999999999999\n"), HasSubstr("'99999999999999999999'"));
  EXPECT_THAT(ErrorOf("id,lower,upper,size\n1,2,3,4611686018427387904\n2,2,3,1\n"), HasSubstr("in.csv:3"));
}

TEST(CsvTest, AMissingFileIsNotFound) {
  const auto instance = ReadCsvFile("/nonexistent/a.csv");
  EXPECT_EQ(instance.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(instance.status().message()), HasSubstr("/nonexistent/a.csv"));
}

TEST(CsvTest, AFailedWriteLeavesNothingBehindAndTheOldFileAlone) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / "stalloc_csv_test";
  fs::remove_all(folder);
  fs::create_directories(folder / "out.csv");  // a directory cannot be replaced by a file
  const Problem problem{{{.id = 0, .bytes = 4, .life = {0, 1}}}};
  EXPECT_FALSE(WriteCsvFile(problem, {{0}, 4}, (folder / "out.csv").string()).ok());
  EXPECT_FALSE(WriteCsvFile(problem, {{0}, 4}, (folder / "absent" / "out.csv").string()).ok());
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder)) ++entries;
  EXPECT_EQ(entries, 1u);
  EXPECT_TRUE(WriteCsvFile(problem, {{0}, 4}, (folder / "good.csv").string()).ok());
  EXPECT_TRUE(ReadCsvFile((folder / "good.csv").string()).ok());
}

}  // namespace
}  // namespace stalloc::planner
