// The report of an out-of-memory error and its parts. That it is JSON, and what a program sees, tests/torch shows.
#include "allocator/runtime/oom_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <thread>

#include "allocator/driver/host_driver.h"
#include "allocator/runtime/report_file.h"
#include "proto/model/json_writer.h"
#include "tests/base/test_files.h"
#include "tests/record/heap_counter.h"
#include "tests/runtime/fake_upstream.h"
#include "tests/runtime/log_capture.h"
#include "tests/runtime/plan_builder.h"

namespace stalloc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// ReportFile ----------------------------------------------------------------------------------------------------------

TEST(ReportFileTest, WritesAllOrNothingWithoutHeapMemory) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/report";
  const std::uint64_t before = HeapRequestsOfThisThread();
  {
    ReportFile file(path.c_str());
    for (int i = 0; i < 50000; ++i) file += "line\n";
    EXPECT_FALSE(std::ifstream(path).good());
    EXPECT_EQ(file.Commit(), 0);
  }
  { ReportFile dropped((path + "2").c_str()); }
  EXPECT_LE(HeapRequestsOfThisThread() - before, 4u) << "the test's own strings and streams";
  EXPECT_EQ(Contents(path).size(), 250000u);
  EXPECT_FALSE(std::ifstream(path + "2").good());
}

TEST(ReportFileTest, KeepsTheFirstError) {
  ReportFile file("/nonexistent/report");
  file += "text";
  EXPECT_EQ(file.Commit(), ENOENT);
  ReportFile longer(std::string(2000, 'a').c_str());
  longer += std::string(100000, 'b');
  EXPECT_EQ(longer.Commit(), ENAMETOOLONG);
}

// RecentEvents --------------------------------------------------------------------------------------------------------

TEST(RecentEventsTest, KeepsTheLastOnesInOrder) {
  RecentEvents events;
  auto copy = std::make_unique<std::array<RecentEvent, RecentEvents::kCapacity>>();
  EXPECT_EQ(events.Copy(*copy), 0u);
  for (std::uint64_t i = 0; i < RecentEvents::kCapacity + 10; ++i) {
    events.Add({.time_ns = static_cast<std::int64_t>(i),
                .address = i * 512,
                .bytes = i,
                .stream = 7,
                .kind = RecentEvent::Kind::kFreed,
                .detail = 258});
  }
  ASSERT_EQ(events.Copy(*copy), RecentEvents::kCapacity);
  for (std::uint64_t i = 0; i < RecentEvents::kCapacity; ++i) {
    const RecentEvent& event = (*copy)[i];
    ASSERT_EQ(event.bytes, i + 10);
    ASSERT_EQ(event.address, (i + 10) * 512);
    ASSERT_EQ(event.stream, 7u);
    ASSERT_EQ(event.kind, RecentEvent::Kind::kFreed);
    ASSERT_EQ(event.detail, 258u);
  }
}

TEST(RecentEventsTest, AReaderSeesWholeEventsWhileThreadsWrite) {
  RecentEvents events;
  std::atomic<bool> done{false};
  std::vector<std::thread> writers;
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    writers.emplace_back([&, seed] {
      for (std::uint64_t i = 0; !done.load(std::memory_order_relaxed); ++i) {
        events.Add({.address = i, .bytes = i * seed, .stream = seed});
      }
    });
  }
  auto copy = std::make_unique<std::array<RecentEvent, RecentEvents::kCapacity>>();
  int broken = 0;
  for (int round = 0; round < 200; ++round) {
    const std::size_t count = events.Copy(*copy);
    for (std::size_t i = 0; i < count; ++i)
      broken += (*copy)[i].bytes == (*copy)[i].address * (*copy)[i].stream ? 0 : 1;
  }
  done.store(true);
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(broken, 0);
}

// PlanEntries ---------------------------------------------------------------------------------------------------------

TEST(PlanEntriesTest, NamesTheRequestsOfAPlace) {
  const DevicePlan plan = PlanBuilder().Persistent(kMiB).Each(2 * kMiB).EachUnplanned(kMiB).Each(kMiB).Build();
  const PlanEntries entries(plan);
  ASSERT_EQ(entries.At(0, kMiB).size(), 1u);
  EXPECT_EQ(entries.At(0, kMiB)[0].script, 0u);
  ASSERT_EQ(entries.At(3 * kMiB, kMiB).size(), 1u);
  EXPECT_EQ(entries.At(3 * kMiB, kMiB)[0].script, 1u);
  EXPECT_EQ(entries.At(3 * kMiB, kMiB)[0].entry, 2u);
  EXPECT_TRUE(entries.At(kMiB, kMiB).empty());
}

// Reports -------------------------------------------------------------------------------------------------------------

class OomReportTest : public ::testing::Test {
 protected:
  void Start(const DevicePlan& plan) {
    plan_ = plan;
    StartRuntime({.plan = &plan_, .reports = &reports_});
  }
  void StartRuntime(DeviceRuntime::Parts parts) {
    driver_ = HostDriver::Create({.capacity = 8 * kMiB, .granularity = 64 * kKiB});
    parts.device = kCpuDevice;
    parts.upstream = &upstream_;
    parts.driver = driver_.get();
    runtime_ = std::make_unique<DeviceRuntime>(parts);
  }
  void* Allocate(Bytes bytes, StreamHandle stream = 0) { return runtime_->Allocate(bytes, stream, Origin::kProgram); }
  static std::string Joined(const std::vector<std::string>& lines) {
    std::string all;
    for (const std::string& line : lines) all += line + "\n";
    return all;
  }
  [[nodiscard]] std::string ReportPath(int number) const {
    return directory_.path() + "/rank00003.pid" + std::to_string(getpid()) + ".oom" + std::to_string(number) + ".json";
  }

  LogCapture log_;
  TemporaryDirectory directory_;
  OomReports reports_{directory_.path(), 3};
  FakeUpstream upstream_;
  DevicePlan plan_;
  std::unique_ptr<HostDriver> driver_;
  std::unique_ptr<DeviceRuntime> runtime_;
};

TEST_F(OomReportTest, HasBlocksEventsAndThePlacesOfBoth) {
  Start(PlanBuilder().Persistent(kMiB).Each(2 * kMiB).Each(kMiB).Build());
  void* const weights = Allocate(kMiB);
  runtime_->OnMark(IterationMark(0));
  void* const other = Allocate(5 * kKiB, 0);
  void* const planned = Allocate(2 * kMiB);
  ASSERT_TRUE(runtime_->Owns(planned));
  runtime_->Free(planned);
  const std::string text = Joined(runtime_->ExplainOutOfMemory(77 * kMiB, 9));
  EXPECT_THAT(text, HasSubstr("the plan's arena holds 4.00 MiB"));
  EXPECT_THAT(text, HasSubstr("1.00 MiB in 1 live blocks, 3.00 MiB idle between them (3.00 MiB in one piece)"));
  EXPECT_THAT(text, HasSubstr("requested 77.00 MiB, the plan expects 1.00 MiB next (request 2 of 2)"));
  EXPECT_THAT(text, HasSubstr("2 of 3 requests were served from the plan, 1 were not (unknown_size 1)"));
  EXPECT_THAT(text, HasSubstr("Report: " + ReportPath(1)));
  const std::string report = Contents(ReportPath(1));
  EXPECT_THAT(
      report,
      AllOf(HasSubstr("\"request\": {\"bytes\": 80740352, \"stream\": 9}"),
            HasSubstr("\"device_memory\": {\"free\": 4194304, \"total\": 8388608}"),
            HasSubstr("\"expected_bytes\": 1048576"), HasSubstr("\"script\": 1, \"phase\": -1"),
            HasSubstr("\"from\": \"arena\", \"pending\": false, \"number\": 0, \"phase\": \"set-up\", "
                      "\"candidates\": 1, \"entries\": [[0, 0]]"),
            Not(HasSubstr("\"bytes\": 2097152, \"requested\"")) /* `planned` is no more */,
            HasSubstr("\"bytes\": 5120, \"stream\": 0, \"from\": \"upstream\", \"number\": 1, \"requested\": 5120, "
                      "\"phase\": \"iter 0\"}"),
            HasSubstr("\"live_blocks_omitted\": 0"), HasSubstr("\"from\": \"upstream\", \"miss\": \"unknown_size\""),
            HasSubstr("\"event\": \"mark\", \"mark\": \"iteration\", \"edge\": \"begin\""),
            HasSubstr("\"event\": \"freed\""), HasSubstr("\"event\": \"out_of_memory\"")));
  runtime_->Free(weights);
  runtime_->Free(other);
}

TEST_F(OomReportTest, ARunIsUnlikeItsPlanWhereSlotsAreMissedNotWhereThePlanHasNone) {
  const auto told_after = [this](Bytes first, Bytes second) {
    PlanBuilder plan;
    plan.Each(kMiB).EachUnplanned(8 * kKiB).EachUnplanned(8 * kKiB).EachUnplanned(8 * kKiB);
    runtime_.reset();  // before its driver
    Start(plan.Build());
    for (int iteration = 0; iteration < 3; ++iteration) {
      runtime_->OnMark(IterationMark(iteration));
      for (const Bytes bytes : {first, second, second, second}) runtime_->Free(Allocate(bytes));
    }
    return Joined(runtime_->ExplainOutOfMemory(77 * kMiB, 0));
  };
  EXPECT_THAT(told_after(kMiB, 8 * kKiB), Not(HasSubstr("unlike its plan"))) << "one of four has a slot, and gets it";
  EXPECT_THAT(told_after(3 * kKiB, 8 * kKiB), HasSubstr("this run is unlike its plan"));
}

TEST_F(OomReportTest, SaysWhatWouldFitBetweenTheBlocks) {
  Start(PlanBuilder().Each(kMiB).Each(kMiB).Each(kMiB).Each(kMiB).Build());
  runtime_->OnMark(IterationMark(0));
  void* blocks[4];
  for (void*& block : blocks) block = Allocate(kMiB);
  const auto told = [this] { return Joined(runtime_->ExplainOutOfMemory(77 * kMiB, 0)); };
  EXPECT_THAT(told(), HasSubstr("in 4 live blocks, 0 B idle between them (0 B in one piece)"));
  runtime_->Free(blocks[1]);
  runtime_->Free(blocks[3]);
  EXPECT_THAT(told(), HasSubstr("2.00 MiB idle between them (1.00 MiB in one piece)"));
  runtime_->Free(blocks[2]);
  EXPECT_THAT(told(), HasSubstr("3.00 MiB idle between them (3.00 MiB in one piece)"));
  runtime_->EmptyCache();
  EXPECT_THAT(told(), HasSubstr("holds 1.00 MiB of this device")) << "what went back is no room between blocks";
  EXPECT_THAT(told(), HasSubstr("0 B idle between them (0 B in one piece)"));
  runtime_->Free(blocks[0]);
}

TEST_F(OomReportTest, TakesNoHeapMemory) {
  Start(PlanBuilder().Each(kMiB).Build());
  runtime_->OnMark(IterationMark(0));
  void* const block = Allocate(kMiB);
  OutOfMemoryFacts facts;
  facts.requested = 5;
  facts.plan = &plan_;
  facts.engine = runtime_->engine();
  facts.arena = runtime_->arena();
  facts.position = runtime_->engine()->Position();
  const std::uint64_t before = HeapRequestsOfThisThread();
  const char* const path = reports_.Write(facts);
  EXPECT_EQ(HeapRequestsOfThisThread() - before, 0u);
  EXPECT_EQ(path, ReportPath(1));
  runtime_->Free(block);
}

TEST_F(OomReportTest, AnExactTracesBlocksAreThereWithWhereTheyWereAskedFor) {
  Result<std::unique_ptr<Recorder>> recorder =
      Recorder::Open({.path = directory_.path() + "/trace", .fingerprint = {}});
  ASSERT_TRUE(recorder.ok());
  StartRuntime({.recorder = recorder.value().get(), .exact = true, .reports = &reports_});
  void* const weights = Allocate(kMiB);
  runtime_->OnMark(IterationMark(3));
  runtime_->OnMark({.kind = MarkKind::kMicrobatch, .pass = Pass::kForward, .chunk = 1, .name = ""});
  runtime_->OnMark({.kind = MarkKind::kLayer, .pass = Pass::kForward, .name = "Net.up"});
  void* const activation = Allocate(5000);
  runtime_->Free(Allocate(2 * kMiB));
  runtime_->OnMark({.kind = MarkKind::kOptimizer, .name = ""});
  EXPECT_THAT(Joined(runtime_->ExplainOutOfMemory(77 * kMiB, 0)), HasSubstr("the exact trace's heap holds"));
  EXPECT_THAT(Contents(ReportPath(1)),
              AllOf(HasSubstr("\"phase\": \"iter 3, optimizer\", \"plan\": null"),
                    HasSubstr("\"bytes\": 1048576, \"requested\": 1048576, \"stream\": 0, \"from\": \"heap\", "
                              "\"number\": 0, \"phase\": \"set-up\"}"),
                    HasSubstr("\"bytes\": 5120, \"requested\": 5000, \"stream\": 0, \"from\": \"heap\", "
                              "\"number\": 1, \"phase\": \"iter 3, F 0 chunk 1\", \"layer\": \"Net.up\"}"),
                    HasSubstr("\"live_blocks_omitted\": 0"), Not(HasSubstr("\"number\": 2"))));
  runtime_->Free(weights);
  runtime_->Free(activation);
  runtime_.reset();  // before the recorder
}

TEST_F(OomReportTest, WhoListensIsToldOfEachReportOnceItIsThere) {
  static std::string told;
  told.clear();
  reports_.SetListener([](const char* path) { told += Contents(path).empty() ? "nothing" : path; });
  Start(PlanBuilder().Each(kMiB).Build());
  EXPECT_FALSE(runtime_->ExplainOutOfMemory(kMiB, 0).empty());
  EXPECT_EQ(told, ReportPath(1));
  reports_.SetListener(nullptr);
  EXPECT_FALSE(runtime_->ExplainOutOfMemory(kMiB, 0).empty());
  EXPECT_EQ(told, ReportPath(1));
}

// LiveBlocks ----------------------------------------------------------------------------------------------------------

TEST(LiveBlocksTest, PlacesAreWhatTheMarksLastSaid) {
  LiveBlocks blocks;
  const auto place = [&] {
    const LiveBlocks::Place now = blocks.PlaceOf(blocks.present());
    return std::to_string(now.in_iteration ? now.iteration : -1) + " " + now.phase + " " + now.layer;
  };
  EXPECT_EQ(place(), "-1  ");
  blocks.OnMark(IterationMark(7));
  EXPECT_EQ(place(), "7  ");
  blocks.OnMark({.kind = MarkKind::kMicrobatch, .pass = Pass::kBackward, .index = 2, .name = ""});
  blocks.OnMark({.kind = MarkKind::kLayer, .name = "a"});
  blocks.OnMark({.kind = MarkKind::kLayer, .name = "a.b"});
  EXPECT_EQ(place(), "7 B 2 a.b");
  blocks.OnMark({.kind = MarkKind::kLayer, .edge = MarkEdge::kEnd, .name = "a.b"});
  EXPECT_EQ(place(), "7 B 2 a");
  blocks.OnMark({.kind = MarkKind::kFence, .name = "eval"});
  blocks.OnMark(IterationMark(0));
  EXPECT_EQ(place(), "7 fence ");
  blocks.OnMark({.kind = MarkKind::kFence, .edge = MarkEdge::kEnd, .name = "eval"});
  EXPECT_EQ(place(), "7 B 2 ");
  blocks.OnMark({.kind = MarkKind::kOptimizer, .edge = MarkEdge::kEnd, .name = ""});
  EXPECT_EQ(place(), "7 after the optimizer ");
}

TEST(LiveBlocksTest, AFreedBlockIsGoneAndItsAddressMayComeAgain) {
  LiveBlocks blocks;
  int memory[2] = {};
  blocks.Add(&memory[0], 700, 1, BlockSource::kHeap);
  blocks.Add(&memory[1], 800, 2, BlockSource::kArena);
  LiveBlocks::Block found;
  ASSERT_TRUE(blocks.Find(reinterpret_cast<std::uint64_t>(&memory[0]), &found));
  EXPECT_EQ(found.requested, 700u);
  blocks.Remove(&memory[0]);
  EXPECT_FALSE(blocks.Find(reinterpret_cast<std::uint64_t>(&memory[0]), &found));
  blocks.Add(&memory[0], 900, 1, BlockSource::kHeap);
  LiveBlocks::Block copy[4];
  ASSERT_EQ(blocks.CopyOwn(reinterpret_cast<std::uint64_t>(&memory[1]), sizeof(int), copy), 1u);
  EXPECT_EQ(copy[0].requested, 900u);
  EXPECT_EQ(copy[0].number, 2u);
  EXPECT_EQ(blocks.CopyOwn(0, 0, copy), 2u);
  blocks.Add(&blocks, 100, 0, BlockSource::kUpstream);
  EXPECT_EQ(blocks.CopyOwn(0, 0, copy), 2u) << "upstream's are the ledger's";
}

TEST_F(OomReportTest, AreWrittenUpToALimit) {
  Start(PlanBuilder().Each(kMiB).Build());
  for (int i = 0; i < OomReports::kMost; ++i) {
    EXPECT_THAT(Joined(runtime_->ExplainOutOfMemory(kMiB, 0)), HasSubstr("Report: "));
  }
  EXPECT_THAT(Joined(runtime_->ExplainOutOfMemory(kMiB, 0)), Not(HasSubstr("Report: ")));
  EXPECT_TRUE(std::ifstream(ReportPath(OomReports::kMost)).good());
  EXPECT_FALSE(std::ifstream(ReportPath(OomReports::kMost + 1)).good());
  EXPECT_EQ(log_.text(), "");
}

TEST_F(OomReportTest, ThatCannotBeWrittenAreAWarning) {
  OomReports nowhere("/nonexistent/directory", 0);
  EXPECT_STREQ(nowhere.Write({}), "");
  EXPECT_THAT(log_.text(), HasSubstr("cannot write /nonexistent/directory/rank00000"));
  EXPECT_EQ(log_.lines(), 1u);
}

TEST_F(OomReportTest, ARunThatNeedsMoreThanItsPlanIsToldSo) {
  DevicePlan plan = PlanBuilder().Each(kMiB).Build();
  plan.predicted.peak_live_bytes = kMiB;
  Start(plan);
  EXPECT_THAT(Joined(runtime_->ExplainOutOfMemory(4 * kMiB, 0)),
              HasSubstr("needs more than the traced one did (4.00 MiB against 1.00 MiB)"));
  EXPECT_THAT(Joined(runtime_->ExplainOutOfMemory(512 * kKiB, 0)), HasSubstr("STALLOC_MODE=Torch to run without"));
}

}  // namespace
}  // namespace stalloc
