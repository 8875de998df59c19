// What an arena on a free card comes to hold over a thousand iterations whose requests are others each time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "allocator/runtime/planned_space.h"
#include "planner/analysis/rank_planner.h"
#include "planner/analysis/simulate_expandable.h"
#include "planner/packing/portfolio.h"
#include "planner/trial/slot_trial.h"
#include "tests/runtime/alloc_fixture.h"
#include "tests/runtime/pattern.h"
#include "tests/runtime/training_loops.h"

namespace stalloc {
namespace free_card {

constexpr int kTraced = 5;
constexpr Bytes kGranularity = 2 * kMiB;

// Its events are done so many marks after they were recorded.
class LaggingFence final : public StreamFence {
 public:
  explicit LaggingFence(std::uint64_t lag) : lag_(lag) {}
  void OnMark() { ++now_; }
  Event Record(StreamHandle /*stream*/) noexcept override {
    recorded_.push_back(now_);
    return recorded_.size();
  }
  Event RecordAll() noexcept override { return Record(0); }
  bool Wait(StreamHandle /*stream*/, Event /*event*/) noexcept override { return true; }
  bool Done(Event event) noexcept override { return recorded_[event - 1] + lag_ <= now_; }
  void Recycle(Event /*event*/) noexcept override {}

 private:
  const std::uint64_t lag_;
  std::uint64_t now_ = 0;
  std::vector<std::uint64_t> recorded_;  // at which mark, by event
};

// A runtime, and PyTorch's allocator with expandable_segments beside it.
class ServedMachine final : public Machine {
 public:
  ServedMachine(DeviceRuntime& runtime, LaggingFence& fence) : runtime_(runtime), fence_(fence) {}

  Block Allocate(Bytes bytes, StreamHandle stream) override {
    const Bytes rounded = BlockBytes(bytes);
    const Block block = next_++;
    const Live live{.pointer = runtime_.Allocate(bytes, stream, Origin::kProgram),
                    .bytes = bytes,
                    .other = other_.Allocate(rounded, {.stream = stream == TrainingLoop::kMain ? 0u : 1u,
                                                       .small = rounded <= kSmallRequest})};
    live_.emplace(block, live);
    if (live.pointer == nullptr) {
      ++refused_;
      return block;
    }
    FillPattern(live.pointer, PartOf(live), KeyOf(block));
    FillPattern(EndOf(live), PartOf(live), KeyOf(block));
    return block;
  }
  void Free(Block block) override {
    const Live live = live_.at(block);
    const bool kept =
        HasPattern(live.pointer, PartOf(live), KeyOf(block)) && HasPattern(EndOf(live), PartOf(live), KeyOf(block));
    lost_ += kept ? 0 : 1;
    runtime_.Free(live.pointer);
    other_.Free(live.other);
    live_.erase(block);
  }
  void RecordStream(Block block, StreamHandle stream) override {
    runtime_.RecordStream(live_.at(block).pointer, stream);
  }
  void OnMark(const Mark& mark) override {
    fence_.OnMark();
    runtime_.OnMark(mark);
  }

  [[nodiscard]] Bytes other_held() const { return other_.held_bytes(); }
  [[nodiscard]] std::uint64_t refused() const { return refused_; }
  [[nodiscard]] std::uint64_t lost() const { return lost_; }  // blocks whose bytes were not kept

 private:
  struct Live {
    void* pointer = nullptr;
    Bytes bytes = 0;
    planner::SimulatedAllocator::BlockId other = 0;
  };
  // A page at either end.
  static Bytes PartOf(const Live& live) { return std::min<Bytes>(live.bytes, 4 * kKiB); }
  static void* EndOf(const Live& live) { return static_cast<std::byte*>(live.pointer) + live.bytes - PartOf(live); }
  static std::uint8_t KeyOf(Block block) { return static_cast<std::uint8_t>(1 + block % 251); }

  DeviceRuntime& runtime_;
  LaggingFence& fence_;
  planner::ExpandableSimulation other_;
  std::unordered_map<Block, Live> live_;
  Block next_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t lost_ = 0;
};

DevicePlan PlanOf(const Trace& trace) {
  planner::RankPlannerOptions options;
  options.packing.work = planner::WorkOfSeconds(0.02);
  const planner::SlotTrial trial;
  options.slot_judge = &trial;
  const auto result = planner::PlanRank(trace, options, *planner::MakePortfolio());
  return result.value().plan.value().devices.front();
}

// After an iteration.
struct Sample {
  Bytes arena = 0;
  Bytes live = 0;   // the most, so far
  Bytes other = 0;  // what PyTorch would hold
  std::uint64_t moved = 0;
  std::uint64_t waited = 0;
  std::uint64_t mapped = 0;  // times
};

double Mib(Bytes bytes) { return static_cast<double>(bytes) / kMiB; }
double Ratio(Bytes bytes, Bytes of) { return static_cast<double>(bytes) / static_cast<double>(of); }

class LongRunTest : public AllocTest {
 protected:
  void StartLoop(const LoopKind& kind, std::uint64_t lag, Bytes capacity) {
    keep_free_ = 0;
    plan_ = PlanOf(TraceOf(kind, kTraced));
    fence_ = std::make_unique<LaggingFence>(lag);
    Start(plan_, capacity, kGranularity, fence_.get(), /*dynamic=*/true);
    machine_ = std::make_unique<ServedMachine>(*runtime_, *fence_);
    loop_ = kind.make(*machine_, 7 + lag);
    loop_->Begin();
  }
  void TearDown() override { runtime_ = nullptr; }  // before its fence

  void IterateTo(int end) {
    while (iteration_ < end) {
      loop_->Iterate(iteration_++);
      const RuntimeStats stats = runtime_->Stats();
      samples_.push_back({.arena = stats.arena_bytes,
                          .live = stats.run.live_bytes,
                          .other = machine_->other_held(),
                          .moved = stats.lent.times_moved,
                          .waited = stats.lent.times_waited,
                          .mapped = stats.lent.times_grown + stats.lent.times_mapped_again});
    }
  }
  void End() {
    EXPECT_FALSE(runtime_->Stats().gave_up) << log_.text();
    loop_->End();
    EXPECT_EQ(machine_->lost(), 0u);
    EXPECT_EQ(upstream_.live(), 0u);
    EXPECT_EQ(runtime_->engine()->CheckInvariants(), "");
  }
  [[nodiscard]] const IdleChunks& Chunks() const { return runtime_->spaces().front()->chunks(); }

  DevicePlan plan_;
  std::unique_ptr<LaggingFence> fence_;
  std::unique_ptr<ServedMachine> machine_;
  std::unique_ptr<TrainingLoop> loop_;
  std::vector<Sample> samples_;  // of each iteration
};

class FreeCardGrowthTest : public LongRunTest, public ::testing::WithParamInterface<std::tuple<LoopKind, int>> {
 protected:
  [[nodiscard]] const LoopKind& kind() const { return std::get<0>(GetParam()); }
  [[nodiscard]] const Sample& At(int iteration) const { return samples_[static_cast<std::size_t>(iteration)]; }
  // Over the live peak, as the engine has it.
  [[nodiscard]] double Growth() const { return std::max(tuning::kLeastGrowth, Chunks().growth()); }

  // Once it has seen what there is: beyond what it may hold in any case it grows by a hundredth at most, and as more
  // lives.
  void ExpectSteady(int from, int to) const {
    const Sample& first = At(from);
    for (int i = from; i < to; ++i) {
      const double grown = Mib(first.arena) * 1.01 * Ratio(At(i).live, first.live);
      ASSERT_LE(Mib(At(i).arena), std::max(grown, Mib(At(i).live) * tuning::kLeastGrowth)) << "iteration " << i;
    }
  }
  // A move may take the place of a growth, where that takes next to no time (tuning::kMovingParts).
  void ExpectNothingMoved(int from, int to) const {
    EXPECT_LE(At(to - 1).moved - At(from).moved, kFewMoves);
    EXPECT_EQ(At(to - 1).waited, At(from).waited);
  }
  void ExpectLittleHeld() const {
    const Sample& last = samples_.back();
    // Beyond its bound the arena grows only for a request that fits nowhere. What that took goes back, but for
    // chunks in which blocks lie; where the largest blocks change all the time, such requests come again and again.
    const double slack = kind().is_steady ? 1.03 : 1.15;
    EXPECT_LE(Ratio(last.arena, last.live), Growth() * slack);
    // What PyTorch holds differs between the traced run and this one.
    const Bytes other = std::max(last.other, plan_.predicted.expandable_bytes);
    const double others = Ratio(other, last.live) * (kind().is_steady ? tuning::kMostOverOthers : 1.15);
    EXPECT_LE(Ratio(last.arena, last.live), std::max(others, tuning::kLeastGrowth));
  }
  void Print() const {
    const Sample& last = samples_.back();
    const std::size_t steady = kind().changes ? kChange + 50 : 50;
    Bytes most = 0;
    for (std::size_t i = steady; i < samples_.size(); ++i) most = std::max(most, samples_[i].arena);
    std::printf(
        "%s: MiB live %.0f, arena %.0f (most %.0f since iteration %zu, then %.0f), PyTorch %.0f; arena / live %.3f, "
        "may be %.3f; %llu mappings in the last 400\n",
        kind().name.c_str(), Mib(last.live), Mib(last.arena), Mib(most), steady, Mib(samples_[steady].arena),
        Mib(last.other), Ratio(last.arena, last.live), Growth(),
        static_cast<unsigned long long>(last.mapped - At(kIterations - 400).mapped));
  }

  static constexpr std::uint64_t kFewMoves = 20;     // in 500 iterations; on a slow machine more of its time
  static constexpr std::uint64_t kFewMappings = 20;  // in 400 iterations, of 28,000 requests or more
};

TEST_P(FreeCardGrowthTest, TheArenaSoonHoldsWhatItNeedsAndNothingMovesOrWaits) {
  StartLoop(kind(), static_cast<std::uint64_t>(std::get<1>(GetParam())), 64 * kGiB);
  IterateTo(kIterations);
  Print();
  ExpectNothingMoved(10, kChange);
  ExpectNothingMoved(kChange + 10, kIterations);
  EXPECT_LE(samples_.back().mapped - At(kIterations - 400).mapped, kind().is_steady ? kFewMappings : 10 * kFewMappings);
  if (kind().is_steady) {
    ExpectSteady(50, kChange);
    ExpectSteady(kChange + 50, kIterations);
  }
  ExpectLittleHeld();
  EXPECT_TRUE(Chunks().is_card_free());
  End();
}

// As a capture does, or a script after it has read its model: under Auto, where another plan could take this one's
// place.
TEST_P(FreeCardGrowthTest, AfterAnEmptiedCacheTheArenaHoldsSoonAgainWhatItNeeds) {
  replaceable_ = true;
  StartLoop(kind(), static_cast<std::uint64_t>(std::get<1>(GetParam())), 64 * kGiB);
  IterateTo(20);
  EXPECT_GT(runtime_->EmptyCache(), 0u);
  IterateTo(kIterations);
  Print();
  ExpectNothingMoved(30, kChange);
  ExpectNothingMoved(kChange + 10, kIterations);
  EXPECT_LE(samples_.back().mapped - At(kIterations - 400).mapped, kind().is_steady ? kFewMappings : 10 * kFewMappings);
  End();
}

INSTANTIATE_TEST_SUITE_P(Loops, FreeCardGrowthTest,
                         ::testing::Combine(::testing::ValuesIn(LoopKinds()), ::testing::Values(0, 6)),
                         [](const auto& tested) {
                           return std::get<0>(tested.param).name + "Lag" + std::to_string(std::get<1>(tested.param));
                         });

class TakenCardTest : public LongRunTest, public ::testing::WithParamInterface<LoopKind> {
 protected:
  // Another process takes all that is left, and gives it back.
  void TakeAll() {
    PhysicalHandle handle = 0;
    while (driver_->Create(kGranularity, &handle).ok()) others_.push_back(handle);
  }
  void GiveBackAll() {
    for (const PhysicalHandle handle : others_) EXPECT_TRUE(driver_->Release(handle).ok());
    others_.clear();
  }

  std::vector<PhysicalHandle> others_;
};

TEST_P(TakenCardTest, ACardThatAnotherProcessTakesAndGivesBackIsFreeAgain) {
  StartLoop(GetParam(), 6, 4 * kGiB);
  IterateTo(1);  // less than later ones need
  EXPECT_TRUE(Chunks().is_card_free());
  TakeAll();
  IterateTo(60);
  EXPECT_FALSE(Chunks().is_card_free());
  EXPECT_LE(samples_.back().arena, samples_.front().arena) << "there was no more";
  GiveBackAll();
  IterateTo(140);
  EXPECT_TRUE(Chunks().is_card_free());
  EXPECT_EQ(machine_->refused(), 0u);
  End();
}

INSTANTIATE_TEST_SUITE_P(Loops, TakenCardTest, ::testing::ValuesIn(LoopKinds()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace free_card
}  // namespace stalloc
