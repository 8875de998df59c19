// Session: every way in which opening can fail, lenient and strict; what a trace and a summary say.
#include "allocator/runtime/session.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "proto/codec/observed_text.h"
#include "proto/codec/trace_reader.h"
#include "tests/runtime/session_fixture.h"

namespace stalloc {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

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
  Start(config);
  EXPECT_EQ(session_->Device(kCpuDevice), device_);
  EXPECT_EQ(session_->Device(0), nullptr);
  EXPECT_EQ(AddCpu(*session_), device_);  // once a device
  session_->Mark(IterationMark(7));
  void* const pointer = device_->Allocate(5000, 0, Origin::kProgram);
  device_->Free(pointer);
  session_->Finish();
  session_->Finish();
  device_->Free(device_->Allocate(5000, 0, Origin::kProgram));  // after the end: served, not recorded

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
                             HasSubstr("\"iterations\": 1"), HasSubstr("\"events\": 5")));
}

TEST_F(SessionTest, ADeviceThatComesInAnIterationIsToldWhereTheRunIs) {
  Write(SmallPlan());
  const std::unique_ptr<Session> session = MustOpen(ConfigFor(Mode::kAlloc));
  session->Mark(IterationMark(0));
  session->Mark({.kind = MarkKind::kMicrobatch, .pass = Pass::kForward, .name = {}});
  DeviceRuntime* const device = AddCpu(*session);  // PyTorch makes a GPU's allocator at the first request
  for (const Bytes bytes : {100 * kKiB, 200 * kKiB}) device->Free(device->Allocate(bytes, 0, Origin::kProgram));
  EXPECT_EQ(device->Stats().planned_hits, 2u);
  EXPECT_EQ(device->Stats().iterations, 1u);
  session->Mark(IterationMark(1));
  EXPECT_EQ(device->Stats().iterations, 2u);
}

TEST_F(SessionTest, AStoppedTraceIsCompleteAndTheRunGoesOn) {
  const Config config = ConfigFor(Mode::kTrace);
  Start(config);
  session_->Mark(IterationMark(0));
  void* const kept = device_->Allocate(5000, 0, Origin::kProgram);
  session_->StopTrace();
  session_->StopTrace();
  const absl::StatusOr<Trace> trace = ReadTrace(config.TracePath());
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_TRUE(trace->complete);
  EXPECT_EQ(trace->allocations, 1u);

  session_->Mark(IterationMark(1));
  const int asked = upstream_.times_asked();
  device_->Free(device_->Allocate(7000, 0, Origin::kProgram));
  device_->Free(kept);
  EXPECT_EQ(upstream_.times_asked(), asked) << "for what would be recorded";
  session_->Flush();
  session_->Finish();
  EXPECT_EQ(ReadTrace(config.TracePath())->events.size(), trace->events.size()) << "nothing more is recorded";
  EXPECT_THAT(ReadFile(config.SummaryPath()), HasSubstr("\"iterations\": 2"));
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

// Alloc ---------------------------------------------------------------------------------------------------------------

// Two requests of three have slots.
std::string SummaryOfThreeIterations(Session& session, const Config& config, DeviceRuntime& device) {
  for (int i = 0; i < 3; ++i) {
    session.Mark(IterationMark(i));
    for (const Bytes bytes : {100 * kKiB, 200 * kKiB, 7 * kKiB})
      device.Free(device.Allocate(bytes, 0, Origin::kProgram));
  }
  EXPECT_EQ(session.degraded(), "");
  session.Finish();
  return ReadFile(config.SummaryPath());
}

TEST_F(SessionTest, APlanIsServedAndTheSummaryAddsUp) {
  Write(SmallPlan());
  const Config config = ConfigFor(Mode::kAlloc);
  const std::unique_ptr<Session> session = MustOpen(config);
  const std::string summary = SummaryOfThreeIterations(*session, config, *AddCpu(*session));
  EXPECT_EQ(log_.text(), "");
  EXPECT_THAT(summary, StartsWith("{\"mode\": \"Alloc\", \"degraded\": null, \"rank\": 0, \"local_rank\": 0, "
                                  "\"world_size\": 1, "));
  EXPECT_THAT(summary, AllOf(HasSubstr("\"requests\": 9, \"planned_hits\": 6, \"dynamic_hits\": 3, \"heap_hits\": 0, "
                                       "\"upstream\": 0, \"misses\": {\"unplanned\": 0, \"unknown_size\": 0, "),
                             HasSubstr("\"steady\": {\"requests\": 6, \"hits\": 4, \"fenced\": 0}"),
                             HasSubstr("\"iterations\": 3"), HasSubstr("\"peak_live_bytes\": 204800"),
                             HasSubstr("\"arena_bytes\": 327680"), HasSubstr("\"upstream_reserved_peak_bytes\": 0"),
                             HasSubstr("\"held_peak_bytes\": 327680"), HasSubstr("\"efficiency\": 0.625"),
                             HasSubstr("\"devices\": [{\"device\": -1, ")));
}

TEST_F(SessionTest, TheTopFiguresAreThoseOfTheDeviceWithMostRequestsWhicheverCameFirst) {
  Write(PlanFor(PlanBuilder(0).Each(100 * kKiB).Build()));
  const std::unique_ptr<Session> session = MustOpen(ConfigFor(Mode::kAlloc));
  FakeUpstream other_upstream;
  DeviceRuntime* const other = session->AddDevice(1, &other_upstream, driver_.get(), nullptr, Cpu());
  other->Free(other->Allocate(100 * kKiB, 0, Origin::kProgram));
  EXPECT_THAT(session->degraded(), HasSubstr("plan cuda:0, this run cuda:1"));
  session->Mark(IterationMark(0));
  DeviceRuntime* const planned = session->AddDevice(0, &upstream_, driver_.get(), nullptr, Cpu());
  for (int i = 1; i <= 3; ++i) {
    planned->Free(planned->Allocate(100 * kKiB, 0, Origin::kProgram));
    session->Mark(IterationMark(i));
  }
  const std::string json = session->StatsJson();
  EXPECT_THAT(json.substr(0, json.find("\"devices\"")), HasSubstr("\"requests\": 3, \"planned_hits\": 3"));
  EXPECT_THAT(json, AllOf(HasSubstr("{\"device\": 1, \"requests\": 1, \"planned_hits\": 0"),
                          HasSubstr("{\"device\": 0, \"requests\": 3, \"planned_hits\": 3")));
}

TEST_F(SessionTest, WithoutDynamicSpaceTheRestIsUpstreams) {
  Write(SmallPlan());
  Config config = ConfigFor(Mode::kAlloc);
  config.dynamic = "0";
  const std::unique_ptr<Session> session = MustOpen(config);
  EXPECT_THAT(SummaryOfThreeIterations(*session, config, *AddCpu(*session)),
              AllOf(HasSubstr("\"requests\": 9, \"planned_hits\": 6, \"dynamic_hits\": 0, \"heap_hits\": 0, "
                              "\"upstream\": 3, \"misses\": {\"unplanned\": 0, \"unknown_size\": 3, "),
                    HasSubstr("\"upstream_reserved_peak_bytes\": 7168"), HasSubstr("\"held_peak_bytes\": 334848"),
                    HasSubstr("\"efficiency\": 0.6116")));
}

TEST_F(SessionTest, WhatWasSeenOfEntriesThatVaryIsWrittenForTheNextPlan) {
  Write(PlanFor(PlanBuilder().Each(100 * kKiB).EachUnplanned(200 * kKiB).Each(300 * kKiB).Build()));
  Config config = ConfigFor(Mode::kAlloc);
  config.log_level = LogSeverity::kDebug;
  Start(config);
  for (const Bytes varying : {150 * kKiB, 250 * kKiB}) {
    session_->Mark(IterationMark(0));
    for (const Bytes bytes : {100 * kKiB, varying, 300 * kKiB}) {
      device_->Free(device_->Allocate(bytes, 0, Origin::kProgram));
    }
  }
  EXPECT_FALSE(std::filesystem::exists(config.ObservedPath()));
  session_->Finish();
  const Result<Observed> observed = DecodeObserved(ReadFile(config.ObservedPath()));
  ASSERT_TRUE(observed.ok()) << observed.error();
  EXPECT_EQ(observed.value(), (Observed{{{kCpuDevice, {0, 3}, {{1, 1, 150 * kKiB, 250 * kKiB, 1, 2, 0}}}}}));
  EXPECT_THAT(log_.text(), HasSubstr("1 entries of the plan were seen to differ from it: " + config.ObservedPath()));
  EXPECT_THAT(directory_.Names(), ElementsAre("log_output/rank00000.summary.json", "output/observed/rank00000.observed",
                                              "output/plan/rank00000.plan"));
}

TEST_F(SessionTest, NothingIsWrittenForTheNextPlanWhereNothingVaries) {
  Write(SmallPlan());
  const Config config = ConfigFor(Mode::kAlloc);
  const std::unique_ptr<Session> session = MustOpen(config);
  SummaryOfThreeIterations(*session, config, *AddCpu(*session));
  EXPECT_FALSE(std::filesystem::exists(config.ObservedPath()));
}

TEST_F(SessionTest, WhatWasSeenButCannotBeWrittenIsAWarning) {
  Write(PlanFor(PlanBuilder().Each(100 * kKiB).EachUnplanned(200 * kKiB).Build()));
  const Config config = ConfigFor(Mode::kAlloc);
  std::ofstream(directory_.path() + "/output/observed") << "x";
  Start(config);
  session_->Mark(IterationMark(0));
  for (const Bytes bytes : {100 * kKiB, 150 * kKiB}) device_->Free(device_->Allocate(bytes, 0, Origin::kProgram));
  session_->Finish();
  EXPECT_THAT(log_.text(), AllOf(HasSubstr("what was seen of the plan is not kept"), HasSubstr("/output/observed")));
  EXPECT_TRUE(std::filesystem::exists(config.SummaryPath()));
}

// Auto ----------------------------------------------------------------------------------------------------------------

TEST_F(SessionTest, AutoWithoutAPlanTracesAndTakesOneUp) {
  Write(SmallPlan());
  const Config config = ConfigFor(Mode::kAuto);
  const std::string running = SetPlanAside(config);
  Start(config);
  Iterate(0);
  session_->StopTrace();
  EXPECT_TRUE(ReadTrace(config.TracePath())->complete);
  ASSERT_TRUE(session_->TakePlan(running).ok());
  Iterate(1);
  EXPECT_EQ(device_->Stats().planned_hits, 2u);
  // The program marks its iterations, so that a hook's marks are none.
  Mark by_hook = IterationMark(2);
  by_hook.automatic = true;
  session_->Mark(by_hook);
  EXPECT_EQ(device_->Stats().engine.iterations, 2u);
  EXPECT_THAT(session_->StatsJson(), HasSubstr("\"since_plan\": {\"iterations\": 1, "));
}

// The loop goes on meanwhile, and nothing is read when the plan is taken up.
TEST_F(SessionTest, AutoPreparesAPlanOnAnotherThread) {
  Write(SmallPlan());
  const Config config = ConfigFor(Mode::kAuto);
  const std::string running = SetPlanAside(config);
  Start(config);
  std::atomic<bool> prepared{false};
  std::thread prepares([&] {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(session_->PreparePlan(running).ok());
    prepared = true;
  });
  int iterations = 0;
  while (!prepared) {
    Iterate(iterations++);
    EXPECT_THAT(session_->StatsJson(), HasSubstr("\"degraded\": null"));
  }
  prepares.join();
  std::filesystem::remove(running);
  ASSERT_TRUE(session_->TakePlan(running).ok());
  Iterate(iterations);
  EXPECT_EQ(device_->Stats().planned_hits, 2u);
  EXPECT_THAT(session_->TakePlan(running).error(), HasSubstr(running)) << "once";
}

TEST_F(SessionTest, AutoTracesAgain) {
  const Config config = ConfigFor(Mode::kAuto);
  const std::string again = directory_.path() + "/again/trace/rank00000.trace";
  Start(config);
  session_->Mark(IterationMark(0));
  void* const kept = device_->Allocate(100 * kKiB, 0, Origin::kProgram);
  session_->StopTrace();
  ASSERT_TRUE(session_->TraceAgain(again).ok());
  session_->Mark(IterationMark(1));
  device_->Free(kept);
  device_->Free(device_->Allocate(200 * kKiB, 0, Origin::kProgram));
  session_->Finish();
  for (const std::string& path : {config.TracePath(), again}) {
    const absl::StatusOr<Trace> trace = ReadTrace(path);
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_TRUE(trace->complete);
    EXPECT_EQ(trace->allocations, 1u);
    ASSERT_EQ(trace->marks.size(), 1u);
    EXPECT_EQ(trace->marks[0].index, path == again ? 1 : 0);
  }
}

TEST_F(SessionTest, OtherThreadsGoOnWhileItTracesAgain) {
  Start(ConfigFor(Mode::kAuto));
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!done) device_->Free(device_->Allocate(100 * kKiB, 0, Origin::kProgram));
    });
  }
  std::vector<std::string> paths;
  for (int i = 0; i < 4; ++i) {
    paths.push_back(directory_.path() + "/again" + std::to_string(i));
    ASSERT_TRUE(session_->TraceAgain(paths.back()).ok());
    session_->Mark(IterationMark(i));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  session_->Finish();
  for (const std::string& path : paths) {
    const absl::StatusOr<Trace> trace = ReadTrace(path);
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_TRUE(trace->complete);
    EXPECT_EQ(trace->marks.size(), 1u);
  }
  EXPECT_EQ(device_->Stats().unknown_frees, 0u);
}

TEST_F(SessionTest, AFileThatCannotBeMadeIsNoTrace) {
  Start(ConfigFor(Mode::kAuto));
  EXPECT_THAT(session_->TraceAgain(directory_.path()).error(), HasSubstr(directory_.path()));
  device_->Free(device_->Allocate(100 * kKiB, 0, Origin::kProgram));
  session_->Finish();
}

TEST_F(SessionTest, OnlyAutoTracesAgain) {
  const std::unique_ptr<Session> session = MustOpen(ConfigFor(Mode::kTrace));
  EXPECT_THAT(session->TraceAgain(directory_.path() + "/other.trace").error(), HasSubstr("STALLOC_MODE=Auto"));
}

TEST_F(SessionTest, AutoTakesNoPlanThatIsNotItsOwn) {
  Start(ConfigFor(Mode::kAuto));
  const std::string path = ConfigFor(Mode::kAuto).PlanPath();
  EXPECT_THAT(session_->TakePlan(path).error(), HasSubstr(path));
  Plan other = SmallPlan();
  other.fingerprint.rank = 1;
  Write(other);
  EXPECT_THAT(session_->TakePlan(path).error(), AllOf(HasSubstr("made for another run"), HasSubstr("rank: plan 1")));
  Plan elsewhere = SmallPlan();
  elsewhere.devices[0].device = 3;
  Write(elsewhere);
  EXPECT_THAT(session_->TakePlan(path).error(), HasSubstr("none of this run's devices"));
  EXPECT_THAT(session_->PreparePlan(path).error(), HasSubstr("none of this run's devices"));
  EXPECT_EQ(device_->arena(), nullptr);
}

TEST_F(SessionTest, AutoWithAPlanIsServedFromTheBeginning) {
  Write(SmallPlan());
  Start(ConfigFor(Mode::kAuto));
  Iterate(0);
  EXPECT_EQ(device_->Stats().planned_hits, 2u);
  EXPECT_FALSE(std::filesystem::exists(ConfigFor(Mode::kAuto).TracePath()));
}

TEST_F(SessionTest, APlanThatMayBeAnotherRunsServesAndIsTracedAsWell) {
  for (const PlanTrust trust : {PlanTrust::kChecked, PlanTrust::kGuessed}) {
    Write(SmallPlan());
    Config config = ConfigFor(Mode::kAuto);
    config.plan_trust = trust;
    const std::unique_ptr<Session> session = MustOpen(config);
    DeviceRuntime* const device = AddCpu(*session);
    EXPECT_EQ(device->Stats().arena_bytes == 0, trust == PlanTrust::kGuessed) << "that comes as requests need it";
    for (int i = 0; i < 3; ++i) Iterate(*session, *device, i);
    EXPECT_EQ(device->Stats().planned_hits, 6u);
    EXPECT_GT(device->Stats().arena_bytes, 0u);
    EXPECT_THAT(session->StatsJson(), HasSubstr("\"plan_loaded\": true"));
    session->StopTrace();
    const absl::StatusOr<Trace> trace = ReadTrace(config.TracePath());
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_EQ(trace->allocations, 6u);
    EXPECT_THAT(session->SignatureJson(), HasSubstr("\"requests\": 2, \"bytes\": 307200, \"growth\": 204800"));
    Iterate(*session, *device, 3);
    EXPECT_THAT(session->SignatureJson(), Not(HasSubstr("\"requests\": 4"))) << "with the trace it has ended";
    std::filesystem::remove(config.TracePath());
  }
}

TEST_F(SessionTest, APlanThatMayBeAnotherRunsServesWhereNothingCanBeTraced) {
  Write(SmallPlan());
  Config config = ConfigFor(Mode::kAuto);
  config.plan_trust = PlanTrust::kChecked;
  std::filesystem::create_directories(config.TracePath());  // in the way
  const std::unique_ptr<Session> session = MustOpen(config);
  EXPECT_EQ(session->degraded(), "");
  DeviceRuntime* const device = AddCpu(*session);
  Iterate(*session, *device, 0);
  EXPECT_EQ(device->Stats().planned_hits, 2u);
}

TEST_F(SessionTest, APlanThatIsDroppedServesNoMoreAndItsIdleMemoryGoesBack) {
  Write(SmallPlan());
  Config config = ConfigFor(Mode::kAuto);
  config.plan_trust = PlanTrust::kChecked;
  Start(config);
  session_->Mark(IterationMark(0));
  void* const kept = device_->Allocate(100 * kKiB, 0, Origin::kProgram);
  session_->DropPlan();
  session_->DropPlan();
  EXPECT_EQ(device_->Stats().arena_bytes, 128 * kKiB) << "where a block lives";
  void* const other = device_->Allocate(200 * kKiB, 0, Origin::kProgram);
  EXPECT_FALSE(device_->Owns(other));
  device_->Free(kept);
  device_->Free(other);
  session_->Mark(IterationMark(1));
  EXPECT_EQ(device_->Stats().arena_bytes, 0u);
  EXPECT_EQ(device_->Stats().unknown_frees, 0u);
  EXPECT_EQ(log_.text(), "") << "the package tells";
  ASSERT_TRUE(session_->TakePlan(config.PlanPath()).ok());
  Iterate(2);
  EXPECT_EQ(device_->Stats().planned_hits, 3u);
}

TEST_F(SessionTest, ARunThatMovesLeavesItsSummaryThere) {
  const std::string other = directory_.path() + "/other";
  Start(ConfigFor(Mode::kAuto));
  session_->MoveTo(other);
  device_->Free(device_->Allocate(100 * kKiB, 0, Origin::kProgram));
  EXPECT_TRUE(session_->WriteSummary().ok());
  EXPECT_FALSE(std::filesystem::exists(ConfigFor(Mode::kAuto).SummaryPath()));
  EXPECT_TRUE(std::filesystem::exists(other + "/log_output/rank00000.summary.json"));
  EXPECT_THAT(session_->StatsJson(), HasSubstr(other + "/trace/rank00000.trace"));
}

std::ptrdiff_t Allocations(const std::string& trace) {
  const absl::StatusOr<Trace> read = ReadTrace(trace);
  if (!read.ok()) return -1;
  const auto is_one = [](const TraceEvent& event) { return event.kind == EventKind::kAlloc; };
  return std::count_if(read->events.begin(), read->events.end(), is_one);
}

TEST_F(SessionTest, AutoTracesAnewWhereThePlanIsOfAnotherDevice) {
  Plan plan = SmallPlan();
  plan.fingerprint.device_name = "another";
  Write(plan);
  const Config config = ConfigFor(Mode::kAuto);
  const std::unique_ptr<Session> session = MustOpen(config);
  EXPECT_THAT(session->StatsJson(), HasSubstr("\"begun\": false"));
  DeviceRuntime* const device = AddCpu(*session);
  EXPECT_EQ(session->degraded(), "");
  EXPECT_THAT(session->StatsJson(), HasSubstr("\"begun\": true"));
  EXPECT_THAT(log_.text(), AllOf(HasSubstr("made for another device"), HasSubstr("made anew")));
  Iterate(*session, *device, 0);
  session->StopTrace();
  EXPECT_EQ(Allocations(config.TracePath()), 2);
  Write(SmallPlan());
  EXPECT_TRUE(session->TakePlan(config.PlanPath()).ok()) << "it awaits one";
}

TEST_F(SessionTest, AStartsOwnFolderHasItsTrace) {
  Config config = ConfigFor(Mode::kAuto);
  config.start_path = directory_.path() + "/starts/1";
  const std::unique_ptr<Session> session = MustOpen(config);
  Iterate(*session, *AddCpu(*session), 0);
  session->Finish();
  EXPECT_FALSE(std::filesystem::exists(config.TracePath()));
  EXPECT_EQ(Allocations(directory_.path() + "/starts/1/trace/rank00000.trace"), 2);
}

TEST_F(SessionTest, AutoMakesAPlanThatCannotBeReadAnew) {
  Write(SmallPlan());
  const Config config = ConfigFor(Mode::kAuto);
  std::filesystem::resize_file(config.PlanPath(), 10);
  const std::unique_ptr<Session> session = MustOpen(config);
  EXPECT_EQ(session->degraded(), "");
  EXPECT_THAT(log_.text(), AllOf(HasSubstr(config.PlanPath()), HasSubstr("made anew")));
  EXPECT_TRUE(std::filesystem::exists(config.TracePath()));
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

TEST_F(SessionTest, APlanOfAnotherRankServesARankThatAsksForIt) {
  Plan plan = SmallPlan();
  plan.fingerprint.rank = 0;
  plan.fingerprint.world_size = 2;
  Write(plan);
  Config config = ConfigFor(Mode::kAlloc);
  config.rank = 1;
  config.world_size = 2;
  config.plan_rank = 0;
  const std::unique_ptr<Session> session = MustOpen(config);
  EXPECT_THAT(SummaryOfThreeIterations(*session, config, *AddCpu(*session)), HasSubstr("\"rank\": 1"));
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
    runtime->Free(runtime->Allocate(100 * kKiB, 0, Origin::kProgram));
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

// A program that also computes on a device which the plan does not have.
TEST_F(DevicePolicyTest, AnotherDeviceThanThePlansIsSaidToBeUnplannedAndThePlanIsServed) {
  Write(SmallPlan());
  Config config = ConfigFor(Mode::kAlloc);
  config.strict = true;
  const std::unique_ptr<Session> session = MustOpen(config);
  DeviceRuntime* const planned = AddCpu(*session);
  ASSERT_NE(planned, nullptr);
  Fingerprint gpu;
  gpu.device_name = "NVIDIA T4";
  DeviceRuntime* const other = session->AddDevice(1, &upstream_, driver_.get(), nullptr, gpu);
  ASSERT_NE(other, nullptr) << session->failure();
  EXPECT_THAT(log_.text(), AllOf(HasSubstr("serves another device"), HasSubstr("not planned"),
                                 HasSubstr("device: plan cpu, this run cuda:1"), Not(HasSubstr("the run goes on"))));
  EXPECT_EQ(log_.lines(), 1u);
  EXPECT_EQ(session->degraded(), "");
  session->Mark(IterationMark(0));
  void* const here = planned->Allocate(100 * kKiB, 0, Origin::kProgram);
  void* const there = other->Allocate(100 * kKiB, 0, Origin::kProgram);
  EXPECT_TRUE(planned->Owns(here));
  EXPECT_FALSE(other->Owns(there));
  planned->Free(here);
  other->Free(there);
}

// A replica's plan was traced on the replica's GPU; this rank has another one of the same node.
TEST_F(DevicePolicyTest, AReplicasPlanOfOneGpuServesTheFirstGpuOfThisRank) {
  Plan plan = PlanFor(PlanBuilder(0).Each(100 * kKiB).Build());
  plan.fingerprint.world_size = 4;
  plan.fingerprint.device_name = "NVIDIA H200";
  Write(plan);
  Fingerprint gpu;
  gpu.device_name = "NVIDIA H200";
  Config config = ConfigFor(Mode::kAlloc);
  config.rank = 3;
  config.world_size = 4;
  config.plan_rank = 0;
  config.strict = true;
  const std::unique_ptr<Session> session = MustOpen(config);
  DeviceRuntime* const first = session->AddDevice(3, &upstream_, driver_.get(), nullptr, gpu);
  ASSERT_NE(first, nullptr) << session->failure();
  EXPECT_EQ(log_.text(), "");
  session->Mark(IterationMark(0));
  void* const planned = first->Allocate(100 * kKiB, 0, Origin::kProgram);
  EXPECT_TRUE(first->Owns(planned));
  first->Free(planned);
  DeviceRuntime* const second = session->AddDevice(0, &upstream_, driver_.get(), nullptr, gpu);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->arena(), nullptr) << "one plan, one device";
  EXPECT_THAT(log_.text(), HasSubstr("device: plan cuda:3, this run cuda:0"));
}

TEST_F(DevicePolicyTest, ARanksOwnPlanServesTheGpuThatItNamesAlone) {
  Plan plan = PlanFor(PlanBuilder(0).Each(100 * kKiB).Build());
  plan.fingerprint.device_name = "NVIDIA H200";
  Write(plan);
  Fingerprint gpu;
  gpu.device_name = "NVIDIA H200";
  ExpectDeviceRefused(3, gpu, HasSubstr("device: plan cuda:0, this run cuda:3"));
}

TEST_F(DevicePolicyTest, AnArenaThatDoesNotFitIsRefused) {
  Write(PlanFor(PlanBuilder().Each(100 * kMiB).Build()));
  driver_ = HostDriver::Create({.capacity = 8 * kMiB, .granularity = 64 * kKiB});
  ExpectDeviceRefused(kCpuDevice, Cpu(), HasSubstr("needed 100.00 MiB, free 8.00 MiB of 8.00 MiB"));
}

}  // namespace
}  // namespace stalloc
