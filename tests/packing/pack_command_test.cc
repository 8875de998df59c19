#include "planner/packing/pack_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "planner/packing/problem/csv.h"
#include "planner/packing/problem/plan_check.h"

namespace stalloc::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

class PackCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    options_.time_limit_s = 0.2;
  }

  void WriteInput(const std::string& text) {
    options_.input = (folder_ / "in.csv").string();
    std::ofstream(options_.input) << text;
  }

  int Run() { return RunPack(options_, out_, err_); }

  const fs::path folder_ = fs::path(testing::TempDir()) / "stalloc_pack_command_test";
  PackOptions options_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(PackCommandTest, PrintsJsonAndWritesAPackingThatPassesTheCheck) {
  WriteInput("id,lower,upper,size\n0,0,5,8\n1,4,9,6\n2,6,9,8\n");
  options_.json = true;
  options_.output = (folder_ / "out.csv").string();
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_THAT(
      out_.str(),
      HasSubstr("{\"blocks\": 3, \"lower_bound\": 14, \"proved_bound\": 14, \"height\": 14, \"ratio\": 1.0000000, "));
  EXPECT_THAT(out_.str(), HasSubstr("\"valid\": true, \"optimal\": true, \"solver\": \"portfolio\"}"));
  const auto written = ReadCsvFile(options_.output);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_TRUE(CheckPacking(written->problem, {written->offsets, 14}).ok());
}

TEST_F(PackCommandTest, FailsAndWritesNothingWhenTheCapacityIsTooSmall) {
  WriteInput("id,lower,upper,size\n0,0,5,8\n1,4,9,6\n");
  options_.capacity = 13;
  options_.output = (folder_ / "out.csv").string();
  EXPECT_EQ(Run(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("does not fit: capacity 13, height 14, lower bound 14"));
  EXPECT_FALSE(fs::exists(options_.output));
}

TEST_F(PackCommandTest, PacksAnEmptyInstance) {
  WriteInput("id,lower,upper,size\n");
  options_.json = true;
  EXPECT_EQ(Run(), 0) << err_.str();
  EXPECT_THAT(out_.str(),
              HasSubstr("\"blocks\": 0, \"lower_bound\": 0, \"proved_bound\": 0, \"height\": 0, \"ratio\": 1.0000000"));
}

TEST_F(PackCommandTest, ReportsBadInputOnceAndPrintsNoResult) {
  WriteInput("id,lower,upper,size\n0,0,5\n");
  EXPECT_EQ(Run(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("in.csv:2: expected 4 fields"));
  EXPECT_THAT(out_.str(), IsEmpty());
  options_.input = (folder_ / "absent.csv").string();
  EXPECT_EQ(Run(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("cannot open"));
}

TEST_F(PackCommandTest, RefusesAnUnwritableOutputAndBadOptions) {
  WriteInput("id,lower,upper,size\n0,0,5,8\n");
  options_.output = (folder_ / "absent" / "out.csv").string();
  EXPECT_EQ(Run(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("cannot create"));
  options_.threads = 0;
  EXPECT_EQ(Run(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("threads must be 1 or more: 0"));
}

TEST_F(PackCommandTest, TellsItsProgressAsARatio) {
  WriteInput("id,lower,upper,size\n0,0,5,8\n1,4,9,6\n");
  std::vector<double> ratios;
  options_.on_progress = [&](double ratio) { ratios.push_back(ratio); };
  EXPECT_EQ(Run(), 0);
  ASSERT_FALSE(ratios.empty());
  EXPECT_DOUBLE_EQ(ratios.back(), 1.0);
}

}  // namespace
}  // namespace stalloc::planner
