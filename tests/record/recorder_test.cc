// One process, one thread: what is recorded comes back, and when it is in the file.
#include "allocator/record/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "tests/record/recorder_fixture.h"

namespace stalloc {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class RecorderTest : public RecorderFixture {};

TEST_F(RecorderTest, EveryKindOfEventComesBackAsItWasRecorded) {
  Open();
  recorder_->Marked(MakeMark(MarkKind::kIteration, MarkEdge::kBegin, 7, "größe"));
  recorder_->Allocated(0, At(0x1000), 100, 0, 0);
  recorder_->Allocated(1, At(0x2000), 1u << 30, 0xabc, kAllocCaptured);
  recorder_->StreamRecorded(At(0x2000), 0xdef);
  recorder_->Freed(At(0x1000));
  recorder_->Allocated(kCpuDevice, At(0x1000), 0, 0, 0);
  recorder_->Held(1, 5u << 20);
  const Trace trace = CloseAndRead();

  EXPECT_TRUE(trace.complete) << trace.truncation;
  EXPECT_EQ(trace.fingerprint, Options().fingerprint);
  ASSERT_EQ(trace.marks.size(), 1u);
  EXPECT_EQ(trace.marks[0], MakeMark(MarkKind::kIteration, MarkEdge::kBegin, 7, "größe"));
  const std::vector<StreamInfo> streams = {{.ordinal = 0, .device = 0, .handle = 0},
                                           {.ordinal = 1, .device = 1, .handle = 0xabc},
                                           {.ordinal = 2, .device = 1, .handle = 0xdef},
                                           {.ordinal = 3, .device = kCpuDevice, .handle = 0}};
  EXPECT_EQ(trace.streams, streams);
  EXPECT_EQ(trace.allocations, 3u);
  ASSERT_EQ(trace.events.size(), 7u);
  const std::vector<TraceEvent> expected = {
      {.kind = EventKind::kMark, .mark = 0},
      {.kind = EventKind::kAlloc, .device = 0, .allocation = 0, .bytes = 100, .stream = 0},
      {.kind = EventKind::kAlloc,
       .device = 1,
       .allocation = 1,
       .bytes = 1u << 30,
       .stream = 1,
       .flags = kAllocCaptured,
       .address = 0x2000},
      {.kind = EventKind::kRecordStream, .allocation = 1, .stream = 2},
      {.kind = EventKind::kFree, .allocation = 0},
      {.kind = EventKind::kAlloc, .device = kCpuDevice, .allocation = 2, .bytes = 0, .stream = 3},
      {.kind = EventKind::kHeld, .device = 1, .bytes = 5u << 20}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    TraceEvent event = trace.events[i];
    EXPECT_GE(event.time_ns, i == 0 ? 0 : trace.events[i - 1].time_ns);
    event.time_ns = 0;
    EXPECT_EQ(event, expected[i]) << "event " << i;
  }
  EXPECT_EQ(trace.events[0].time_ns, 0);
}

// A naive model: a map from addresses to indices.
TEST_F(RecorderTest, AddressesArePairedAsANaiveModelPairsThem) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    Open(64, 1 + seed * 37);
    std::map<std::uint64_t, std::uint64_t> live;
    std::vector<std::pair<EventKind, std::uint64_t>> expected;  // kind and allocation
    std::uint64_t allocations = 0;
    std::uint64_t unpaired = 0;
    for (int step = 0; step < 20'000; ++step) {
      const std::uint64_t address = (1 + random() % 300) * 512;
      const auto found = live.find(address);
      if (found == live.end() && random() % 20 != 0) {
        recorder_->Allocated(0, At(address), random() % 100'000, 0, 0);
        expected.emplace_back(EventKind::kAlloc, allocations);
        live[address] = allocations++;
      } else if (found == live.end()) {  // a free of something that was there before the recorder: no row
        recorder_->Freed(At(address));
        ++unpaired;
      } else if (random() % 3 == 0) {
        recorder_->StreamRecorded(At(address), 5);
        expected.emplace_back(EventKind::kRecordStream, found->second);
      } else {
        recorder_->Freed(At(address));
        expected.emplace_back(EventKind::kFree, found->second);
        live.erase(found);
      }
    }
    recorder_->Close();
    EXPECT_EQ(recorder_->GetCounters().unpaired, unpaired);
    EXPECT_EQ(recorder_->GetCounters().events, 20'000u);
    const Trace trace = CloseAndRead();
    ASSERT_EQ(trace.events.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(trace.events[i].kind, expected[i].first) << i;
      ASSERT_EQ(trace.events[i].allocation, expected[i].second) << i;
    }
  }
}

TEST_F(RecorderTest, AddressThatComesBackWithoutAFreeEndsTheOldBlock) {
  Open();
  recorder_->Allocated(0, At(0x1000), 100, 0, 0);
  recorder_->Allocated(0, At(0x1000), 200, 0, 0);
  recorder_->Freed(At(0x1000));
  const Trace trace = CloseAndRead();
  ASSERT_EQ(trace.events.size(), 4u);
  EXPECT_EQ(trace.events[1].kind, EventKind::kFree);
  EXPECT_EQ(trace.events[1].allocation, 0u);
  EXPECT_EQ(trace.events[3].allocation, 1u);
}

TEST_F(RecorderTest, NullPointersAreNoEvents) {
  Open();
  recorder_->Allocated(0, nullptr, 0, 0, 0);
  recorder_->Freed(nullptr);
  EXPECT_EQ(CloseAndRead().events.size(), 0u);
}

TEST_F(RecorderTest, FlushedEventsAreInTheFileWhileRecordingGoesOn) {
  Open();
  for (std::uint64_t i = 1; i <= 300; ++i) {
    recorder_->Allocated(0, At(i * 512), i, 0, 0);
    if (i % 50 == 0) {
      recorder_->Flush();
      const Trace trace = ReadBack();
      ASSERT_EQ(trace.events.size(), i);
      EXPECT_FALSE(trace.complete);
    }
  }
  EXPECT_TRUE(CloseAndRead().complete);
}

// Reads until `events` events are in the file; the recorder promises this without a flush.
void AwaitEvents(const std::string& path, std::size_t events) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < deadline) {
    const absl::StatusOr<Trace> trace = ReadTrace(path);
    ASSERT_TRUE(trace.ok()) << trace.status();
    if (trace->events.size() >= events) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  FAIL() << "still fewer than " << events << " events";
}

TEST_F(RecorderTest, EndOfAPhaseBringsItsEventsIntoTheFile) {
  Open();
  recorder_->Allocated(0, At(0x1000), 100, 0, 0);
  recorder_->Marked(MakeMark(MarkKind::kIteration, MarkEdge::kEnd, 1));
  AwaitEvents(path_, 2);
  recorder_->Marked(MakeMark(MarkKind::kFence, MarkEdge::kEnd, 0, "eval"));
  AwaitEvents(path_, 3);
}

TEST_F(RecorderTest, RowsWaitAboutASecondAtMost) {
  Open();
  recorder_->Allocated(0, At(0x1000), 100, 0, 0);
  AwaitEvents(path_, 1);
}

TEST_F(RecorderTest, FingerprintThatBecomesKnownLaterReplacesTheFirst) {
  Open();
  EXPECT_EQ(ReadBack().fingerprint,
            Options().fingerprint);  // before any event: the file says whose it is from the start
  recorder_->Allocated(0, At(0x1000), 100, 0, 0);
  Fingerprint known = Options().fingerprint;
  known.device_name = "NVIDIA H200";
  known.device_bytes = 150'000'000'000;
  known.command_line = {"pretrain.py", "--name=caf\xe9"};
  recorder_->UpdateFingerprint(known);
  const Trace trace = CloseAndRead();
  known.command_line[1] = "--name=caf?";
  EXPECT_EQ(trace.fingerprint, known);
}

TEST_F(RecorderTest, CallsAfterCloseDoNothing) {
  Open();
  recorder_->Allocated(0, At(0x1000), 100, 0, 0);
  recorder_->Close();
  recorder_->Close();
  recorder_->Allocated(0, At(0x2000), 100, 0, 0);
  recorder_->Marked(MakeMark(MarkKind::kInit, MarkEdge::kEnd));
  recorder_->Flush();
  const Trace trace = CloseAndRead();
  EXPECT_EQ(trace.events.size(), 1u);
  EXPECT_TRUE(trace.complete);
}

TEST_F(RecorderTest, RecorderWithoutEventsLeavesACompleteTrace) {
  Open();
  const Trace trace = CloseAndRead();
  EXPECT_TRUE(trace.complete) << trace.truncation;
  EXPECT_EQ(trace.events.size(), 0u);
}

TEST_F(RecorderTest, OldTraceAtThePathIsReplaced) {
  Open();
  for (std::uint64_t i = 1; i < 1000; ++i) recorder_->Allocated(0, At(i * 512), 1, 0, 0);
  EXPECT_EQ(CloseAndRead().events.size(), 999u);
  Open();
  EXPECT_EQ(CloseAndRead().events.size(), 0u);
}

TEST_F(RecorderTest, SecondRecorderOfThisProcessOnThePathIsRefusedAndHarmsNothing) {
  Open();
  recorder_->Allocated(0, At(0x1000), 100, 0, 0);
  recorder_->Flush();
  const auto second = Recorder::Open(Options());
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error(), StartsWith(path_ + ": "));
  EXPECT_THAT(second.error(), HasSubstr("of this process (" + std::to_string(getpid()) + ")"));
  const Trace trace = CloseAndRead();
  EXPECT_EQ(trace.events.size(), 1u);
  EXPECT_TRUE(trace.complete);
}

TEST_F(RecorderTest, ReadOnlyDirectoryIsAnErrorThatNamesThePath) {
  std::filesystem::create_directory(directory_.File("trace"));
  ASSERT_EQ(chmod(directory_.File("trace").c_str(), 0555), 0);
  const AsUnprivilegedUser user;
  const auto opened = Recorder::Open(Options());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error(), path_ + ": cannot open the trace for writing: Permission denied");
}

TEST_F(RecorderTest, DirectoryThatCannotBeCreatedIsAnErrorThatNamesIt) {
  WriteBytes(directory_.File("trace"), "a file where the directory should be");
  const auto opened = Recorder::Open(Options());
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error(), HasSubstr("cannot create the directory " + directory_.File("trace")));
}

TEST_F(RecorderTest, DirectoryAtThePathIsAnError) {
  std::filesystem::create_directories(path_);
  const auto opened = Recorder::Open(Options());
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error(), HasSubstr("Is a directory"));
}

}  // namespace
}  // namespace stalloc
