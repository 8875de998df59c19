// DeviceRuntime in Alloc: who serves what, figures, fork and threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "tests/runtime/alloc_fixture.h"
#include "tests/runtime/pattern.h"

namespace stalloc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(AllocTest, PlannedRequestsComeFromTheArenaAndTheRestFromUpstream) {
  Start(PlanBuilder().Persistent(10 * kKiB).Each(100 * kKiB).Each(200 * kKiB).Build());
  void* const weights = Allocate(10 * kKiB);
  FillPattern(weights, 10 * kKiB, 1);
  for (int i = 0; i < 5; ++i) {
    Iteration();
    void* const first = Allocate(100 * kKiB);
    void* const second = Allocate(200 * kKiB);
    void* const extra = Allocate(7 * kKiB);
    FillPattern(first, 100 * kKiB, 2);
    FillPattern(second, 200 * kKiB, 3);
    FillPattern(extra, 7 * kKiB, 4);
    EXPECT_TRUE(runtime_->Owns(first));
    EXPECT_TRUE(runtime_->Owns(second));
    EXPECT_FALSE(runtime_->Owns(extra));
    EXPECT_EQ(runtime_->UpstreamBlockBytes(extra), 7 * kKiB);
    EXPECT_TRUE(HasPattern(weights, 10 * kKiB, 1));
    EXPECT_TRUE(HasPattern(first, 100 * kKiB, 2));
    for (void* pointer : {first, second, extra}) runtime_->Free(pointer);
  }
  const RuntimeStats stats = runtime_->Stats();
  EXPECT_EQ(stats.requests, 16u);
  EXPECT_EQ(stats.planned_hits, 11u);
  EXPECT_EQ(stats.upstream, 5u);
  EXPECT_EQ(Misses(stats, MissReason::kUnknownSize), 5u);
  EXPECT_EQ(stats.iterations, 5u);
  // From the second iteration on: four times two hits of three requests.
  EXPECT_EQ(stats.steady.requests, 12u);
  EXPECT_EQ(stats.steady.hits, 8u);
  EXPECT_EQ(stats.live_bytes, 10 * kKiB);
  EXPECT_EQ(upstream_.live(), 0u);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
  EXPECT_EQ(log_.text(), "");
}

TEST_F(AllocTest, PeaksAreOfTheSum) {
  Start(PlanBuilder().Each(100 * kKiB).Build());
  Iteration();
  void* const planned = Allocate(100 * kKiB - 100);  // counts rounded to 512
  void* const other = Allocate(50 * kKiB);
  runtime_->Free(planned);
  void* const more = Allocate(30 * kKiB);
  RuntimeStats stats = runtime_->Stats();
  EXPECT_EQ(stats.live_bytes, 80 * kKiB);
  EXPECT_EQ(stats.peak_live_bytes, 150 * kKiB);
  EXPECT_EQ(stats.arena_bytes, 128 * kKiB);  // whole pages
  EXPECT_EQ(stats.held_peak_bytes, 128 * kKiB + 80 * kKiB);
  EXPECT_DOUBLE_EQ(stats.efficiency, 150.0 / 208.0);

  runtime_->Free(more);
  runtime_->ResetPeaks();
  upstream_.ResetPeak();
  stats = runtime_->Stats();
  EXPECT_EQ(stats.peak_live_bytes, 50 * kKiB);
  EXPECT_EQ(stats.held_peak_bytes, 178 * kKiB);
  EXPECT_EQ(stats.run.live_bytes, 150 * kKiB);
  EXPECT_EQ(stats.run.held_bytes, 208 * kKiB);
  EXPECT_EQ(stats.run.upstream_bytes, 80 * kKiB);
  runtime_->Free(other);
}

TEST_F(AllocTest, CapturedRequestsGoUpstream) {
  Start(PlanBuilder().Each(100 * kKiB).Build());
  Iteration();
  void* const captured = runtime_->Allocate(100 * kKiB, 0, Origin::kCaptured);
  EXPECT_FALSE(runtime_->Owns(captured));
  void* const planned = Allocate(100 * kKiB);  // the capture did not use up its entry
  EXPECT_TRUE(runtime_->Owns(planned));
  EXPECT_EQ(Misses(runtime_->Stats(), MissReason::kCapturing), 1u);
  runtime_->Free(captured);
  runtime_->Free(planned);
}

TEST_F(AllocTest, ZeroBytesAndNullAreNothing) {
  Start(PlanBuilder().Each(100 * kKiB).Build());
  EXPECT_EQ(Allocate(0), nullptr);
  runtime_->Free(nullptr);
  runtime_->RecordStream(nullptr, 1);
  EXPECT_EQ(runtime_->Stats().requests, 0u);
  EXPECT_EQ(runtime_->Stats().unknown_frees, 0u);
}

TEST_F(AllocTest, AnArenaThatCannotBeMappedIsAWarningWithBothFiguresAndAnUnplannedRun) {
  Start(PlanBuilder().Each(4 * kMiB).Build(), /*capacity=*/kMiB);
  EXPECT_THAT(runtime_->degraded(), AllOf(HasSubstr("needed 4.00 MiB"), HasSubstr("free 1.00 MiB of 1.00 MiB")));
  EXPECT_THAT(log_.text(), HasSubstr(runtime_->degraded()));
  EXPECT_EQ(log_.lines(), 1u);
  EXPECT_EQ(runtime_->arena(), nullptr);
  Iteration();
  Churn(3, 4 * kMiB);
  EXPECT_EQ(upstream_.allocations(), 3);
  EXPECT_EQ(runtime_->Stats().held_peak_bytes, 4 * kMiB);
  const HostDriver::Counts left = driver_->GetCounts();
  EXPECT_EQ(left.handles + left.maps + left.reservations, 0u);
}

TEST_F(AllocTest, AFreeOfAnUnknownAddressIsCountedLoggedOnceAndHandedOn) {
  Start(PlanBuilder().Each(100 * kKiB).Build());
  std::uint64_t foreign = 0;
  for (int i = 0; i < 3; ++i) runtime_->Free(&foreign);
  EXPECT_EQ(upstream_.frees(), 3);
  EXPECT_EQ(runtime_->Stats().unknown_frees, 3u);
  EXPECT_EQ(runtime_->Stats().live_bytes, 0u);
  EXPECT_EQ(log_.lines(), 2u);  // the first and the second (a power of two), not the third
  // Inside the arena, where no block lives: ours to report, not upstream's to free.
  Iteration();
  void* const planned = Allocate(100 * kKiB);
  runtime_->Free(planned);
  runtime_->Free(planned);
  EXPECT_EQ(upstream_.frees(), 3);
  EXPECT_EQ(runtime_->Stats().unknown_frees, 4u);
  EXPECT_EQ(runtime_->Stats().live_bytes, 0u);
}

// Fork and threads ----------------------------------------------------------------------------------------------------

TEST_F(AllocTest, AForkedChildServesFromUpstreamAndKeepsTheParentsBytes) {
  Start(PlanBuilder().Persistent(100 * kKiB).Each(100 * kKiB).Build());
  void* const weights = Allocate(100 * kKiB);
  ASSERT_TRUE(runtime_->Owns(weights));
  FillPattern(weights, 100 * kKiB, 5);
  void* const outside = Allocate(3 * kKiB);
  Iteration();
  const pid_t child = fork();
  if (child == 0) {
    runtime_->BecomeInert();
    void* const pointer = Allocate(100 * kKiB);  // the plan has it
    int failed = runtime_->Owns(pointer) ? 1 : 0;
    failed |= HasPattern(weights, 100 * kKiB, 5) ? 0 : 2;
    FillPattern(weights, 100 * kKiB, 6);
    runtime_->Free(weights);
    failed |= HasPattern(weights, 100 * kKiB, 6) ? 0 : 4;  // nothing was unmapped
    runtime_->Free(pointer);
    runtime_->Free(outside);
    runtime_->RecordStream(weights, 3);
    runtime_->OnMark(IterationMark(1));
    _exit(failed);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(HasPattern(weights, 100 * kKiB, 5));
  EXPECT_TRUE(runtime_->Owns(Allocate(100 * kKiB)));
  runtime_->Free(outside);
}

TEST_F(AllocTest, ThreadsNeverSeeEachOthersBytes) {
  constexpr int kThreads = 4;
  constexpr int kSteps = 3000;
  PlanBuilder plan;
  for (int i = 0; i < 400; ++i) plan.Each((1 + i % 13) * 4 * kKiB);
  Start(plan.Build());
  Iteration();
  std::vector<std::thread> threads;
  std::atomic<int> broken{0};
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(static_cast<std::uint64_t>(thread) + 77);
      struct Block {
        void* pointer;
        Bytes bytes;
        std::uint8_t key;
      };
      std::vector<Block> blocks;
      for (int step = 0; step < kSteps; ++step) {
        if (blocks.size() < 12 && random() % 5 < 3) {
          const Bytes bytes = (1 + random() % 13) * 4 * kKiB;
          const auto key = static_cast<std::uint8_t>(random());
          void* const pointer = Allocate(bytes);
          FillPattern(pointer, bytes, key);
          blocks.push_back({pointer, bytes, key});
        } else if (!blocks.empty()) {
          std::swap(blocks[random() % blocks.size()], blocks.back());
          if (!HasPattern(blocks.back().pointer, blocks.back().bytes, blocks.back().key)) ++broken;
          runtime_->Free(blocks.back().pointer);
          blocks.pop_back();
        }
        if (thread == 0 && step % 200 == 199) Iteration();
        if (thread == 1 && step % 500 == 0) (void)runtime_->Stats();
      }
      for (const Block& block : blocks) runtime_->Free(block.pointer);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(broken, 0);
  const RuntimeStats stats = runtime_->Stats();
  EXPECT_EQ(stats.live_bytes, 0u);
  EXPECT_EQ(stats.requests, stats.planned_hits + stats.upstream);
  EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
  EXPECT_EQ(upstream_.live(), 0u);
}

}  // namespace
}  // namespace stalloc
