// The whole DeviceRuntime on real bytes: arena, engine, upstream, chunks that go back and come again, emptied caches,
// limits, marks and giving up, with slots alone and with room beside them, by several threads that free each other's
// blocks, while the run diverges at random. Every block, wherever it lies, is filled with a pattern of its own and
// checked when it is freed.
//
//   STALLOC_STRESS_SECONDS (2)   how long, in rounds of a fraction of a second
//   STALLOC_STRESS_SEED (1)      of the first round; a failure names its round's seed, which then is the first to try
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "allocator/driver/host_driver.h"
#include "allocator/runtime/device_runtime.h"
#include "tests/engine/stress_program.h"
#include "tests/runtime/fake_upstream.h"
#include "tests/runtime/log_capture.h"
#include "tests/runtime/plan_builder.h"

namespace stalloc {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Bytes kPage = 64 << 10;
constexpr Divergence kFaithful{};
constexpr Divergence kSome{
    .inserted = 0.02, .dropped = 0.02, .resized = 0.01, .swapped = 0.01, .freed_late = 0.02, .freed_early = 0.05};
constexpr Divergence kMuch{
    .inserted = 0.2, .dropped = 0.2, .resized = 0.3, .swapped = 0.3, .freed_late = 0.2, .freed_early = 0.2};

std::uint64_t FromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Block {
  void* pointer = nullptr;  // null: not allocated, or upstream was out of memory
  Bytes bytes = 0;
  std::uint64_t key = 0;

  void Fill() const {
    auto* const words = static_cast<std::uint64_t*>(pointer);
    for (Bytes i = 0; i < bytes / 8; ++i) words[i] = key + i;
  }
  [[nodiscard]] bool Intact() const {
    const auto* const words = static_cast<const std::uint64_t*>(pointer);
    for (Bytes i = 0; i < bytes / 8; ++i) {
      if (words[i] != key + i) return false;
    }
    return true;
  }
};

// One process: a random program, its plan, and iterations of it.
class Round {
 public:
  explicit Round(std::uint64_t seed)
      : random_(seed),
        program_(RandomProgram(300 + random_() % 700, Bytes{1} << (12 + random_() % 5), random_)),
        plan_(FirstFitPlan(program_)),
        record_streams_(random_() % 4 == 0),
        upstream_fails_(random_() % 2 == 0),
        // Some devices have no room to spare: what was given back may not come again.
        driver_(HostDriver::Create(
            {.capacity = RoundUp(plan_.arena_bytes, kPage) + random_() % 2 * (Bytes{1} << 30), .granularity = kPage})),
        runtime_(std::make_unique<DeviceRuntime>(DeviceRuntime::Parts{.device = kCpuDevice,
                                                                      .upstream = &upstream_,
                                                                      .driver = driver_.get(),
                                                                      .plan = &plan_,
                                                                      .dynamic = random_() % 2 == 0})) {
    EXPECT_EQ(runtime_->degraded(), "");
  }

  // Over a round.
  struct Served {
    std::uint64_t planned = 0;
    std::uint64_t dynamic = 0;
    std::uint64_t times_given_back = 0;
  };
  [[nodiscard]] const Served& served() const { return served_; }

  // `turns_away`: from some iteration on it is another program. True if the plan was given up (not if fences happened
  // to hide most requests).
  bool Run(int iterations, bool turns_away) {
    const int turn = turns_away ? iterations / 3 : iterations;
    for (int i = 0; i < iterations; ++i) {
      if (i == turn) program_ = RandomProgram(program_.size(), Bytes{50} << 10, random_);
      const Divergence* const kinds[] = {&kFaithful, &kSome, &kMuch};
      Iterate(*kinds[random_() % (turns_away ? 2 : 3)]);
    }
    const bool gave_up = runtime_->Stats().gave_up;
    Finish();
    return gave_up;
  }

 private:
  void Iterate(const Divergence& divergence) {
    iteration_ = Diverge(program_, divergence, random_);
    blocks_.assign(iteration_.requests.size(), Block{});
    allocated_ = std::vector<std::atomic<bool>>(iteration_.requests.size());
    runtime_->OnMark(IterationMark(number_++));
    next_step_ = 0;
    std::atomic<bool> stop{false};
    std::thread observer([this, &stop, seed = random_()] { Observe(seed, stop); });
    std::vector<std::thread> workers;
    for (std::uint64_t more = random_() % 4; more > 0; --more) workers.emplace_back([this] { TakeSteps(); });
    TakeSteps();
    for (std::thread& worker : workers) worker.join();
    stop = true;
    observer.join();
    FreeLeftovers();
  }

  // The host thread of a loop that marks, and somebody who looks at statistics meanwhile.
  void Observe(std::uint64_t seed, const std::atomic<bool>& stop) {
    std::mt19937_64 random(seed);
    bool fenced = false;
    do {
      switch (random() % 8) {
        case 0:
          fenced = !fenced;
          runtime_->OnMark(
              {MarkKind::kFence, fenced ? MarkEdge::kBegin : MarkEdge::kEnd, Pass::kNone, 0, 0, "eval", false});
          break;
        case 1:
          runtime_->OnMark({MarkKind::kMicrobatch, MarkEdge::kBegin, Pass::kForward, 0, 0, "", false});
          break;
        case 2:
          runtime_->ResetPeaks();
          break;
        case 3:
          if (upstream_fails_) upstream_.FailNext(1);
          break;
        case 4:
          runtime_->EmptyCache();
          break;
        case 5:
          runtime_->SetHeldLimit(random() % 2 * plan_.arena_bytes);
          break;
        default:
          CheckStats(runtime_->Stats());
      }
      EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    } while (!stop);
    if (fenced) runtime_->OnMark({MarkKind::kFence, MarkEdge::kEnd, Pass::kNone, 0, 0, "eval", false});
  }

  static void CheckStats(const RuntimeStats& stats) {
    EXPECT_LE(stats.planned_hits, stats.requests);
    EXPECT_LE(stats.arena_live_bytes, stats.engine.peak_live_bytes);
    EXPECT_LE(stats.steady.hits, stats.steady.requests);
  }

  // Threads take the iteration's steps in turn; a block is often freed by another thread than allocated it.
  void TakeSteps() {
    for (std::size_t at = next_step_++; at < iteration_.steps.size(); at = next_step_++) {
      const ReplayStep& step = iteration_.steps[at];
      if (step.allocate) {
        Allocate(step.request);
        continue;
      }
      while (!allocated_[step.request].load(std::memory_order_acquire)) std::this_thread::yield();
      Free(blocks_[step.request]);
    }
  }

  void Allocate(std::uint32_t request) {
    Block& block = blocks_[request];
    block.bytes = iteration_.requests[request].bytes;
    block.key = next_key_.fetch_add(1) << 32;
    const std::uint64_t chance = block.key >> 32;
    const Origin origin = chance % 50 == 0   ? Origin::kCaptured
                          : chance % 51 == 0 ? Origin::kParallel
                                             : Origin::kProgram;
    try {
      block.pointer = runtime_->Allocate(block.bytes, 0, origin);
      block.Fill();
      if (record_streams_ && chance % 200 == 0) runtime_->RecordStream(block.pointer, 0x1000);
    } catch (const std::bad_alloc&) {
      ++refused_;  // upstream had nothing, nor had the arena anything to give back
    }
    allocated_[request].store(true, std::memory_order_release);
  }

  void Free(const Block& block) {
    if (block.pointer == nullptr) return;
    if (!block.Intact()) ++damaged_;
    runtime_->Free(block.pointer);
  }

  void FreeLeftovers() {
    for (const Block& block : left_over_) Free(block);
    left_over_.clear();
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (iteration_.requests[i].freed_next_iteration) left_over_.push_back(blocks_[i]);
    }
    blocks_.clear();
  }

  // All blocks freed: everything must be as new, or given back.
  void Finish() {
    FreeLeftovers();
    runtime_->OnMark(IterationMark(number_++));
    EXPECT_EQ(damaged_, 0) << "blocks damaged by others";
    EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
    const RuntimeStats stats = runtime_->Stats();
    EXPECT_EQ(stats.live_bytes, 0u);
    EXPECT_EQ(stats.arena_live_bytes, 0u);
    EXPECT_EQ(stats.unknown_frees, 0u);
    EXPECT_EQ(stats.requests, stats.planned_hits + stats.dynamic_hits + stats.upstream + refused_);
    served_ = {stats.planned_hits, stats.dynamic_hits, stats.lent.times_given_back};
    EXPECT_EQ(upstream_.live(), 0u);
    EXPECT_EQ(driver_->GetCounts().handle_bytes, stats.arena_bytes);
    if (stats.gave_up) {
      EXPECT_EQ(stats.arena_bytes, 0u);
    }
    runtime_.reset();
    const HostDriver::Counts left = driver_->GetCounts();
    EXPECT_EQ(left.handles + left.maps + left.reservations, 0u);
  }

  LogCapture log_;
  std::mt19937_64 random_;
  std::vector<CorpusAllocation> program_;
  const DevicePlan plan_;
  const bool record_streams_;
  const bool upstream_fails_;
  FakeUpstream upstream_;
  std::unique_ptr<HostDriver> driver_;
  std::unique_ptr<DeviceRuntime> runtime_;
  StressIteration iteration_;
  std::vector<Block> blocks_;
  std::vector<std::atomic<bool>> allocated_;
  std::vector<Block> left_over_;
  std::atomic<std::size_t> next_step_{0};
  std::atomic<std::uint64_t> next_key_{1};
  std::atomic<std::uint64_t> refused_{0};
  std::atomic<int> damaged_{0};
  Served served_;
  int number_ = 0;
};

TEST(RuntimeStressTest, ThreadsThatDivergeAtRandomNeverShareAByte) {
  const auto end = Clock::now() + std::chrono::seconds(FromEnvironment("STALLOC_STRESS_SECONDS", 2));
  std::uint64_t seed = FromEnvironment("STALLOC_STRESS_SEED", 1);
  const std::uint64_t first = seed;
  int given_up = 0;
  Round::Served served;
  do {
    SCOPED_TRACE("STALLOC_STRESS_SEED=" + std::to_string(seed));
    Round round(seed);
    given_up += round.Run(9, seed % 3 == 0) ? 1 : 0;
    served.planned += round.served().planned;
    served.dynamic += round.served().dynamic;
    served.times_given_back += round.served().times_given_back;
    ++seed;
  } while (!testing::Test::HasFailure() && (Clock::now() < end || seed < first + 9));
  EXPECT_GT(given_up, 0);
  EXPECT_GT(served.planned, 0u);
  EXPECT_GT(served.dynamic, 0u);
  EXPECT_GT(served.times_given_back, 0u);
  std::printf("rounds: seeds %llu to %llu, in %d of them the plan was given up\n",
              static_cast<unsigned long long>(first), static_cast<unsigned long long>(seed - 1), given_up);
}

}  // namespace
}  // namespace stalloc
