#include "allocator/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>
#include <vector>

namespace stalloc {
namespace {

using testing::EndsWith;
using testing::StartsWith;

std::vector<std::string>* captured = nullptr;

class LogTest : public testing::Test {
 protected:
  LogTest() {
    captured = &lines_;
    SetLogSink([](const char* line, std::size_t length) { captured->emplace_back(line, length); });
    SetLogLevel(LogSeverity::kDebug);
  }
  ~LogTest() override {
    SetLogSink(nullptr);
    SetLogLevel(kDefaultLogLevel);
  }

  std::vector<std::string> lines_;
};

TEST_F(LogTest, LineNamesRankAndSeverity) {
  SetLogRank(12);
  Log(LogSeverity::kWarning, "plan miss: expected %d bytes, found %s", 4096, "none");
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0], "stalloc[rank 12] W plan miss: expected 4096 bytes, found none\n");
}

TEST_F(LogTest, ALevelPrintsItselfAndWhatIsWorse) {
  const std::vector<LogSeverity> levels = {LogSeverity::kDebug, LogSeverity::kInfo, LogSeverity::kWarning,
                                           LogSeverity::kError, LogSeverity::kOff};
  for (std::size_t level = 0; level < levels.size(); ++level) {
    SetLogLevel(levels[level]);
    lines_.clear();
    for (const LogSeverity severity : levels) Log(severity, "line");
    EXPECT_EQ(lines_.size(), 4 - level) << "level " << level;
  }
}

TEST_F(LogTest, WhyTheProcessEndsIsAlwaysPrinted) {
  SetLogLevel(LogSeverity::kOff);
  LogFatal("check %d failed", 7);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_THAT(lines_[0], EndsWith(" E check 7 failed\n"));
}

TEST_F(LogTest, OfRanksThatAreAlikeTheFirstSpeaks) {
  SetLogLaunch(static_cast<std::uint64_t>(getpid()) << 20);
  // Forked before this rank has said anything, and let go behind it.
  int gate[2];
  ASSERT_EQ(pipe(gate), 0);
  const pid_t other = fork();
  if (other == 0) {
    char byte = 0;
    if (read(gate[0], &byte, 1) != 1) _exit(100);
    Log(LogSeverity::kWarning, "rank00004.plan: 2 of 11 are missing");
    Log(LogSeverity::kWarning, "its own: 5");
    Log(LogSeverity::kWarning, "its own: 6");
    Log(LogSeverity::kDebug, "rank00004.plan: 2 of 11 are missing");
    LogFatal("rank00004.plan: 2 of 11 are missing");
    _exit(static_cast<int>(lines_.size()));
  }
  Log(LogSeverity::kWarning, "rank00003.plan: %d of 10 are missing", 3);
  Log(LogSeverity::kWarning, "rank00003.plan: %d of 10 are missing", 4);
  EXPECT_EQ(lines_.size(), 2u) << "it may repeat itself";
  ASSERT_EQ(write(gate[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(other, &status, 0), other);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 4) << "all but the first";
  close(gate[0]);
  close(gate[1]);
  SetLogLaunch(0);
}

TEST_F(LogTest, LongLineIsCutAndSaysSo) {
  Log(LogSeverity::kInfo, "%s", std::string(5000, 'x').c_str());
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0].size(), kMaxLogLine);
  EXPECT_THAT(lines_[0], EndsWith("xxx...\n"));
}

TEST_F(LogTest, LineOfExactlyTheLimitIsNotCut) {
  Log(LogSeverity::kInfo, "%s", "");
  const std::size_t prefix = lines_[0].size() - 1;
  Log(LogSeverity::kInfo, "%s", std::string(kMaxLogLine - 1 - prefix, 'x').c_str());
  EXPECT_EQ(lines_[1].size(), kMaxLogLine);
  EXPECT_THAT(lines_[1], EndsWith("xxx\n"));
}

TEST_F(LogTest, ErrnoSurvives) {
  errno = EBUSY;
  Log(LogSeverity::kError, "something failed");
  EXPECT_EQ(errno, EBUSY);
}

TEST(LogThrottleTest, PassesTheFirstCallsThenEachDoubling) {
  LogThrottle throttle(3);
  std::vector<int> passed;
  for (int call = 1; call <= 40; ++call) {
    if (throttle.Pass()) passed.push_back(call);
  }
  EXPECT_THAT(passed, testing::ElementsAre(1, 2, 3, 4, 8, 16, 32));
  EXPECT_EQ(throttle.count(), 40u);
}

TEST(LogStderrTest, LinesGoToStderrWholeWhateverTheThreads) {
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) Log(LogSeverity::kError, "%s", std::string(80, 'y').c_str());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string output = testing::internal::GetCapturedStderr();
  std::size_t lines = 0;
  for (std::size_t at = 0; at < output.size(); ++lines) {
    const std::size_t end = output.find('\n', at);
    ASSERT_NE(end, std::string::npos);
    const std::string line = output.substr(at, end - at);
    EXPECT_THAT(line, StartsWith("stalloc[rank "));
    EXPECT_THAT(line, EndsWith("] E " + std::string(80, 'y')));
    at = end + 1;
  }
  EXPECT_EQ(lines, 400u);
}

}  // namespace
}  // namespace stalloc
