// The engine on real bytes: random programs, diverging on purpose, by several threads. Every block is filled with a
// pattern of its own when it is allocated and checked when it is freed, so two blocks that share a byte are found,
// whoever is to blame.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "allocator/engine/plan_engine.h"
#include "tests/engine/stress_program.h"
#include "tests/engine/stress_seeds.h"

namespace stalloc {
namespace {

class ArenaBytes {
 public:
  explicit ArenaBytes(Bytes bytes)
      : bytes_(bytes), base_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(base_, MAP_FAILED);
  }
  ~ArenaBytes() { munmap(base_, bytes_); }
  ArenaBytes(const ArenaBytes&) = delete;
  ArenaBytes& operator=(const ArenaBytes&) = delete;
  [[nodiscard]] void* base() const { return base_; }

 private:
  Bytes bytes_;
  void* base_;
};

struct Block {
  void* pointer = nullptr;  // null: not served from the arena
  Bytes bytes = 0;
  std::uint64_t key = 0;
};

// Whole words up to the last one that lies within the block.
void Fill(const Block& block) {
  auto* words = static_cast<std::uint64_t*>(block.pointer);
  for (Bytes i = 0; i < block.bytes / 8; ++i) words[i] = block.key + i;
}
[[nodiscard]] bool Intact(const Block& block) {
  const auto* words = static_cast<const std::uint64_t*>(block.pointer);
  for (Bytes i = 0; i < block.bytes / 8; ++i) {
    if (words[i] != block.key + i) return false;
  }
  return true;
}

// Another stream: reads the blocks that were recorded on it, late, and finds out whether they were handed on too early.
class LateStream : public StreamFence {
 public:
  LateStream() : worker_([this] { Work(); }) {}
  ~LateStream() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }

  // Work that reads the block. Before the block's free.
  void Use(const Block& block) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(block);
      ++submitted_;
    }
    changed_.notify_all();
  }

  Event Record(StreamHandle) noexcept override {
    const std::lock_guard lock(mutex_);
    if (++records_ % 7 == 0 && !hurry_) return 0;  // "a capture runs"
    return records_ << 32 | (submitted_ + 1);
  }
  // The engine's own stream is the threads of the test, whose work is done when they do it.
  bool Wait(StreamHandle, Event event) noexcept override {
    while (!Done(event)) std::this_thread::yield();
    return true;
  }
  bool Done(Event event) noexcept override {
    return completed_.load(std::memory_order_acquire) + 1 >= (event & 0xffffffff);
  }
  void Recycle(Event) noexcept override {}

  // Waits until all work is done; from now on no capture runs. Returns how many blocks were found changed.
  int Finish() {
    std::unique_lock lock(mutex_);
    hurry_ = true;
    changed_.notify_all();
    drained_.wait(lock, [this] { return completed_.load(std::memory_order_relaxed) == submitted_; });
    return changed_blocks_;
  }

 private:
  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (stop_) return;
      if (!hurry_ && completed_.load(std::memory_order_relaxed) % 8 == 0)
        changed_.wait_for(lock, std::chrono::microseconds(50), [this] { return stop_ || hurry_; });
      const Block block = queue_.front();
      queue_.pop_front();
      lock.unlock();
      const bool intact = Intact(block);
      lock.lock();
      changed_blocks_ += intact ? 0 : 1;
      completed_.fetch_add(1, std::memory_order_release);
      drained_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable drained_;
  std::deque<Block> queue_;
  std::uint64_t submitted_ = 0;
  std::uint64_t records_ = 0;
  std::atomic<std::uint64_t> completed_{0};
  int changed_blocks_ = 0;
  bool stop_ = false;
  bool hurry_ = false;
  std::thread worker_;
};

Mark IterationBegin() { return {MarkKind::kIteration, MarkEdge::kBegin, Pass::kNone, 0, 0, "", false}; }

class StressRun {
 public:
  StressRun(std::uint64_t seed, std::size_t requests, Bytes max_bytes)
      : random_(seed),
        program_(RandomProgram(requests, max_bytes, random_)),
        plan_(FirstFitPlan(program_)),
        arena_(plan_.arena_bytes),
        engine_(plan_, arena_.base(), &stream_) {}

  // Runs one iteration by `threads` threads, which take its steps in turn; a block is often freed by another thread
  // than allocated it. `recorded`: share of the blocks that the other stream uses, too.
  void RunIteration(const Divergence& divergence, int threads, double recorded, bool check_each_step) {
    iteration_ = Diverge(program_, divergence, random_);
    blocks_.assign(iteration_.requests.size(), Block{});
    allocated_ = std::vector<std::atomic<bool>>(iteration_.requests.size());
    recorded_.assign(iteration_.requests.size(), false);
    for (std::size_t i = 0; i < recorded_.size(); ++i) recorded_[i] = random_() % 1000 < 1000 * recorded;
    engine_.OnMark(IterationBegin());
    next_step_ = 0;
    std::vector<std::thread> workers;
    for (int i = 1; i < threads; ++i) workers.emplace_back([&] { TakeSteps(check_each_step); });
    TakeSteps(check_each_step);
    for (std::thread& worker : workers) worker.join();
    FreeLeftovers();
  }

  void FreeLeftovers() {
    for (const Block& block : left_over_) Free(block);
    left_over_.clear();
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (iteration_.requests[i].freed_next_iteration && blocks_[i].pointer != nullptr)
        left_over_.push_back(blocks_[i]);
    }
    blocks_.clear();
  }

  // All blocks freed and all streams done: the engine must be as new.
  void Finish() {
    FreeLeftovers();
    EXPECT_EQ(stream_.Finish(), 0) << "blocks handed on while another stream still used them";
    for (int mark = 0; mark < 3; ++mark) engine_.OnMark(IterationBegin());  // records what could not be, then polls
    EXPECT_EQ(damaged_, 0) << "blocks damaged by others";
    EXPECT_EQ(foreign_, 0) << "blocks outside the arena";
    EXPECT_EQ(engine_.CheckInvariants(), "");
    const EngineStats stats = engine_.Stats();
    EXPECT_EQ(stats.live_bytes, 0u);
    EXPECT_EQ(stats.live_blocks, 0u);
    EXPECT_EQ(stats.unknown_frees, 0u);
    EXPECT_EQ(stats.pending_blocks, 0u);
    EXPECT_TRUE(engine_.LiveBlocks().empty());
  }

  [[nodiscard]] PlanEngine& engine() { return engine_; }
  // Share of the requests that found their entries: served, or not because late users still had the bytes.
  [[nodiscard]] double MatchRate() const {
    const EngineStats stats = engine_.Stats();
    const std::uint64_t occupied = stats.misses[static_cast<std::size_t>(MissReason::kOccupied)];
    return static_cast<double>(stats.planned_hits + occupied) / static_cast<double>(stats.requests);
  }
  [[nodiscard]] double HitRate() const {
    const EngineStats stats = engine_.Stats();
    return static_cast<double>(stats.planned_hits) / static_cast<double>(stats.requests);
  }

 private:
  void TakeSteps(bool check_each_step) {
    for (std::size_t at = next_step_++; at < iteration_.steps.size(); at = next_step_++) {
      const ReplayStep& step = iteration_.steps[at];
      if (step.allocate) {
        Allocate(step.request);
      } else {
        while (!allocated_[step.request].load(std::memory_order_acquire)) std::this_thread::yield();
        Free(blocks_[step.request]);
      }
      if (check_each_step) {
        const std::string broken = engine_.CheckInvariants();
        ASSERT_EQ(broken, "") << "step " << at;
      }
    }
  }

  void Allocate(std::uint32_t request) {
    Block& block = blocks_[request];
    block.bytes = iteration_.requests[request].bytes;
    block.pointer = engine_.Allocate(block.bytes, 0).pointer;
    block.key = next_key_.fetch_add(1) << 32;
    if (block.pointer != nullptr) {
      const auto offset =
          static_cast<Offset>(static_cast<std::byte*>(block.pointer) - static_cast<std::byte*>(arena_.base()));
      if (offset + block.bytes > plan_.arena_bytes) ++foreign_;
      Fill(block);
      if (recorded_[request]) {
        engine_.RecordStream(block.pointer, 3);
        stream_.Use(block);
      }
    }
    allocated_[request].store(true, std::memory_order_release);
  }

  void Free(const Block& block) {
    if (block.pointer == nullptr) return;
    if (!Intact(block)) ++damaged_;
    EXPECT_EQ(engine_.Free(block.pointer), BlockBytes(block.bytes));
  }

  std::mt19937_64 random_;
  const std::vector<CorpusAllocation> program_;
  const DevicePlan plan_;
  ArenaBytes arena_;
  LateStream stream_;
  PlanEngine engine_;
  StressIteration iteration_;
  std::vector<Block> blocks_;
  std::vector<std::atomic<bool>> allocated_;
  std::vector<char> recorded_;
  std::vector<Block> left_over_;
  std::atomic<std::size_t> next_step_{0};
  std::atomic<std::uint64_t> next_key_{1};
  std::atomic<int> damaged_{0};
  std::atomic<int> foreign_{0};
};

constexpr Divergence kNone{};
constexpr Divergence kSome{
    .inserted = 0.02, .dropped = 0.02, .resized = 0.01, .swapped = 0.01, .freed_late = 0.02, .freed_early = 0.05};
constexpr Divergence kMuch{
    .inserted = 0.2, .dropped = 0.2, .resized = 0.2, .swapped = 0.3, .freed_late = 0.2, .freed_early = 0.2};

class EngineStressTest : public testing::TestWithParam<std::uint64_t> {};

TEST_P(EngineStressTest, AFaithfulRunIsServedWhole) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  StressRun run(GetParam(), 1500, 64 << 10);
  for (int i = 0; i < 3; ++i) run.RunIteration(kNone, 1, 0, false);
  EXPECT_EQ(run.HitRate(), 1.0);
  run.Finish();
}

TEST_P(EngineStressTest, InvariantsHoldAfterEveryStepOfADivergingRun) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  StressRun run(GetParam(), 600, 16 << 10);
  for (int i = 0; i < 3; ++i) run.RunIteration(kSome, 1, 0.05, true);
  EXPECT_GE(run.MatchRate(), 0.9);
  EXPECT_GE(run.HitRate(), 0.1);
  for (int i = 0; i < 2; ++i) run.RunIteration(kMuch, 1, 0.2, true);
  run.Finish();
}

TEST_P(EngineStressTest, ThreadsThatDivergeNeverShareAByte) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  StressRun run(GetParam(), 2500, 32 << 10);
  std::atomic<bool> stop{false};
  std::thread observer([&] {  // reads while others write
    while (!stop) {
      const std::string broken = run.engine().CheckInvariants();
      EXPECT_EQ(broken, "");
      Offset end = 0;
      for (const LiveBlock& block : run.engine().LiveBlocks()) {
        EXPECT_GE(block.offset, end);
        end = block.offset + block.bytes;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (int i = 0; i < 15; ++i) run.RunIteration(kNone, 4, 0.02, false);
  for (int i = 0; i < 15; ++i) run.RunIteration(kSome, 4, 0.05, false);
  EXPECT_GE(run.MatchRate(), 0.7);  // threads that race for their steps ask in a somewhat different order each time
  EXPECT_GE(run.HitRate(), 0.5);    // late frees keep places, the other stream does not: it is waited for
  for (int i = 0; i < 15; ++i) run.RunIteration(kMuch, 4, 0.2, false);
  stop = true;
  observer.join();
  std::printf("seed %llu: %.1f %% matched, %.1f %% served\n", static_cast<unsigned long long>(GetParam()),
              100 * run.MatchRate(), 100 * run.HitRate());
  run.Finish();
}

TEST_P(EngineStressTest, MarksFencesAndDeactivationMayComeAtAnyTime) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  StressRun run(GetParam(), 2000, 16 << 10);
  std::atomic<bool> stop{false};
  std::thread marks([&] {
    std::mt19937_64 random(GetParam());
    bool fenced = false;
    while (!stop) {
      Mark mark = IterationBegin();
      mark.kind = static_cast<MarkKind>(random() % 6 + 1);
      if (mark.kind == MarkKind::kFence) {
        mark.edge = fenced ? MarkEdge::kEnd : MarkEdge::kBegin;
        fenced = !fenced;
      }
      run.engine().OnMark(mark);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    if (fenced) run.engine().OnMark({MarkKind::kFence, MarkEdge::kEnd, Pass::kNone, 0, 0, "", false});
  });
  for (int i = 0; i < 25; ++i) run.RunIteration(kSome, 3, 0.1, false);
  stop = true;
  marks.join();
  run.Finish();
  run.engine().Deactivate();
  run.RunIteration(kNone, 2, 0, false);
  EXPECT_EQ(run.engine().Stats().live_blocks, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, EngineStressTest, StressSeeds(4));

}  // namespace
}  // namespace stalloc
