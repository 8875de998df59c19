// Session: every way in which opening can fail, lenient and strict; the files it writes; processes.
#include "allocator/runtime/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "allocator/driver/host_driver.h"
#include "proto/codec/plan_writer.h"
#include "proto/codec/trace_reader.h"
#include "tests/runtime/fake_upstream.h"
#include "tests/runtime/log_capture.h"
#include "tests/runtime/plan_builder.h"
#include "tests/runtime/temporary_directory.h"

namespace stalloc {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr Bytes kKiB = 1024;
constexpr Bytes kMiB = kKiB * kKiB;

class SessionTest : public ::testing::Test {
 protected:
  [[nodiscard]] Config ConfigFor(Mode mode) const {
    Config config;
    config.mode = mode;
    config.model_info_path = directory_.path();
    config.trace_fast = true;
    return config;
  }
  static Fingerprint Known() {
    Fingerprint fingerprint;
    fingerprint.torch_version = "2.11.0+cu130";
    fingerprint.command_line = {"python", "train.py"};
    return fingerprint;
  }
  static Fingerprint Cpu() {
    Fingerprint fingerprint;
    fingerprint.device_name = "cpu";
    return fingerprint;
  }
  static Plan PlanFor(const DevicePlan& device) {
    Plan plan;
    plan.fingerprint = Known();
    plan.fingerprint.world_size = 1;
    plan.fingerprint.device_name = "cpu";
    plan.devices.push_back(device);
    return plan;
  }
  static Plan SmallPlan() { return PlanFor(PlanBuilder().Each(100 * kKiB).Each(200 * kKiB).Build()); }
  void Write(const Plan& plan) {
    const absl::Status written = WritePlanFile(ConfigFor(Mode::kAlloc).PlanPath(), plan);
    ASSERT_TRUE(written.ok()) << written;
  }

  static Result<std::unique_ptr<Session>> Open(Config config) { return Session::Open({std::move(config), Known()}); }
  static std::unique_ptr<Session> MustOpen(Config config) {
    Result<std::unique_ptr<Session>> opened = Open(std::move(config));
    EXPECT_TRUE(opened.ok()) << opened.error();
    return opened.ok() ? std::move(opened).value() : nullptr;
  }
  DeviceRuntime* AddCpu(Session& session) {
    return session.AddDevice(kCpuDevice, &upstream_, driver_.get(), nullptr, Cpu());
  }

  // The rule for everything that stands in the way of planning or tracing: an error under STALLOC_STRICT=1, otherwise
  // one warning and a run that allocates all the same.
  void ExpectRefused(Config config, const ::testing::Matcher<const std::string&>& why) {
    config.strict = true;
    const Result<std::unique_ptr<Session>> strict = Open(config);
    ASSERT_FALSE(strict.ok());
    EXPECT_THAT(strict.error(), why);
    EXPECT_EQ(log_.text(), "");

    config.strict = false;
    const std::unique_ptr<Session> session = MustOpen(config);
    ASSERT_NE(session, nullptr);
    EXPECT_THAT(session->degraded(), why);
    EXPECT_THAT(log_.text(), AllOf(why, HasSubstr("the run goes on")));
    EXPECT_EQ(log_.lines(), 1u);
    DeviceRuntime* const device = AddCpu(*session);
    ASSERT_NE(device, nullptr);
    session->Mark(IterationMark(0));
    device->Free(device->Allocate(100 * kKiB, 0, false));
    EXPECT_EQ(device->Stats().upstream, 1u);
    EXPECT_EQ(log_.lines(), 1u);
    EXPECT_THAT(session->StatsJson(), HasSubstr("\"degraded\": \""));
  }

  LogCapture log_;
  TemporaryDirectory directory_;
  FakeUpstream upstream_;
  std::unique_ptr<HostDriver> driver_ = HostDriver::Create({.capacity = 0, .granularity = 64 * kKiB});
};

TEST_F(SessionTest, TorchModeDoesNothing) {
  {
    const std::unique_ptr<Session> session = MustOpen(ConfigFor(Mode::kTorch));
    session->Mark(IterationMark(0));
    session->Finish();
    EXPECT_TRUE(session->WriteSummary().ok());
  }
  EXPECT_THAT(directory_.Names(), IsEmpty());
}

// Trace ---------------------------------------------------------------------------------------------------------------

TEST_F(SessionTest, ATraceHasEventsMarksAndTheDevicesFingerprint) {
  const Config config = ConfigFor(Mode::kTrace);
  const std::unique_ptr<Session> session = MustOpen(config);
  DeviceRuntime* const device = AddCpu(*session);
  EXPECT_EQ(session->Device(kCpuDevice), device);
  EXPECT_EQ(session->Device(0), nullptr);
  EXPECT_EQ(AddCpu(*session), device);  // once a device
  session->Mark(IterationMark(7));
  void* const pointer = device->Allocate(5000, 0, false);
  device->Free(pointer);
  session->Finish();
  session->Finish();
  device->Free(device->Allocate(5000, 0, false));  // after the end: served, not recorded

  const absl::StatusOr<Trace> trace = ReadTrace(config.TracePath());
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_TRUE(trace->complete);
  EXPECT_EQ(trace->fingerprint.device_name, "cpu");
  EXPECT_EQ(trace->fingerprint.torch_version, "2.11.0+cu130");
  EXPECT_EQ(trace->fingerprint.world_size, 1u);
  EXPECT_EQ(trace->fingerprint.trace_mode, "fast");
  EXPECT_EQ(trace->fingerprint.stalloc_version, LibraryVersion());
  ASSERT_EQ(trace->marks.size(), 1u);
  EXPECT_EQ(trace->marks[0].index, 7);
  EXPECT_EQ(trace->allocations, 1u);
  EXPECT_THAT(directory_.Names(), ElementsAre("log_output/rank00000.summary.json", "trace/rank00000.trace"));
  const std::string summary = ReadFile(config.SummaryPath());
  EXPECT_THAT(summary, AllOf(HasSubstr("\"mode\": \"Trace\""), HasSubstr("\"degraded\": null"),
                             HasSubstr("\"iterations\": 1"), HasSubstr("\"events\": 4")));
}

TEST_F(SessionTest, ATraceBelowAFileIsRefused) {
  std::ofstream(directory_.path() + "/file") << "x";
  Config config = ConfigFor(Mode::kTrace);
  config.model_info_path = directory_.path() + "/file/run";
  ExpectRefused(config,
                AllOf(HasSubstr("cannot trace"), HasSubstr(directory_.path() + "/file"), HasSubstr("Not a directory")));
  EXPECT_THAT(directory_.Names(), ElementsAre("file"));
}

TEST_F(SessionTest, ATraceWhereNothingCanBeWrittenIsRefused) {
  Config config = ConfigFor(Mode::kTrace);
  config.model_info_path = "/proc/stalloc-session-test";
  ExpectRefused(config, AllOf(HasSubstr("cannot trace"), HasSubstr("/proc/stalloc-session-test")));
}

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
      device->Free(device->Allocate(kMiB, 0, false));
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

// Alloc ---------------------------------------------------------------------------------------------------------------

TEST_F(SessionTest, APlanIsServedAndTheSummaryAddsUp) {
  Write(SmallPlan());
  const Config config = ConfigFor(Mode::kAlloc);
  const std::unique_ptr<Session> session = MustOpen(config);
  DeviceRuntime* const device = AddCpu(*session);
  for (int i = 0; i < 3; ++i) {
    session->Mark(IterationMark(i));
    for (const Bytes bytes : {100 * kKiB, 200 * kKiB, 7 * kKiB}) device->Free(device->Allocate(bytes, 0, false));
  }
  EXPECT_EQ(session->degraded(), "");
  EXPECT_EQ(log_.text(), "");
  session->Finish();
  const std::string summary = ReadFile(config.SummaryPath());
  EXPECT_THAT(summary, StartsWith("{\"mode\": \"Alloc\", \"degraded\": null, \"rank\": 0, \"local_rank\": 0, "
                                  "\"world_size\": 1, "));
  EXPECT_THAT(summary,
              AllOf(HasSubstr("\"requests\": 9, \"planned_hits\": 6, \"dynamic_hits\": 0, \"heap_hits\": 0, "
                              "\"upstream\": 3, \"misses\": {\"unplanned\": 0, \"unknown_size\": 3, "),
                    HasSubstr("\"steady\": {\"requests\": 6, \"hits\": 4}"), HasSubstr("\"iterations\": 3"),
                    HasSubstr("\"peak_live_bytes\": 204800"), HasSubstr("\"arena_bytes\": 327680"),
                    HasSubstr("\"upstream_reserved_peak_bytes\": 7168"), HasSubstr("\"held_peak_bytes\": 334848"),
                    HasSubstr("\"efficiency\": 0.6116"), HasSubstr("\"devices\": [{\"device\": -1, ")));
}

TEST_F(SessionTest, AMissingPlanIsRefused) {
  ExpectRefused(ConfigFor(Mode::kAlloc), AllOf(HasSubstr("no usable plan"), HasSubstr("output/plan/rank00000.plan")));
  EXPECT_THAT(directory_.Names(), IsEmpty());
}

TEST_F(SessionTest, AMissingDirectoryIsRefused) {
  Config config = ConfigFor(Mode::kAlloc);
  config.model_info_path = directory_.path() + "/nowhere";
  ExpectRefused(config, AllOf(HasSubstr("no usable plan"), HasSubstr(directory_.path() + "/nowhere")));
  EXPECT_FALSE(std::filesystem::exists(config.model_info_path));
}

TEST_F(SessionTest, ATruncatedPlanIsRefused) {
  Write(SmallPlan());
  const std::string path = ConfigFor(Mode::kAlloc).PlanPath();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 7);
  ExpectRefused(ConfigFor(Mode::kAlloc), AllOf(HasSubstr("no usable plan"), HasSubstr(path)));
}

TEST_F(SessionTest, ACorruptPlanIsRefused) {
  Write(SmallPlan());
  const std::string path = ConfigFor(Mode::kAlloc).PlanPath();
  std::string bytes = ReadFile(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x20);
  std::ofstream(path, std::ios::binary) << bytes;
  ExpectRefused(ConfigFor(Mode::kAlloc), AllOf(HasSubstr("no usable plan"), HasSubstr(path)));
}

TEST_F(SessionTest, APlanOfAnotherRankIsRefused) {
  Plan plan = SmallPlan();
  plan.fingerprint.rank = 1;
  plan.fingerprint.world_size = 2;
  Write(plan);
  ExpectRefused(ConfigFor(Mode::kAlloc),
                HasSubstr("made for another run: rank: plan 1, this run 0; world size: plan 2, this run 1"));
}

TEST_F(SessionTest, APlanOfAnotherTorchIsRefused) {
  Plan plan = SmallPlan();
  plan.fingerprint.torch_version = "2.7.1";
  Write(plan);
  ExpectRefused(ConfigFor(Mode::kAlloc), HasSubstr("torch: plan 2.7.1, this run 2.11.0+cu130"));
}

TEST_F(SessionTest, APlanOfAnotherScriptIsUsedWithAWarning) {
  Plan plan = SmallPlan();
  plan.fingerprint.command_line = {"python", "pretrain.py"};
  Write(plan);
  const std::unique_ptr<Session> session = MustOpen(ConfigFor(Mode::kAlloc));
  EXPECT_EQ(session->degraded(), "");
  EXPECT_THAT(log_.text(), HasSubstr("script: plan pretrain.py, this run train.py"));
  session->Mark(IterationMark(0));
  EXPECT_EQ(log_.lines(), 1u);
}

// What is known only with the device: refused at AddDevice.
class DevicePolicyTest : public SessionTest {
 protected:
  void ExpectDeviceRefused(DeviceIndex index, const Fingerprint& device,
                           const ::testing::Matcher<const std::string&>& why) {
    Config config = ConfigFor(Mode::kAlloc);
    config.strict = true;
    const std::unique_ptr<Session> strict = MustOpen(config);
    EXPECT_EQ(strict->AddDevice(index, &upstream_, driver_.get(), nullptr, device), nullptr);
    EXPECT_THAT(strict->failure(), why);
    EXPECT_EQ(strict->Device(index), nullptr);

    config.strict = false;
    const std::unique_ptr<Session> session = MustOpen(config);
    DeviceRuntime* const runtime = session->AddDevice(index, &upstream_, driver_.get(), nullptr, device);
    ASSERT_NE(runtime, nullptr);
    EXPECT_EQ(session->failure(), "");
    EXPECT_THAT(session->degraded(), why);
    EXPECT_THAT(log_.text(), why);
    session->Mark(IterationMark(0));
    runtime->Free(runtime->Allocate(100 * kKiB, 0, false));
    EXPECT_EQ(runtime->Stats().planned_hits, 0u);
    // Every request has its reason.
    EXPECT_THAT(session->StatsJson(), HasSubstr("\"inactive\": 1"));
  }
};

TEST_F(DevicePolicyTest, APlanOfAnotherGpuIsRefused) {
  Plan plan = PlanFor(PlanBuilder(0).Each(100 * kKiB).Build());
  plan.fingerprint.device_name = "NVIDIA H200";
  plan.fingerprint.device_bytes = Bytes{140} << 30;
  Write(plan);
  Fingerprint gpu;
  gpu.device_name = "NVIDIA A100";
  gpu.device_bytes = Bytes{80} << 30;
  ExpectDeviceRefused(0, gpu,
                      AllOf(HasSubstr("device: plan NVIDIA H200, this run NVIDIA A100"), HasSubstr("device memory")));
}

TEST_F(DevicePolicyTest, AGpusPlanIsRefusedOnTheCpu) {
  Plan plan = PlanFor(PlanBuilder(0).Each(100 * kKiB).Build());
  plan.fingerprint.device_name = "NVIDIA H200";
  Write(plan);
  ExpectDeviceRefused(kCpuDevice, Cpu(), HasSubstr("device: plan cuda:0, this run cpu"));
}

TEST_F(DevicePolicyTest, AnArenaThatDoesNotFitIsRefused) {
  Write(PlanFor(PlanBuilder().Each(100 * kMiB).Build()));
  driver_ = HostDriver::Create({.capacity = 8 * kMiB, .granularity = 64 * kKiB});
  ExpectDeviceRefused(kCpuDevice, Cpu(), HasSubstr("needed 100.00 MiB, free 8.00 MiB of 8.00 MiB"));
}

// Files and processes -------------------------------------------------------------------------------------------------

TEST_F(SessionTest, AnUnwritableSummaryIsAWarningAndNoMore) {
  Write(SmallPlan());
  std::ofstream(directory_.path() + "/log_output") << "x";
  const std::unique_ptr<Session> session = MustOpen(ConfigFor(Mode::kAlloc));
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
    AddCpu(*session);
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
    (void)device->Allocate(kMiB, 0, false);
    // A thread that allocates until the process is gone, as autograd's do.
    std::thread([device] {
      for (;;) device->Free(device->Allocate(kKiB, 0, false));
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
  const std::unique_ptr<Session> session = MustOpen(config);
  DeviceRuntime* const device = AddCpu(*session);
  session->Mark(IterationMark(0));
  const pid_t child = fork();
  if (child == 0) {
    session->Mark(IterationMark(1));
    void* const pointer = device->Allocate(100 * kKiB, 0, false);
    const bool inert = !device->Owns(pointer);
    device->Free(pointer);
    session->Flush();
    const bool wrote = !session->WriteSummary().ok();
    session->Finish();
    std::_Exit(inert && !wrote ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(std::filesystem::exists(config.SummaryPath()));
  void* const pointer = device->Allocate(100 * kKiB, 0, false);
  EXPECT_TRUE(device->Owns(pointer));
  device->Free(pointer);
  session->Finish();
  EXPECT_THAT(ReadFile(config.SummaryPath()), HasSubstr("\"planned_hits\": 1"));
}

}  // namespace
}  // namespace stalloc
