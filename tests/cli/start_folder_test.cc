// A start's planner: what it leaves where, and that nothing of another process's is touched. Its end of a living
// process is tested from Python (test_starts.py).
#include "planner/cli/start_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "proto/codec/plan_reader.h"
#include "tests/cli/plannable_trace.h"
#include "tests/cli/planner_process.h"

namespace stalloc::planner {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr pid_t kEnded = 1;  // no test is a child of the first process

class StartFolderTest : public testing::Test {
 protected:
  // As the package has made it: trace/rank00000.trace, below starts/a.
  void MakeStart() const {
    run_.WriteTrace(0, MakeTrace());
    std::filesystem::create_directories(run_.Path("starts/a"));
    std::filesystem::rename(run_.Path("trace"), run_.Path("starts/a/trace"));
    run_.WriteFile("starts/a/log_output/rank00000.planner.log", "it said");
    run_.WriteFile("starts/a/output/plan/rank00000.signature.json", "it requests");
    run_.WriteFile("starts/b/lock", "another's");
  }
  [[nodiscard]] ProcessResult Plan(const std::string& folder, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"plan", run_.Path(folder), "--next-start=" + std::to_string(kEnded)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_.Run(arguments);
  }

  RunFolder run_;
};

TEST_F(StartFolderTest, WhatIsPlannedForTheNextStartGoesToTheRunAndTheFolderGoes) {
  MakeStart();
  const ProcessResult result = Plan("starts/a", {"--rank=0", "--running", "--time-limit=1", "--nice=3"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(run_.Files(), ElementsAre(".lock", "log_output/rank00000.planner.log", "output/plan/rank00000.plan",
                                        "output/plan/rank00000.running.plan", "output/plan/rank00000.signature.json",
                                        "output/trace_analysis/rank00000.json", "output/trace_analysis/rank00000.txt",
                                        "starts/b/lock", "trace/rank00000.trace"));
  for (const char* plan : {"output/plan/rank00000.plan", "output/plan/rank00000.running.plan"}) {
    EXPECT_TRUE(ReadPlan(run_.Path(plan)).ok()) << plan;
  }
  EXPECT_EQ(run_.ReadFile("output/plan/rank00000.signature.json"), "it requests");
  EXPECT_EQ(run_.ReadFile("log_output/rank00000.planner.log"), "it said");
}

TEST_F(StartFolderTest, ATraceThatAnotherProcessWritesStays) {
  MakeStart();
  run_.WriteFile("trace/rank00000.trace", "another's");
  const int held = open(run_.Path("trace/rank00000.trace").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  EXPECT_EQ(Plan("starts/a", {"--rank=0"}).exit_code, 0);
  EXPECT_EQ(run_.ReadFile("trace/rank00000.trace"), "another's");
  EXPECT_TRUE(run_.Exists("output/plan/rank00000.plan"));
  close(held);
}

TEST_F(StartFolderTest, WhatCannotBePlannedLeavesAnEarlierPlan) {
  run_.WriteFile("output/plan/rank00000.plan", "earlier");
  run_.WriteFile("starts/a/trace/rank00000.trace", "no trace");
  const ProcessResult result = Plan("starts/a", {"--rank=0", "--running"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("rank00000.trace"));
  EXPECT_EQ(run_.ReadFile("output/plan/rank00000.plan"), "earlier");
  EXPECT_FALSE(run_.Exists("starts/a"));
}

TEST_F(StartFolderTest, AFolderThatIsNoStartsIsWrongUsageAndStays) {
  run_.WriteTrace(0, MakeTrace());
  const ProcessResult result = Plan("", {"--rank=0"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("needs the folder of a start, RUN/starts/NAME"));
  EXPECT_THAT(run_.Files(), ElementsAre("trace/rank00000.trace"));
  EXPECT_EQ(run_.Run({"plan", run_.path(), "--nice=20"}).exit_code, 2);
}

TEST_F(StartFolderTest, PublishersWaitForEachOther) {
  MakeStart();
  const int gate = open(run_.Path(".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  ASSERT_EQ(flock(gate, LOCK_EX), 0);
  std::thread other([&] { EXPECT_EQ(Plan("starts/a", {"--rank=0"}).exit_code, 0); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_FALSE(run_.Exists("output/plan/rank00000.plan"));
  EXPECT_FALSE(run_.Exists("trace/rank00000.trace"));
  close(gate);
  other.join();
  EXPECT_TRUE(run_.Exists("output/plan/rank00000.plan"));
}

TEST(OrphanWatchTest, TellsOfTheProcessesEndAndOfAStop) {
  std::atomic<bool> stop{false};
  const OrphanWatch lives(getppid(), &stop);
  const OrphanWatch ended(kEnded, &stop);
  const auto await = [](const std::atomic<bool>& flag) {
    for (int i = 0; i < 100 && !flag; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return flag.load();
  };
  EXPECT_TRUE(await(*ended.flag()));
  EXPECT_FALSE(*lives.flag());
  stop = true;
  EXPECT_TRUE(await(*lives.flag()));
}

}  // namespace
}  // namespace stalloc::planner
