// Sessions and processes: two on one directory, forks, the end.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "proto/codec/trace_reader.h"
#include "tests/runtime/session_fixture.h"

namespace stalloc {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Runs `body` in a child until the object is gone.
class Child {
 public:
  template <typename Body>
  explicit Child(Body&& body) {
    int ready[2];
    int done[2];
    EXPECT_EQ(pipe(ready) + pipe(done), 0);
    pid_ = fork();
    if (pid_ == 0) {
      const auto session = body();
      char byte = 0;
      (void)!write(ready[1], &byte, 1);
      close(done[1]);
      (void)!read(done[0], &byte, 1);
      if (session != nullptr) session->Finish();
      _exit(session == nullptr ? 1 : 0);
    }
    close(done[0]);
    release_ = done[1];
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~Child() {
    close(release_);
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
  int release_;
};

TEST_F(SessionTest, ATraceThatAnotherProcessWritesIsRefusedAndStaysWhole) {
  const Config config = ConfigFor(Mode::kTrace);
  {
    const Child other([&] {
      std::unique_ptr<Session> session = MustOpen(config);
      DeviceRuntime* const device = AddCpu(*session);
      device->Free(device->Allocate(kMiB, 0, Origin::kProgram));
      session->Flush();  // the place is taken by then
      return session;
    });
    ExpectRefused(config, AllOf(HasSubstr("cannot trace"), HasSubstr("process " + std::to_string(other.pid()))));
  }
  const absl::StatusOr<Trace> trace = ReadTrace(config.TracePath());
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_TRUE(trace->complete);
  EXPECT_EQ(trace->allocations, 1u);
  EXPECT_TRUE(MustOpen(config)->degraded().empty());  // the other one is gone
}

TEST_F(SessionTest, WhoHasAllocatedNothingLeavesAnothersSummary) {
  Write(SmallPlan());
  const Config config = ConfigFor(Mode::kAlloc);
  const std::unique_ptr<Session> session = MustOpen(config);
  AddCpu(*session);
  std::filesystem::create_directory(directory_.path() + "/log_output");
  std::ofstream(config.SummaryPath()) << "of a process that it has started";
  EXPECT_TRUE(session->WriteSummary().ok());
  session->Finish();
  EXPECT_EQ(ReadFile(config.SummaryPath()), "of a process that it has started");
}

TEST_F(SessionTest, AnUnwritableSummaryIsAWarningAndNoMore) {
  Write(SmallPlan());
  std::ofstream(directory_.path() + "/log_output") << "x";
  const std::unique_ptr<Session> session = MustOpen(ConfigFor(Mode::kAlloc));
  Iterate(*session, *AddCpu(*session), 0);
  EXPECT_FALSE(session->WriteSummary().ok());
  session->Finish();
  EXPECT_THAT(log_.text(), AllOf(HasSubstr("no summary"), HasSubstr("log_output")));
}

TEST_F(SessionTest, ProcessesThatWriteOneSummaryNeverTearIt) {
  Write(SmallPlan());
  const Config config = ConfigFor(Mode::kAlloc);
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    const std::unique_ptr<Session> session = MustOpen(config);
    Iterate(*session, *AddCpu(*session), 0);
    bool ok = true;
    for (int k = 0; k < 300; ++k) ok = session->WriteSummary().ok() && ok;
    _exit(ok ? 0 : 1);
  }
  int whole = 0;
  for (std::size_t gone = 0; gone < children.size();) {
    const std::string summary = ReadFile(config.SummaryPath());
    if (!summary.empty()) {
      ASSERT_THAT(summary, AllOf(StartsWith("{"), ::testing::EndsWith("]}\n")));
      ++whole;
    }
    int status = 0;
    if (waitpid(-1, &status, WNOHANG) > 0) {
      ++gone;
      EXPECT_EQ(status, 0);
    }
  }
  EXPECT_GT(whole, 0);
  EXPECT_THAT(directory_.Names(), ElementsAre("log_output/rank00000.summary.json", "output/plan/rank00000.plan"));
}

TEST_F(SessionTest, TheEndOfTheProcessEndsTheTraceAndWritesTheSummary) {
  const Config config = ConfigFor(Mode::kTrace);
  const pid_t child = fork();
  if (child == 0) {
    Session* const session = MustOpen(config).release();
    DeviceRuntime* const device = AddCpu(*session);
    (void)device->Allocate(kMiB, 0, Origin::kProgram);
    // A thread that allocates until the process is gone, as autograd's do.
    std::thread([device] {
      for (;;) device->Free(device->Allocate(kKiB, 0, Origin::kProgram));
    }).detach();
    std::exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const absl::StatusOr<Trace> trace = ReadTrace(config.TracePath());
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_TRUE(trace->complete) << trace->truncation;
  EXPECT_GE(trace->allocations, 1u);
  EXPECT_THAT(ReadFile(config.SummaryPath()), HasSubstr("\"mode\": \"Trace\""));
}

TEST_F(SessionTest, AForkedChildWritesNothingAndTheParentGoesOn) {
  Write(SmallPlan());
  const Config config = ConfigFor(Mode::kAlloc);
  Start(config);
  session_->Mark(IterationMark(0));
  const pid_t child = fork();
  if (child == 0) {
    session_->Mark(IterationMark(1));
    void* const pointer = device_->Allocate(100 * kKiB, 0, Origin::kProgram);
    const bool inert = !device_->Owns(pointer);
    device_->Free(pointer);
    session_->Flush();
    const bool wrote = !session_->WriteSummary().ok();
    session_->Finish();
    std::_Exit(inert && !wrote ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(std::filesystem::exists(config.SummaryPath()));
  void* const pointer = device_->Allocate(100 * kKiB, 0, Origin::kProgram);
  EXPECT_TRUE(device_->Owns(pointer));
  device_->Free(pointer);
  session_->Finish();
  EXPECT_THAT(ReadFile(config.SummaryPath()), HasSubstr("\"planned_hits\": 1"));
}

}  // namespace
}  // namespace stalloc
