// Several processes: exclusive paths, killed writers, fork, full disks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "allocator/base/log.h"
#include "tests/record/child_process.h"
#include "tests/record/recorder_fixture.h"

namespace {
std::atomic<bool> no_flock{false};  // as some network file systems
}

// Instead of the C library's, in this program.
extern "C" int flock(int fd, int operation) {  // NOLINT
  if (!no_flock) return static_cast<int>(syscall(SYS_flock, fd, operation));
  errno = ENOLCK;
  return -1;
}

namespace stalloc {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// The thread sanitizer ends a forked child of a process with several threads as soon as it starts a thread.
#if defined(__SANITIZE_THREAD__)
constexpr bool kChildMayStartThreads = false;
#else
constexpr bool kChildMayStartThreads = true;
#endif

class RecorderProcessTest : public RecorderFixture {
 protected:
  // In a child: has an allocation in the file, then waits.
  int RecordUntilKilled(const ChildProcess& self, Bytes bytes) {
    const auto recorder = Recorder::Open(Options());
    if (!recorder.ok()) return 1;
    recorder.value()->Allocated(0, At(512), bytes, 0, 0);
    recorder.value()->Flush();
    self.WaitToBeKilled();
  }
};

TEST_F(RecorderProcessTest, SecondProcessOnAPathIsRefusedAndTheFirstIsNamed) {
  const ChildProcess first([&](const ChildProcess& self) { return RecordUntilKilled(self, 1); });
  first.AwaitAnnouncement();
  const auto second = Recorder::Open(Options());
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error(),
              StartsWith(path_ + ": process " + std::to_string(first.pid()) + " is writing a trace there"));
  EXPECT_EQ(ReadBack().events.size(), 1u);  // the loser changed nothing

  first.Kill();
  const auto third = Recorder::Open(Options());  // a dead process holds nothing
  EXPECT_TRUE(third.ok()) << third.error();
}

TEST_F(RecorderProcessTest, WithoutFlockTheSecondProcessIsRefusedAllTheSame) {
  no_flock = true;
  const ChildProcess first([&](const ChildProcess& self) { return RecordUntilKilled(self, 1); });
  first.AwaitAnnouncement();
  const auto second = Recorder::Open(Options());
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error(), HasSubstr("process " + std::to_string(first.pid()) + " is writing a trace there"));
  first.Kill();
  EXPECT_TRUE(Recorder::Open(Options()).ok());
  no_flock = false;
}

TEST_F(RecorderProcessTest, WhoHasRecordedNothingIsInNobodysWay) {
  const std::string goes_on = path_ + ".goes-on";
  const ChildProcess other([&](const ChildProcess& self) -> int {  // forked before this process has threads
    while (!std::filesystem::exists(goes_on)) usleep(1000);
    return RecordUntilKilled(self, 7);
  });
  Open();
  recorder_->Marked(MakeMark(MarkKind::kInit, MarkEdge::kBegin));
  recorder_->Flush();
  std::ofstream(goes_on).put('1');
  other.AwaitAnnouncement();
  recorder_->Marked(MakeMark(MarkKind::kInit, MarkEdge::kEnd));
  recorder_->Flush();
  EXPECT_EQ(ReadBack().events.at(0).bytes, 7u) << "the other's";
  recorder_->Allocated(0, At(512), 1, 0, 0);
  recorder_->Flush();
  EXPECT_THAT(recorder_->GetCounters().write_error,
              HasSubstr("process " + std::to_string(other.pid()) + " is writing a trace there"));
  recorder_.reset();
  EXPECT_EQ(ReadBack().events.at(0).bytes, 7u) << "still";
}

TEST_F(RecorderProcessTest, APlaceThatIsFreeAgainIsTakenWithAllThatWasRecorded) {
  for (const bool removed : {false, true}) {
    Open();
    recorder_->Marked(MakeMark(MarkKind::kInit, MarkEdge::kBegin));
    recorder_->Flush();
    if (removed) {
      std::filesystem::remove(path_);
    } else {
      const auto other = Recorder::Open(Options());
      ASSERT_TRUE(other.ok()) << other.error();
      other.value()->Allocated(0, At(512), 7, 0, 0);
    }
    recorder_->Allocated(0, At(512), 1, 0, 0);
    const Trace trace = CloseAndRead();
    EXPECT_TRUE(trace.complete) << trace.truncation;
    EXPECT_EQ(trace.fingerprint.rank, 3u);
    EXPECT_EQ(trace.marks.size(), 1u);
    ASSERT_EQ(trace.events.size(), 2u) << "the mark and the allocation";
    EXPECT_EQ(trace.events[1].bytes, 1u);
  }
}

TEST_F(RecorderProcessTest, WhoReadsAnOlderTraceHasItToItsEnd) {
  Open();
  recorder_->Allocated(0, At(512), 1, 0, 0);
  recorder_.reset();
  std::ifstream reader(path_, std::ios::binary);
  std::string read(16, '\0');
  reader.read(read.data(), 16);
  const auto size = std::filesystem::file_size(path_);
  Open();
  recorder_->Allocated(0, At(512), 2, 0, 0);
  recorder_->Flush();
  read.append(std::istreambuf_iterator<char>(reader), {});
  EXPECT_EQ(read.size(), size);
  EXPECT_EQ(CloseAndRead().events.at(0).bytes, 2u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.File("trace")), {}), 1) << "nothing is left";
}

TEST_F(RecorderProcessTest, KilledProcessLeavesAValidPrefixWithAllThatWasFlushed) {
  const ChildProcess child([&](const ChildProcess& self) -> int {
    const auto recorder = Recorder::Open(Options(1024, 100));
    if (!recorder.ok()) return 1;
    for (std::uint64_t i = 1; i <= 1000; ++i) recorder.value()->Allocated(0, At(i * 512), i, 0, 0);
    recorder.value()->Flush();
    self.Announce();
    for (std::uint64_t i = 1001;; ++i) recorder.value()->Allocated(0, At(i * 512), i, 0, 0);  // until it is killed
  });
  child.AwaitAnnouncement();
  child.Kill();
  const Trace trace = ReadBack();
  EXPECT_FALSE(trace.complete);
  EXPECT_THAT(trace.truncation, HasSubstr("events before that are valid"));
  ASSERT_GE(trace.events.size(), 1000u);
  for (std::size_t i = 0; i < trace.events.size(); ++i) ASSERT_EQ(trace.events[i].bytes, i + 1);
}

// Does any descriptor of this process lead to `path`?
bool HasDescriptorOf(const std::string& path) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone) == path) return true;
  }
  return false;
}

std::ptrdiff_t ThreadCount() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator{});
}

TEST_F(RecorderProcessTest, ForkedChildIsInertAndOwnsNothing) {
  Open();
  recorder_->Allocated(0, At(512), 1, 0, 0);
  const ChildProcess child([&](const ChildProcess&) -> int {
    if (HasDescriptorOf(path_)) return 1;
    recorder_->Allocated(0, At(1024), 2, 0, 0);
    recorder_->Freed(At(512));
    recorder_->StreamRecorded(At(512), 1);
    recorder_->Marked(MakeMark(MarkKind::kInit, MarkEdge::kEnd));
    recorder_->Held(0, 1);
    recorder_->UpdateFingerprint({});
    recorder_->Flush();
    if (recorder_->GetCounters().events != 0) return 2;
    recorder_.reset();
    // The thread sanitizer runs a thread of its own in every process.
    return ThreadCount() <= 2 ? 0 : 3;
  });
  EXPECT_TRUE(HasDescriptorOf(path_));
  EXPECT_EQ(child.Wait(), 0);
  recorder_->Allocated(0, At(1024), 3, 0, 0);
  const Trace trace = CloseAndRead();
  EXPECT_TRUE(trace.complete) << trace.truncation;
  ASSERT_EQ(trace.events.size(), 2u);
  EXPECT_EQ(trace.events[1].bytes, 3u);
}

TEST_F(RecorderProcessTest, WhatTheForkingThreadRecordedIsInTheFileBeforeTheChildRuns) {
  Open();
  for (std::uint64_t i = 1; i <= 77; ++i) recorder_->Allocated(0, At(i * 512), i, 0, 0);
  const ChildProcess child([&](const ChildProcess&) -> int {
    const absl::StatusOr<Trace> trace = ReadTrace(path_);
    return trace.ok() && trace->events.size() == 77 ? 0 : 1;
  });
  EXPECT_EQ(child.Wait(), 0);
}

TEST_F(RecorderProcessTest, ChildMayRecordToAPathOfItsOwn) {
  if (!kChildMayStartThreads) GTEST_SKIP() << "not under the thread sanitizer";
  Open();
  const ChildProcess child([&](const ChildProcess&) -> int {
    RecorderOptions options = Options();
    options.path = directory_.File("child.trace");
    auto recorder = Recorder::Open(options);
    if (!recorder.ok()) return 1;
    recorder.value()->Allocated(0, At(512), 5, 0, 0);
    std::move(recorder).value().reset();
    const absl::StatusOr<Trace> trace = ReadTrace(options.path);
    return trace.ok() && trace->complete && trace->events.size() == 1 ? 0 : 2;
  });
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_TRUE(CloseAndRead().complete);
}

// Forks in the middle of other threads' calls: no deadlock, no event twice or lost.
TEST_F(RecorderProcessTest, ForksWhileThreadsRecordNeitherLoseNorDuplicate) {
  Open(/*ring_events=*/32);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> recorded{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 1; !stop.load(); ++i) {
        recorder_->Allocated(0, At((std::uint64_t{t + 1} << 40) + i * 512), i, 0, 0);
        recorded.fetch_add(1);
        if (i % 100 == 0) recorder_->Marked(MakeMark(MarkKind::kMicrobatch, MarkEdge::kBegin));
        if (i % 100 == 0) recorded.fetch_add(1);
      }
    });
  }
  for (int fork_count = 0; fork_count < 20; ++fork_count) {
    const ChildProcess child([&](const ChildProcess&) -> int {
      recorder_->Allocated(0, At(512), 1, 0, 0);
      recorder_->Flush();
      recorder_.reset();
      return 0;
    });
    ASSERT_EQ(child.Wait(), 0);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  const Trace trace = CloseAndRead();
  EXPECT_TRUE(trace.complete) << trace.truncation;
  EXPECT_EQ(trace.events.size(), recorded.load());
  std::vector<std::uint64_t> next(16, 1);
  for (const TraceEvent& event : trace.events) {
    if (event.kind != EventKind::kAlloc) continue;
    ASSERT_EQ(event.bytes, next.at(event.thread)++);
  }
}

std::atomic<int> error_lines{0};

// A limit on file sizes is a disk that becomes full.
TEST_F(RecorderProcessTest, FullDiskIsReportedOnceBlocksNobodyAndLeavesAValidPrefix) {
  const ChildProcess child([&](const ChildProcess&) -> int {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 20'000, .rlim_max = 20'000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    SetLogSink([](const char*, std::size_t) { ++error_lines; });
    const auto recorder = Recorder::Open(Options(64, 200));
    if (!recorder.ok()) return 2;
    for (std::uint64_t i = 1; i <= 50'000; ++i) recorder.value()->Allocated(0, At(i * 512), i, 0, 0);
    recorder.value()->Flush();
    recorder.value()->Close();
    const Recorder::Counters counters = recorder.value()->GetCounters();
    if (counters.events != 50'000) return 3;
    if (counters.write_error.find(path_ + ": cannot write the trace after byte ") != 0) return 4;
    if (counters.write_error.find("File too large") == std::string::npos) return 5;
    return error_lines == 1 ? 0 : 6;
  });
  ASSERT_EQ(child.Wait(), 0);
  const Trace trace = ReadBack();
  EXPECT_FALSE(trace.complete);
  EXPECT_THAT(trace.truncation, HasSubstr("without a last chunk"));  // cut back to whole chunks
  EXPECT_GT(trace.events.size(), 200u);
  for (std::size_t i = 0; i < trace.events.size(); ++i) ASSERT_EQ(trace.events[i].bytes, i + 1);
}

TEST_F(RecorderProcessTest, DiskThatIsFullFromTheStartIsAnErrorOfOpen) {
  const ChildProcess child([&](const ChildProcess&) -> int {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 12, .rlim_max = 12};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    const auto recorder = Recorder::Open(Options());
    return !recorder.ok() && recorder.error().find("cannot write the trace") != std::string::npos ? 0 : 2;
  });
  EXPECT_EQ(child.Wait(), 0);
}

}  // namespace
}  // namespace stalloc
