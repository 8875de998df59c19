// Reuse across streams, proved on a simulated device: whoever gets bytes runs behind everybody who used them before,
// whatever the plan foresaw and however the run diverges from it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "allocator/engine/plan_engine.h"
#include "tests/engine/simulated_device.h"
#include "tests/engine/stress_program.h"
#include "tests/engine/stress_seeds.h"

namespace stalloc {
namespace {

std::byte* const kBase = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);

Mark MarkOf(MarkKind kind) { return {kind, MarkEdge::kBegin, Pass::kNone, 0, 0, "", false}; }

// How the run's streams behave.
struct Streams {
  std::uint32_t planned = 3;  // ordinals of the plan
  double foreseen = 0.5;      // share of the hand-overs that the plan lists
  double recorded = 0.1;      // share of the blocks that another stream uses, too
  double strayed = 0;         // share of the requests from another stream than the plan's
  double elsewhere = 0;       // share of the blocks that another stream uses unrecorded, and that are freed on it; one
                              // thread only: another's request on the block's own stream would be wrong anywhere
  double untouched = 0;       // share of the blocks that no stream ever uses
  bool rotate = false;        // ordinal 1 is another stream in every iteration
  bool per_thread = false;    // ordinal 2 is the per-thread default stream
};

constexpr Divergence kNone{};
constexpr Divergence kSome{
    .inserted = 0.02, .dropped = 0.02, .resized = 0.01, .swapped = 0.01, .freed_late = 0.02, .freed_early = 0.05};
constexpr Divergence kMuch{
    .inserted = 0.2, .dropped = 0.2, .resized = 0.2, .swapped = 0.3, .freed_late = 0.2, .freed_early = 0.2};

// A first-fit plan, whose entries are on `streams.planned` streams: rows of them, as kernels and copies come.
DevicePlan PlanOnStreams(const std::vector<CorpusAllocation>& program, const Streams& streams,
                         std::mt19937_64& random) {
  DevicePlan plan = FirstFitPlan(program);
  std::uint32_t stream = 0;
  for (Entry& entry : plan.cycle[0].entries) {
    if (random() % 8 == 0) stream = static_cast<std::uint32_t>(random() % streams.planned);
    entry.stream = stream;
  }
  const std::vector<Entry>& entries = plan.cycle[0].entries;
  for (const Entry& from : entries) {
    for (const Entry& to : entries) {
      const Slot& a = plan.slots[from.slot];
      const Slot& b = plan.slots[to.slot];
      const bool meet = a.offset < b.offset + b.capacity && b.offset < a.offset + a.capacity;
      if (from.stream != to.stream && meet && random() % 1000 < 1000 * streams.foreseen) {
        plan.stream_edges.push_back({from.slot, to.slot, from.stream, to.stream});
      }
    }
  }
  return plan;
}

// Who is served: what has a slot, or also what has none, from idle room and above the plan's height.
enum class Served : std::uint8_t { kSlots, kEverything };

// Maps whatever the engine asks for.
class Growth final : public ArenaBacking {
 public:
  explicit Growth(Bytes mapped) : mapped_(mapped) {}
  void Feed(PlanEngine* engine) {
    engine_ = engine;
    engine->SetBacking(this);
  }
  bool Back(Offset offset, Bytes bytes, std::uint64_t /*now*/, bool /*may_grow*/) noexcept override {
    const std::lock_guard lock(mutex_);
    mapped_ = std::max(mapped_, offset + bytes);
    engine_->Extend(mapped_);
    return true;
  }

 private:
  PlanEngine* engine_ = nullptr;
  std::mutex mutex_;
  Bytes mapped_;
};

class OrderRun {
 public:
  OrderRun(std::uint64_t seed, std::size_t requests, const Streams& streams, SimulatedDevice::Habits habits,
           Served served = Served::kSlots)
      : random_(seed),
        lends_random_(seed),
        streams_(streams),
        program_(RandomProgram(requests, 16 << 10, random_)),
        plan_(PlanOnStreams(program_, streams, random_)),
        dynamic_(served == Served::kEverything ? DynamicSpaceOptions{.limit_bytes = 2 * plan_.arena_bytes,
                                                                     .mapped_bytes = plan_.arena_bytes,
                                                                     .least_bytes = 1}
                                               : DynamicSpaceOptions{}),
        device_(static_cast<std::uint32_t>(std::max(plan_.arena_bytes, dynamic_.limit_bytes) / kBlockAlignment), seed,
                habits),
        growth_(plan_.arena_bytes),
        engine_(plan_, kBase, &device_, dynamic_) {
    growth_.Feed(&engine_);
  }

  // From now on; one thread only.
  void LendParts() { lends_ = true; }

  void RunIteration(const Divergence& divergence, int threads) {
    iteration_ = Diverge(program_, divergence, random_);
    blocks_.assign(iteration_.requests.size(), {});
    allocated_ = std::vector<std::atomic<bool>>(iteration_.requests.size());
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      // The program's i-th request, or nearly so where the iteration diverges.
      blocks_[i].stream = HandleOf(plan_.cycle[0].entries[std::min(i, program_.size() - 1)].stream);
      if (Happens(streams_.strayed)) blocks_[i].stream = random_() % 12;
      if (Happens(streams_.recorded)) blocks_[i].also = 1 + random_() % 14;
      if (Happens(streams_.elsewhere)) blocks_[i].elsewhere = 1 + random_() % 4;
      if (Happens(streams_.untouched)) blocks_[i].untouched = true;
      blocks_[i].parallel = dynamic_.limit_bytes > 0 && Happens(0.02);
    }
    engine_.OnMark(MarkOf(MarkKind::kIteration));
    ++iterations_;
    next_step_ = 0;
    std::vector<std::thread> workers;
    for (int i = 1; i < threads; ++i) workers.emplace_back([this] { TakeSteps(); });
    TakeSteps();
    for (std::thread& worker : workers) worker.join();
    FreeLeftovers();
  }

  // Parts of the arena go back to the device for a while, those that the engine says it is done with. One thread at a
  // time does this, beside those of RunIteration.
  void LendQuietParts() {
    constexpr std::uint32_t kPart = 64;
    const std::uint32_t end = static_cast<std::uint32_t>(plan_.arena_bytes / kBlockAlignment) / kPart * kPart;
    for (std::uint32_t lo = 0; lo < end; lo += kPart) {
      if (lends_random_() % 4 != 0 || !engine_.Withdraw(lo * kBlockAlignment, kPart * kBlockAlignment)) continue;
      const bool quiet = engine_.IsQuiet(lo * kBlockAlignment, kPart * kBlockAlignment);
      (quiet ? quiet_parts_ : busy_parts_) += 1;
      EXPECT_TRUE(!quiet || device_.IsDone(lo, lo + kPart)) << "granule " << lo;
      if (quiet && lent_.size() < 8) {
        lent_.push_back(lo);
      } else {
        engine_.Restore(lo * kBlockAlignment, kPart * kBlockAlignment);
      }
    }
  }
  void TakeBackParts() {
    for (const std::uint32_t lo : std::exchange(lent_, {})) {
      engine_.Restore(lo * kBlockAlignment, 64 * kBlockAlignment);
    }
  }
  [[nodiscard]] std::uint64_t quiet_parts() const { return quiet_parts_; }
  [[nodiscard]] std::uint64_t busy_parts() const { return busy_parts_; }

  void Finish() {
    TakeBackParts();
    FreeLeftovers();
    EXPECT_EQ(engine_.CheckInvariants(), "");
    const EngineStats stats = engine_.Stats();
    EXPECT_EQ(stats.live_blocks, 0u);
    EXPECT_EQ(stats.unknown_frees, 0u);
    EXPECT_EQ(stats.retained_blocks, 0u);
  }

  [[nodiscard]] const SimulatedDevice& device() const { return device_; }
  [[nodiscard]] SimulatedDevice& device() { return device_; }
  [[nodiscard]] PlanEngine& engine() { return engine_; }
  [[nodiscard]] double HitRate() const {
    const EngineStats stats = engine_.Stats();
    return static_cast<double>(stats.planned_hits) / static_cast<double>(stats.requests);
  }
  [[nodiscard]] double ShareBeside() const {
    const EngineStats stats = engine_.Stats();
    return static_cast<double>(stats.dynamic_hits) / static_cast<double>(stats.requests);
  }

 private:
  struct Block {
    void* pointer = nullptr;
    StreamHandle stream = 0;
    StreamHandle also = 0;       // 0: no other stream
    StreamHandle elsewhere = 0;  // uses it unrecorded, and it is freed there; 0: none
    bool parallel = false;       // asked for from a parallel region
    bool untouched = false;      // nobody uses it
    std::uint32_t lo = 0;
    std::uint32_t hi = 0;
  };

  [[nodiscard]] bool Happens(double share) { return random_() % 100'000 < 100'000 * share; }

  [[nodiscard]] StreamHandle HandleOf(std::uint32_t ordinal) const {
    if (ordinal == 0) return kLegacyDefaultStream;
    if (ordinal == 1 && streams_.rotate) return 20 + iterations_ % 7;
    return ordinal == 2 && streams_.per_thread ? kPerThreadDefaultStream : StreamHandle{4} + ordinal;
  }

  void TakeSteps() {
    for (std::size_t at = next_step_++; at < iteration_.steps.size(); at = next_step_++) {
      const ReplayStep& step = iteration_.steps[at];
      Block& block = blocks_[step.request];
      if (step.allocate) {
        Allocate(block, iteration_.requests[step.request].bytes);
        allocated_[step.request].store(true, std::memory_order_release);
      } else {
        while (!allocated_[step.request].load(std::memory_order_acquire)) std::this_thread::yield();
        Free(block);
      }
      if (at % 97 == 0) engine_.OnMark(MarkOf(MarkKind::kMicrobatch));
      if (lends_ && at % 53 == 0) LendQuietParts();
      if (lends_ && at % 211 == 0) TakeBackParts();
    }
  }

  void Allocate(Block& block, Bytes bytes) {
    block.pointer = block.parallel ? engine_.AllocateUnexpected(bytes, block.stream, MissReason::kParallel).pointer
                                   : engine_.Allocate(bytes, block.stream).pointer;
    if (block.pointer == nullptr) return;
    block.lo = static_cast<std::uint32_t>((static_cast<std::byte*>(block.pointer) - kBase) / kBlockAlignment);
    block.hi = block.lo + static_cast<std::uint32_t>(BlockBytes(bytes) / kBlockAlignment);
    if (block.untouched) return;
    if (streams_.elsewhere > 0) {
      for (const StreamHandle stream : std::exchange(ElsewhereOf(block), {})) {
        device_.OrderBehind(block.stream, stream);
      }
    }
    device_.Begin(block.lo, block.hi, block.stream);
    if (block.also == 0) return;
    engine_.RecordStream(block.pointer, block.also);
    device_.UseBehind(block.lo, block.hi, block.also, block.stream);
  }

  void Free(Block& block) {
    if (block.pointer == nullptr) return;
    if (block.elsewhere != 0 && !block.untouched) return FreeElsewhere(block, block.elsewhere);
    // On the per-thread stream another thread may free, but only the one that allocated uses the block.
    if (block.stream != kPerThreadDefaultStream && !block.untouched) device_.Use(block.lo, block.hi, block.stream);
    EXPECT_EQ(engine_.Free(block.pointer), Bytes{block.hi - block.lo} * kBlockAlignment);
    block.pointer = nullptr;
  }

  std::vector<StreamHandle>& ElsewhereOf(const Block& block) {
    return elsewhere_[block.stream == kLegacyDefaultStreamToo ? kLegacyDefaultStream : block.stream];
  }

  // The block's own stream is made to wait only before it uses the next block.
  void FreeElsewhere(Block& block, StreamHandle stream) {
    device_.UseBehind(block.lo, block.hi, stream, block.stream);
    EXPECT_EQ(engine_.Free(block.pointer, stream), Bytes{block.hi - block.lo} * kBlockAlignment);
    ElsewhereOf(block).push_back(stream);
    block.pointer = nullptr;
  }

  void FreeLeftovers() {
    for (Block& block : left_over_) Free(block);
    left_over_.clear();
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (iteration_.requests[i].freed_next_iteration && blocks_[i].pointer != nullptr) {
        left_over_.push_back(blocks_[i]);
      }
    }
    blocks_.clear();
  }

  std::mt19937_64 random_;
  std::mt19937_64 lends_random_;
  const Streams streams_;
  const std::vector<CorpusAllocation> program_;
  const DevicePlan plan_;
  const DynamicSpaceOptions dynamic_;
  SimulatedDevice device_;
  Growth growth_;
  PlanEngine engine_;
  StressIteration iteration_;
  std::vector<Block> blocks_;
  std::vector<std::atomic<bool>> allocated_;
  std::vector<Block> left_over_;
  std::map<StreamHandle, std::vector<StreamHandle>> elsewhere_;  // blocks of the first were freed on these
  std::uint64_t iterations_ = 0;
  std::atomic<std::size_t> next_step_{0};
  bool lends_ = false;
  std::vector<std::uint32_t> lent_;  // granules
  std::uint64_t quiet_parts_ = 0;    // as the engine says
  std::uint64_t busy_parts_ = 0;
};

// Four threads that diverge, and one that looks on and lends.
void RunThreadsWatched(OrderRun& run) {
  std::atomic<bool> stop{false};
  std::thread observer([&] {
    while (!stop) {
      const std::string broken = run.engine().CheckInvariants();
      EXPECT_EQ(broken, "");
      run.LendQuietParts();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      run.TakeBackParts();
    }
  });
  for (int i = 0; i < 8; ++i) run.RunIteration(i % 2 == 0 ? kSome : kMuch, 4);
  stop = true;
  observer.join();
}

class StreamOrderTest : public testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override { RecordProperty("seed", static_cast<int>(GetParam())); }
};

TEST_P(StreamOrderTest, AFaithfulRunIsServedWholeAndInOrder) {
  for (const double foreseen : {0.0, 0.5, 1.0}) {
    OrderRun run(GetParam(), 600, {.foreseen = foreseen, .recorded = 0.05}, {});
    for (int i = 0; i < 4; ++i) run.RunIteration(kNone, 1);
    EXPECT_EQ(run.HitRate(), 1.0) << foreseen;
    EXPECT_EQ(run.device().violations(), 0u) << foreseen;
    EXPECT_GT(run.engine().Stats().stream_waits, 0u);
    run.Finish();
  }
}

TEST_P(StreamOrderTest, ADivergingRunStaysInOrder) {
  OrderRun run(GetParam(), 600, {.recorded = 0.1, .strayed = 0.05}, {.refuses = 0.05});
  for (int i = 0; i < 6; ++i) run.RunIteration(i % 2 == 0 ? kSome : kMuch, 1);
  EXPECT_EQ(run.device().violations(), 0u);
  EXPECT_GT(run.HitRate(), 0.1);
  run.Finish();
}

TEST_P(StreamOrderTest, StreamsThatChangeHandsEachIterationStayInOrder) {
  OrderRun run(GetParam(), 500, {.rotate = true}, {});
  for (int i = 0; i < 8; ++i) run.RunIteration(kNone, 1);
  EXPECT_EQ(run.HitRate(), 1.0);
  EXPECT_EQ(run.device().violations(), 0u);
  run.Finish();
  OrderRun odd(GetParam(), 500, {.strayed = 0.02, .rotate = true}, {.refuses = 0.1});
  for (int i = 0; i < 8; ++i) odd.RunIteration(kSome, 1);
  EXPECT_EQ(odd.device().violations(), 0u);
  odd.Finish();
}

TEST_P(StreamOrderTest, ThreadsOnPerThreadStreamsStayInOrder) {
  OrderRun run(GetParam(), 500, {.strayed = 0.02, .per_thread = true}, {.refuses = 0.02});
  for (int i = 0; i < 6; ++i) run.RunIteration(i % 2 == 0 ? kNone : kSome, 4);
  EXPECT_EQ(run.device().violations(), 0u);
  EXPECT_GT(run.HitRate(), 0.1);
  run.Finish();
}

TEST_P(StreamOrderTest, ThreadsThatDivergeStayInOrder) {
  OrderRun run(GetParam(), 800, {.planned = 4, .recorded = 0.1, .strayed = 0.05, .rotate = true}, {.refuses = 0.02});
  RunThreadsWatched(run);
  EXPECT_EQ(run.device().violations(), 0u);
  run.Finish();
}

TEST_P(StreamOrderTest, BlocksFreedOnAnotherStreamStayInOrder) {
  for (const Served served : {Served::kSlots, Served::kEverything}) {
    OrderRun run(GetParam(), 600, {.recorded = 0.02, .strayed = 0.05, .elsewhere = 0.1, .untouched = 0.3},
                 {.refuses = 0.02}, served);
    for (int i = 0; i < 6; ++i) run.RunIteration(i % 2 == 0 ? kNone : kSome, 1);
    EXPECT_EQ(run.device().violations(), 0u);
    run.Finish();
    OrderRun alone(GetParam(), 500,
                   {.planned = 1, .recorded = 0.2, .strayed = 0.05, .elsewhere = 0.2, .untouched = 0.3}, {}, served);
    for (int i = 0; i < 6; ++i) alone.RunIteration(kNone, 1);
    EXPECT_DOUBLE_EQ(alone.HitRate() + alone.ShareBeside(), 1.0);
    EXPECT_EQ(alone.device().violations(), 0u);
    alone.Finish();
  }
}

// A plan of one stream, and blocks that other streams ask for all the same.
TEST_P(StreamOrderTest, APlanOfOneStreamServesOthersInOrder) {
  OrderRun run(GetParam(), 500, {.planned = 1, .recorded = 0, .strayed = 0.1}, {});
  for (int i = 0; i < 4; ++i) run.RunIteration(kNone, 1);
  EXPECT_EQ(run.HitRate(), 1.0);
  EXPECT_EQ(run.device().violations(), 0u);
  run.Finish();
  OrderRun faithful(GetParam(), 500, {.planned = 1, .recorded = 0}, {});
  for (int i = 0; i < 4; ++i) faithful.RunIteration(kNone, 1);
  EXPECT_EQ(faithful.engine().Stats().stream_events, 0u) << "one stream needs no events";
}

TEST_P(StreamOrderTest, EventsAreGivenBack) {
  OrderRun run(GetParam(), 600, {.foreseen = 1.0}, {});
  for (int i = 0; i < 20; ++i) run.RunIteration(kNone, 1);
  run.device().CalmDown();
  for (int mark = 0; mark < 3; ++mark) run.engine().OnMark(MarkOf(MarkKind::kIteration));
  EXPECT_EQ(run.device().outstanding_events(), 0u);
  EXPECT_EQ(run.device().violations(), 0u);
  EXPECT_EQ(run.engine().Stats().pending_blocks, 0u);
  EXPECT_TRUE(run.engine().LiveBlocks().empty());
}

TEST_P(StreamOrderTest, BlocksBesideTheSlotsStayInOrder) {
  OrderRun run(GetParam(), 600, {.recorded = 0.1, .strayed = 0.05, .rotate = GetParam() % 2 == 0}, {.refuses = 0.05},
               Served::kEverything);
  for (int i = 0; i < 6; ++i) run.RunIteration(i % 2 == 0 ? kSome : kMuch, 1);
  EXPECT_EQ(run.device().violations(), 0u);
  EXPECT_GT(run.HitRate(), 0.1);
  EXPECT_GT(run.ShareBeside(), 0.1);
  run.Finish();
}

TEST_P(StreamOrderTest, BlocksBesideTheSlotsOfAPlanOfOneStreamStayInOrder) {
  OrderRun run(GetParam(), 500, {.planned = 1, .recorded = 0.02, .strayed = 0.1}, {}, Served::kEverything);
  for (int i = 0; i < 6; ++i) run.RunIteration(i % 2 == 0 ? kSome : kMuch, 1);
  EXPECT_EQ(run.device().violations(), 0u);
  EXPECT_GT(run.ShareBeside(), 0.1);
  run.Finish();
  OrderRun faithful(GetParam(), 500, {.planned = 1, .recorded = 0}, {}, Served::kEverything);
  for (int i = 0; i < 4; ++i) faithful.RunIteration(kMuch, 1);
  EXPECT_EQ(faithful.engine().Stats().stream_events, 0u) << "one stream needs no events";
}

TEST_P(StreamOrderTest, ThreadsThatDivergeBesideTheSlotsStayInOrder) {
  OrderRun run(GetParam(), 800, {.planned = 4, .recorded = 0.1, .strayed = 0.05, .per_thread = true}, {.refuses = 0.02},
               Served::kEverything);
  RunThreadsWatched(run);
  EXPECT_EQ(run.device().violations(), 0u);
  EXPECT_GT(run.ShareBeside(), 0.1);
  run.Finish();
}

// What the engine calls quiet nobody uses any more, so that its memory may go without a wait.
TEST_P(StreamOrderTest, QuietPartsAreDone) {
  std::uint64_t quiet = 0;
  std::uint64_t busy = 0;
  for (const std::uint32_t planned : {1, 3}) {
    for (const Served served : {Served::kSlots, Served::kEverything}) {
      OrderRun run(GetParam(), 600,
                   {.planned = planned, .recorded = 0.1, .strayed = 0.05, .elsewhere = 0.1, .rotate = true},
                   {.refuses = 0.02, .finishes = 0.9}, served);
      run.LendParts();
      for (int i = 0; i < 6; ++i) run.RunIteration(i % 2 == 0 ? kNone : kSome, 1);
      EXPECT_EQ(run.device().violations(), 0u);
      quiet += run.quiet_parts();
      busy += run.busy_parts();
      run.Finish();
    }
  }
  EXPECT_GT(quiet, 5u);
  EXPECT_GT(busy, 5u);
}

// The simulation itself: a device that does not do what it says is found out.
TEST_P(StreamOrderTest, ADeviceThatDoesNotOrderIsFoundOut) {
  for (const SimulatedDevice::Habits& habits :
       {SimulatedDevice::Habits{.waits_do_nothing = true}, SimulatedDevice::Habits{.events_are_early = true},
        SimulatedDevice::Habits{.finishes = 1, .done_lies = true}}) {
    OrderRun run(GetParam(), 600, {}, habits);
    for (int i = 0; i < 4; ++i) run.RunIteration(kNone, 1);
    EXPECT_GT(run.device().violations(), 0u);
    OrderRun beside(GetParam(), 600, {}, habits, Served::kEverything);
    for (int i = 0; i < 4; ++i) beside.RunIteration(kMuch, 1);
    EXPECT_GT(beside.device().violations(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, StreamOrderTest, StressSeeds(8));

}  // namespace
}  // namespace stalloc
