// Many threads: order, completeness, blocking.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <unordered_map>

#include "tests/record/recorder_fixture.h"

namespace stalloc {
namespace {

class RecorderThreadsTest : public RecorderFixture {
 protected:
  template <typename Run>
  static void RunThreads(int count, Run run) {
    std::vector<std::thread> threads;
    for (int t = 0; t < count; ++t) threads.emplace_back(run, t);
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_F(RecorderThreadsTest, FullRingBlocksAndLosesNothing) {
  Open(/*ring_events=*/4, /*chunk_events=*/50);
  constexpr int kThreads = 4;
  constexpr std::uint64_t kPairs = 5'000;
  RunThreads(kThreads, [&](int t) {
    for (std::uint64_t i = 0; i < kPairs; ++i) {
      // The size says who allocated what, so that the trace can be taken apart again.
      const void* address = At((std::uint64_t{1} << 40) * static_cast<unsigned>(t + 1) + i * 512);
      recorder_->Allocated(0, address, static_cast<unsigned>(t) * kPairs + i + 1, 0, 0);
      recorder_->Freed(address);
    }
  });
  EXPECT_GT(recorder_->GetCounters().blocked, 0u);
  EXPECT_EQ(recorder_->GetCounters().events, kThreads * kPairs * 2);
  const Trace trace = CloseAndRead();
  EXPECT_TRUE(trace.complete);
  ASSERT_EQ(trace.events.size(), kThreads * kPairs * 2);

  // In each thread's own part, everything is in its program's order.
  std::map<std::uint32_t, std::uint64_t> next;  // by thread ordinal
  std::unordered_map<std::uint64_t, std::uint64_t> size_of;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::kAlloc) {
      size_of[event.allocation] = event.bytes;
      const std::uint64_t own = (event.bytes - 1) % kPairs;
      ASSERT_EQ(own, next[event.thread]);
    } else {
      ASSERT_EQ((size_of.at(event.allocation) - 1) % kPairs, next[event.thread]);
      ++next[event.thread];
    }
  }
  ASSERT_EQ(next.size(), static_cast<std::size_t>(kThreads));
  for (const auto& [thread, count] : next) EXPECT_EQ(count, kPairs) << thread;
}

// Threads pass few addresses among themselves, as allocators do: an address is given out again right after its free was
// recorded.
TEST_F(RecorderThreadsTest, ForEachAddressAllocationsAndFreesAlternate) {
  Open(/*ring_events=*/64);
  std::mutex mutex;
  std::vector<std::uint64_t> idle;  // addresses that an allocator could hand out
  for (std::uint64_t i = 1; i <= 12; ++i) idle.push_back(i * 4096);
  std::atomic<std::uint64_t> pairs{0};
  RunThreads(4, [&](int t) {
    std::mt19937 random(static_cast<unsigned>(t));
    for (int i = 0; i < 8'000; ++i) {
      std::uint64_t address = 0;
      {
        const std::lock_guard lock(mutex);
        const std::size_t pick = random() % idle.size();
        address = idle[pick];
        idle.erase(idle.begin() + static_cast<std::ptrdiff_t>(pick));
      }
      recorder_->Allocated(0, At(address), address, 0, 0);
      recorder_->Freed(At(address));  // before it is given up
      pairs.fetch_add(1);
      const std::lock_guard lock(mutex);
      idle.push_back(address);
    }
  });
  recorder_->Close();
  EXPECT_EQ(recorder_->GetCounters().unpaired, 0u);
  const Trace trace = CloseAndRead();
  ASSERT_EQ(trace.events.size(), 2 * pairs.load());
  std::unordered_map<std::uint64_t, std::uint64_t> live;  // address (recorded as size) to allocation
  std::vector<std::uint64_t> address_of;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::kAlloc) {
      ASSERT_TRUE(live.emplace(event.bytes, event.allocation).second) << "allocated twice";
      address_of.push_back(event.bytes);
    } else {
      ASSERT_EQ(live.erase(address_of.at(event.allocation)), 1u) << "freed while not live";
    }
  }
  EXPECT_TRUE(live.empty());
}

TEST_F(RecorderThreadsTest, ThreadsAreNumberedByFirstAppearance) {
  Open();
  recorder_->Allocated(0, At(512), 1, 0, 0);
  for (int t = 0; t < 3; ++t) {
    std::thread([&] { recorder_->Allocated(0, At(1024 + static_cast<unsigned>(t) * 512), 1, 0, 0); }).join();
  }
  recorder_->Freed(At(512));
  const Trace trace = CloseAndRead();
  std::vector<std::uint32_t> threads;
  for (const TraceEvent& event : trace.events) threads.push_back(event.thread);
  EXPECT_EQ(threads, (std::vector<std::uint32_t>{0, 1, 2, 3, 0}));
}

TEST_F(RecorderThreadsTest, FlushesFromManyThreadsEachSeeTheirOwnEvents) {
  Open(/*ring_events=*/256);
  RunThreads(4, [&](int t) {
    for (std::uint64_t i = 1; i <= 20; ++i) {
      recorder_->Allocated(0, At(((static_cast<std::uint64_t>(t) << 32) + i) * 512), static_cast<unsigned>(t), 0, 0);
      recorder_->Flush();
      const absl::StatusOr<Trace> trace = ReadTrace(path_);
      ASSERT_TRUE(trace.ok());
      const auto own = std::count_if(trace->events.begin(), trace->events.end(),
                                     [&](const TraceEvent& event) { return event.bytes == static_cast<unsigned>(t); });
      ASSERT_EQ(static_cast<std::uint64_t>(own), i);
    }
  });
}

TEST_F(RecorderThreadsTest, MarksOfManyThreadsKeepTheirNames) {
  Open(/*ring_events=*/16);
  RunThreads(4, [&](int t) {
    for (int i = 0; i < 300; ++i) {
      recorder_->Marked(MakeMark(MarkKind::kLayer, MarkEdge::kBegin, i, "layer " + std::to_string(t)));
    }
  });
  const Trace trace = CloseAndRead();
  ASSERT_EQ(trace.marks.size(), 1200u);
  std::map<std::string, std::int32_t> next;
  std::map<std::string, std::uint32_t> thread_of;
  for (std::size_t i = 0; i < trace.marks.size(); ++i) {
    ASSERT_EQ(trace.events[i].mark, i);
    ASSERT_EQ(trace.marks[i].index, next[trace.marks[i].name]++);
    ASSERT_EQ(thread_of.emplace(trace.marks[i].name, trace.events[i].thread).first->second, trace.events[i].thread);
  }
  EXPECT_EQ(next.size(), 4u);
}

TEST_F(RecorderThreadsTest, CloseWhileOthersRecordLeavesACompleteTrace) {
  Open(/*ring_events=*/64);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 1; !stop.load(); ++i) {
        recorder_->Allocated(0, At((std::uint64_t{t} << 40) + i * 512), 1, 0, 0);
        recorder_->Freed(At((std::uint64_t{t} << 40) + i * 512));
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  recorder_->Close();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  const Trace trace = ReadBack();
  EXPECT_TRUE(trace.complete) << trace.truncation;
  EXPECT_GT(trace.events.size(), 0u);
}

}  // namespace
}  // namespace stalloc
