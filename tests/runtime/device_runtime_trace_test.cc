// DeviceRuntime in Trace: what the file says, and exact tracing under a memory cap.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "allocator/runtime/planned_space.h"
#include "tests/runtime/pattern.h"
#include "tests/runtime/plan_builder.h"
#include "tests/runtime/traced_fixture.h"

namespace stalloc {
namespace traces {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

bool IsHeld(const TraceEvent& event) { return event.kind == EventKind::kHeld; }

class TraceTest : public TracedTest {
 protected:
  void Start(bool exact, Bytes limit = 0) { StartTraced({.exact = exact, .limit_bytes = limit, .graphs = &pools_}); }
  void TearDown() override { runtime_ = nullptr; }  // before its pools
  void* Allocate(Bytes bytes) { return runtime_->Allocate(bytes, 0, Origin::kProgram); }

  GraphPools pools_;
};

// Numbered as they come, whatever their pools; that a pool's state may be set back is told once.
TEST_F(TraceTest, CapturesAndLaunchesOfGraphsAreMarked) {
  Start(/*exact=*/false);
  GraphPool& first = pools_.Get(3, kCpuDevice);
  GraphPool& second = pools_.Get(5, kCpuDevice);
  const auto capture = [](GraphPool& pool) {
    const GraphId graph = pool.CaptureBegins();
    pool.CaptureEnds(graph, /*made=*/true);
    return graph;
  };
  const GraphId of_second = capture(second);
  EXPECT_TRUE(second.SetRestorable());
  const GraphId of_first = capture(first);
  EXPECT_TRUE(second.SetRestorable());
  (void)first.LaunchWith(of_first, 7, /*captured=*/false, [] {});
  (void)second.LaunchWith(of_second, 7, /*captured=*/false, [] {});
  const Trace trace = Finish();
  std::vector<std::string> told;
  for (const TraceEvent& event : trace.events) {
    if (event.kind != EventKind::kMark) continue;
    const Mark& mark = trace.marks[event.mark];
    EXPECT_TRUE(IsGraphMark(mark)) << mark.name;
    told.push_back((mark.edge == MarkEdge::kBegin ? "+" : "-") + mark.name);
  }
  EXPECT_THAT(told,
              ElementsAre("+CUDA graph 0 capture", "-CUDA graph 0 capture", "+CUDA graph pool 5", "-CUDA graph pool 5",
                          "+CUDA graph 1 capture", "-CUDA graph 1 capture", "+CUDA graph 1 replay",
                          "-CUDA graph 1 replay", "+CUDA graph 0 replay", "-CUDA graph 0 replay"));
}

TEST_F(TraceTest, FastTracingRecordsEveryEventInOrder) {
  Start(/*exact=*/false);
  void* const first = runtime_->Allocate(1000, 5, Origin::kProgram);
  void* const second = runtime_->Allocate(3 * kMiB, 5, Origin::kCaptured, /*pool=*/7);
  runtime_->RecordStream(first, 9);
  runtime_->OnMark(IterationMark(0));
  runtime_->Free(first);
  runtime_->Free(second);
  EXPECT_EQ(upstream_.recorded().size(), 1u);
  EXPECT_TRUE(runtime_->spaces().empty());
  const Trace trace = Finish();
  EXPECT_TRUE(trace.complete);
  ASSERT_EQ(trace.events.size(), 8u);
  EXPECT_EQ(trace.events[0].kind, EventKind::kHeld);
  EXPECT_EQ(trace.events[0].bytes, 1024u);  // before the block that it grew for
  EXPECT_EQ(trace.events[1].kind, EventKind::kAlloc);
  EXPECT_EQ(trace.events[1].bytes, 1000u);  // as requested
  EXPECT_EQ(trace.events[1].device, kCpuDevice);
  EXPECT_EQ(trace.events[1].flags, 0u);
  EXPECT_EQ(trace.events[2].kind, EventKind::kHeld);
  EXPECT_EQ(trace.events[3].bytes, 3 * kMiB);
  EXPECT_EQ(trace.events[3].flags, kAllocCaptured | 7 << kAllocPoolShift);
  EXPECT_EQ(PoolPlusOne(trace.events[3].flags), 7u);
  EXPECT_EQ(trace.events[4].kind, EventKind::kRecordStream);
  EXPECT_EQ(trace.events[4].allocation, 0u);
  EXPECT_EQ(trace.events[5].kind, EventKind::kHeld);
  EXPECT_EQ(trace.events[5].bytes, 1024 + 3 * kMiB);
  EXPECT_EQ(trace.events[6].kind, EventKind::kFree);
  EXPECT_EQ(trace.events[6].allocation, 0u);
  EXPECT_EQ(trace.events[7].allocation, 1u);
  EXPECT_EQ(trace.streams.size(), 2u);
}

// What a trace tells of one moment after the other: live bytes of the device, and what is held.
void ExpectHeldAboveLive(const Trace& trace) {
  Bytes live = 0, held = 0;
  std::vector<Bytes> blocks;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::kAlloc) {
      blocks.push_back(BlockBytes(event.bytes));
      live += blocks.back();
    } else if (event.kind == EventKind::kFree) {
      live -= blocks[event.allocation];
    } else if (event.kind == EventKind::kHeld) {
      held = event.bytes;
    }
    EXPECT_GE(held, live);
  }
}

// Up, down and up again between two marks, of the heap and of upstream.
TEST_F(TraceTest, WhatIsHeldIsRecordedWhereItGrows) {
  for (const bool exact : {false, true}) {
    Start(exact);
    runtime_->OnMark(IterationMark(0));
    std::vector<void*> blocks;
    for (Bytes bytes = 3 * kKiB; bytes < kMiB; bytes *= 3) blocks.push_back(Allocate(bytes));
    blocks.push_back(runtime_->Allocate(kMiB, 0, Origin::kCaptured));
    for (void* const block : blocks) runtime_->Free(block);
    void* const largest = Allocate(4 * kMiB);
    const Bytes held = runtime_->Stats().heap_bytes + upstream_.HeldBytes().current;
    runtime_->Free(largest);
    const Trace trace = Finish();
    ExpectHeldAboveLive(trace);
    const auto most = std::max_element(trace.events.begin(), trace.events.end(), [](const auto& a, const auto& b) {
      return (a.kind == EventKind::kHeld ? a.bytes : 0) < (b.kind == EventKind::kHeld ? b.bytes : 0);
    });
    EXPECT_EQ(most->bytes, held);
    runtime_.reset();
    recorder_.reset();
  }
}

TEST_F(TraceTest, BlocksThatUpstreamTakesBackAndGivesOutOnItsOwnAreFollowed) {
  Start(/*exact=*/false);
  void* const block = runtime_->Allocate(1000, 5, Origin::kCaptured);
  runtime_->Forget(block);
  EXPECT_EQ(runtime_->UpstreamBlockBytes(block), 0u);
  EXPECT_EQ(runtime_->Stats().live_bytes, 0u);
  runtime_->Forget(block);  // known no more: nothing happens
  runtime_->Adopt(block, 2000, 5);
  EXPECT_EQ(runtime_->UpstreamBlockBytes(block), 2048u);
  runtime_->Free(block);
  EXPECT_EQ(runtime_->Stats().unknown_frees, 0u);
  EXPECT_EQ(runtime_->Stats().live_bytes, 0u);
  Trace trace = Finish();
  std::erase_if(trace.events, IsHeld);
  ASSERT_EQ(trace.events.size(), 4u);
  EXPECT_EQ(trace.events[1].kind, EventKind::kFree);
  EXPECT_EQ(trace.events[2].kind, EventKind::kAlloc);
  EXPECT_EQ(trace.events[2].bytes, 2000u);
  EXPECT_EQ(trace.events[2].flags, kAllocCaptured);
  EXPECT_EQ(trace.events[3].allocation, 1u);
}

TEST_F(TraceTest, ExactTracingServesFromPagesAndLeavesCapturesToUpstream) {
  Start(/*exact=*/true);
  void* const owned = Allocate(3 * kMiB);
  void* const captured = runtime_->Allocate(kMiB, 0, Origin::kCaptured);
  FillPattern(owned, 3 * kMiB, 1);
  FillPattern(captured, kMiB, 2);
  EXPECT_TRUE(runtime_->Owns(owned));
  EXPECT_FALSE(runtime_->Owns(captured));
  const RuntimeStats stats = runtime_->Stats();
  EXPECT_EQ(stats.heap_hits, 1u);
  EXPECT_EQ(stats.upstream, 1u);
  EXPECT_EQ(stats.live_bytes, 4 * kMiB);
  EXPECT_GE(stats.run.held_bytes, 4 * kMiB);
  runtime_->RecordStream(owned, 3);
  runtime_->Free(owned);
  runtime_->Free(captured);
  EXPECT_EQ(runtime_->Stats().live_bytes, 0u);
  const Trace trace = Finish();
  EXPECT_EQ(trace.allocations, 2u);
  EXPECT_EQ(std::count_if(trace.events.begin(), trace.events.end(),
                          [](const TraceEvent& event) { return event.kind == EventKind::kFree; }),
            2);
}

// The least a contiguous allocator can do: first fit over one range, free neighbours merged.
class FirstFit {
 public:
  explicit FirstFit(Bytes bytes) : holes_{{0, bytes}} {}
  // False: no hole is large enough.
  bool Allocate(int id, Bytes bytes) {
    for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
      if (hole->second < bytes) continue;
      const Offset at = hole->first;
      const Bytes rest = hole->second - bytes;
      holes_.erase(hole);
      if (rest > 0) holes_.emplace(at + bytes, rest);
      blocks_[id] = {at, bytes};
      return true;
    }
    return false;
  }
  void Free(int id) {
    auto [at, bytes] = blocks_.at(id);
    blocks_.erase(id);
    const auto next = holes_.lower_bound(at);
    if (next != holes_.end() && at + bytes == next->first) {
      bytes += next->second;
      holes_.erase(next);
    }
    const auto after = holes_.lower_bound(at);
    if (after != holes_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == at) {
        before->second += bytes;
        return;
      }
    }
    holes_.emplace(at, bytes);
  }

 private:
  std::map<Offset, Bytes> holes_;
  std::map<int, std::pair<Offset, Bytes>> blocks_;
};

struct Step {
  int id;
  Bytes bytes;  // 0: the block is freed
};

// Fills the cap with small blocks, frees every second one, and asks for blocks of twice the size; then the other way
// round.
std::vector<Step> FragmentingRun(Bytes cap, Bytes block) {
  std::vector<Step> steps;
  const int count = static_cast<int>(cap / block);
  for (int id = 0; id < count; ++id) steps.push_back({id, block});
  for (int id = 0; id < count; id += 2) steps.push_back({id, 0});
  for (int id = 0; id < count / 4; ++id) steps.push_back({count + id, 2 * block});
  for (int id = 1; id < count; id += 2) steps.push_back({id, 0});
  steps.push_back({2 * count, cap / 2});
  return steps;
}

TEST_F(TraceTest, ARunWhoseLiveBytesFitTheCapIsTracedToItsEndThoughAFragmentingAllocatorCannotHoldIt) {
  constexpr Bytes kCap = 64 * kMiB;
  const std::vector<Step> steps = FragmentingRun(kCap, 2 * kMiB);
  FirstFit contiguous(kCap);
  const bool fits = std::all_of(steps.begin(), steps.end(), [&](const Step& step) {
    if (step.bytes != 0) return contiguous.Allocate(step.id, step.bytes);
    contiguous.Free(step.id);
    return true;
  });
  ASSERT_FALSE(fits) << "the run is too easy";

  Start(/*exact=*/true, kCap);
  struct Live {
    void* pointer;
    Bytes bytes;
  };
  std::map<int, Live> live;
  const auto check_and_free = [&](int id) {
    EXPECT_TRUE(HasPattern(live.at(id).pointer, live.at(id).bytes, static_cast<std::uint8_t>(id)));
    runtime_->Free(live.at(id).pointer);
    live.erase(id);
  };
  for (const Step& step : steps) {
    if (step.bytes == 0) {
      check_and_free(step.id);
      continue;
    }
    void* const pointer = Allocate(step.bytes);
    ASSERT_TRUE(runtime_->Owns(pointer));
    FillPattern(pointer, step.bytes, static_cast<std::uint8_t>(step.id));
    live[step.id] = {pointer, step.bytes};
    ASSERT_LE(driver_->GetCounts().handle_bytes, kCap);
  }
  while (!live.empty()) check_and_free(live.begin()->first);
  EXPECT_EQ(upstream_.allocations(), 0);
  EXPECT_EQ(runtime_->spaces().front()->engine().CheckInvariants(), "");
  EXPECT_EQ(runtime_->Stats().run.live_bytes, kCap);
  EXPECT_EQ(log_.text(), "");
  Trace trace = Finish();
  EXPECT_TRUE(trace.complete);
  EXPECT_GT(std::erase_if(trace.events, IsHeld), 0u);
  EXPECT_EQ(trace.events.size(), 2 * trace.allocations);
}

TEST_F(TraceTest, WhatExceedsTheCapGoesUpstreamWithAWarning) {
  Start(/*exact=*/true, 4 * kMiB);
  void* const first = Allocate(3 * kMiB);
  void* const second = Allocate(2 * kMiB);
  EXPECT_TRUE(runtime_->Owns(first));
  EXPECT_FALSE(runtime_->Owns(second));
  EXPECT_THAT(log_.text(), HasSubstr("3.00 MiB live in the heap and 2.00 MiB requested do not fit"));
  EXPECT_EQ(runtime_->Stats().live_bytes, 5 * kMiB);
  runtime_->Free(first);
  runtime_->Free(second);
}

TEST_F(TraceTest, ACapturedRequestTakesNothingOfTheHeapsCache) {
  Start(/*exact=*/true);
  runtime_->Free(Allocate(8 * kMiB));
  ASSERT_GE(driver_->GetCounts().handle_bytes, 8 * kMiB);
  upstream_.FailNext(2);
  EXPECT_THROW(runtime_->Allocate(kMiB, 0, Origin::kCaptured), std::bad_alloc);  // a capture forbids to synchronise
  ASSERT_GE(driver_->GetCounts().handle_bytes, 8 * kMiB);
  upstream_.FailNext(0);
}

TEST_F(TraceTest, AFullHeapGivesItsCacheToUpstream) {
  Start(/*exact=*/true, 8 * kMiB);
  void* const live = Allocate(4 * kMiB);
  runtime_->Free(Allocate(4 * kMiB));
  upstream_.FailNext(1);
  void* const large = Allocate(6 * kMiB);  // the heap cannot, upstream cannot, then upstream can
  EXPECT_FALSE(runtime_->Owns(large));
  EXPECT_LE(driver_->GetCounts().handle_bytes, 4 * kMiB);
  runtime_->Free(live);
  runtime_->Free(large);
}

TEST_F(TraceTest, WithoutADriverExactTracingFallsBackToFastAndSaysSo) {
  Result<std::unique_ptr<Recorder>> opened = Recorder::Open({.path = Path(), .fingerprint = {}});
  ASSERT_TRUE(opened.ok());
  recorder_ = std::move(opened).value();
  DeviceRuntime runtime({.device = 0, .upstream = &upstream_, .recorder = recorder_.get(), .exact = true});
  EXPECT_THAT(runtime.degraded(), HasSubstr("fast mode"));
  EXPECT_EQ(log_.lines(), 1u);
  runtime.Free(runtime.Allocate(kMiB, 0, Origin::kProgram));
  EXPECT_EQ(Finish().allocations, 1u);
}

TEST_F(TraceTest, AddressesThatComeBackKeepTheirOrderInTheFile) {
  const std::uint64_t seed = 11;
  SCOPED_TRACE(seed);
  Start(/*exact=*/true);
  std::mt19937_64 random(seed);
  std::vector<void*> live;
  for (int step = 0; step < 20000; ++step) {
    if (live.size() < 20 && random() % 2 == 0) {
      live.push_back(Allocate(512 * (1 + random() % 400)));
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      runtime_->Free(live.back());
      live.pop_back();
    }
  }
  for (void* pointer : live) runtime_->Free(pointer);
  Trace trace = Finish();  // the reader refuses a double free
  EXPECT_TRUE(trace.complete);
  std::erase_if(trace.events, IsHeld);
  EXPECT_EQ(trace.events.size(), 2 * trace.allocations);
  EXPECT_EQ(recorder_->GetCounters().unpaired, 0u);
}

}  // namespace traces
}  // namespace stalloc
