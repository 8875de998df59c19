// A run begins with a plan that may be another run's: it is left where its first iteration requests other things.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "allocator/runtime/plan_doubt.h"
#include "allocator/runtime/spaces.h"
#include "tests/runtime/alloc_fixture.h"
#include "tests/runtime/pattern.h"

namespace stalloc {
namespace {

constexpr Bytes kWeights = 4 * kMiB;

Mark EndOfInit() { return {.kind = MarkKind::kInit, .edge = MarkEdge::kEnd, .name = {}}; }
Mark AutomaticIteration() { return {.kind = MarkKind::kIteration, .name = {}, .automatic = true}; }

class LeftPlanTest : public AllocTest {
 protected:
  // Of weights, and of 40 requests of an iteration; the first one has no mark.
  static DevicePlan PlanOfOthers() {
    PlanBuilder plan;
    plan.Persistent(kWeights);
    for (Bytes i = 0; i < 40; ++i) plan.Each((200 + 4 * i) * kKiB);
    DevicePlan made = plan.Build();
    std::vector<Entry>& first = made.prologue[0].entries;
    first.insert(first.end(), made.cycle[0].entries.begin(), made.cycle[0].entries.end());
    return made;
  }
  void StartDoubting(bool maps_late = false) {
    const DevicePlan plan = PlanOfOthers();
    StartRuntime({.plan = &plan, .dynamic = true, .doubts = true, .maps_late = maps_late});
  }
  void SetUp() override { StartDoubting(); }
  void Forward(Bytes least, std::vector<void*>* blocks) {
    for (Bytes i = 0; i < 40; ++i) blocks->push_back(Allocate((least + 4 * i) * kKiB));
  }
  void FreeAll(std::vector<void*>* blocks) {
    for (void* const block : *blocks) runtime_->Free(block);
    blocks->clear();
  }
  void MakeState(MarkEdge edge) {
    runtime_->OnMark({.kind = MarkKind::kLayer, .edge = edge, .pass = Pass::kOther, .name = "optimizer_state"});
  }
};

TEST_F(LeftPlanTest, ItIsLeftInItsFirstIterationAndWhatStaysLiesTightly) {
  void* const weights = Allocate(kWeights);
  FillPattern(weights, kWeights, 1);
  EXPECT_TRUE(runtime_->Owns(weights));
  runtime_->OnMark(EndOfInit());
  std::vector<void*> blocks;
  Forward(1000, &blocks);
  EXPECT_TRUE(runtime_->Stats().left);
  EXPECT_FALSE(runtime_->Owns(blocks.back())) << "upstream serves the loop";
  EXPECT_EQ(runtime_->arena(), nullptr) << "of a plan";
  MakeState(MarkEdge::kBegin);
  void* const state = Allocate(kWeights);
  MakeState(MarkEdge::kEnd);
  EXPECT_TRUE(runtime_->Owns(state));
  FreeAll(&blocks);
  for (int i = 0; i < 2; ++i) runtime_->OnMark(AutomaticIteration());
  EXPECT_EQ(runtime_->spaces().size(), 2u);
  EXPECT_EQ(runtime_->spaces().front()->arena().mapped_bytes(), kWeights) << "its slots of activations have gone back";
  EXPECT_LE(runtime_->spaces().back()->arena().mapped_bytes(),
            kWeights + runtime_->spaces().back()->arena().chunk_bytes());
  EXPECT_TRUE(HasPattern(weights, kWeights, 1));
  EXPECT_EQ(log_.text(), "") << "the package tells";

  ASSERT_EQ(runtime_->TakePlan(PlanBuilder().Each(100 * kKiB).Build(), 0), "");
  runtime_->OnMark(AutomaticIteration());
  runtime_->Free(Allocate(100 * kKiB));
  const RuntimeStats stats = runtime_->Stats();
  EXPECT_EQ(stats.iterations, 3u);
  EXPECT_EQ(stats.steady.hits, 1u);
  EXPECT_EQ(stats.unknown_frees, 0u);
  runtime_->Free(weights);
  runtime_->Free(state);
  EXPECT_EQ(runtime_->Stats().live_bytes, 0u);
  EXPECT_EQ(upstream_.live(), 0u);
}

TEST_F(LeftPlanTest, ItStaysWhereItsRequestsCome) {
  for (const bool maps_late : {false, true}) {
    StartDoubting(maps_late);
    void* const weights = Allocate(kWeights);
    runtime_->OnMark(EndOfInit());
    std::vector<void*> blocks;
    for (int i = 0; i < 4; ++i) {
      Forward(200, &blocks);
      FreeAll(&blocks);
      runtime_->OnMark(AutomaticIteration());
    }
    const RuntimeStats stats = runtime_->Stats();
    EXPECT_FALSE(stats.left);
    EXPECT_EQ(stats.planned_hits, 161u);
    EXPECT_EQ(stats.upstream, 0u);
    runtime_->Free(weights);
  }
}

TEST_F(LeftPlanTest, WhereWeightsAreOthersTheyLieAsBeforeAFirstPlan) {
  std::vector<void*> weights;
  for (Bytes i = 0; i < 40; ++i) weights.push_back(Allocate((1001 + 8 * i) * kKiB));
  EXPECT_TRUE(runtime_->Stats().left);
  EXPECT_EQ(upstream_.live(), 0u);
  EXPECT_LE(runtime_->spaces().front()->arena().mapped_bytes(), 18 * kMiB) << "where those before it was told live";
  for (std::size_t i = 16; i < weights.size(); ++i) {
    EXPECT_TRUE(runtime_->spaces().back()->arena().Contains(weights[i]));
  }
  FreeAll(&weights);
}

TEST_F(LeftPlanTest, AfterItsFirstIterationOthersJudge) {
  void* const weights = Allocate(kWeights);
  runtime_->OnMark(EndOfInit());
  std::vector<void*> blocks;
  Forward(200, &blocks);
  FreeAll(&blocks);
  runtime_->OnMark(AutomaticIteration());
  Forward(1000, &blocks);
  EXPECT_FALSE(runtime_->Stats().left);
  FreeAll(&blocks);
  runtime_->Free(weights);
}

TEST_F(LeftPlanTest, WhereTheDeviceCannotBeWaitedForItsMemoryGoesBackLater) {
  runtime_->OnMark(EndOfInit());
  device_->SetCapturing(true);
  std::vector<void*> blocks;
  Forward(1000, &blocks);
  EXPECT_TRUE(runtime_->Stats().left);
  EXPECT_GT(runtime_->spaces().front()->arena().mapped_bytes(), 0u);
  FreeAll(&blocks);
  device_->SetCapturing(false);
  for (int i = 0; i < 2; ++i) runtime_->OnMark(AutomaticIteration());
  EXPECT_EQ(runtime_->spaces().front()->arena().mapped_bytes(), 0u);
}

// Their blocks come from either arena or from upstream, and hold what was written.
TEST_F(LeftPlanTest, OtherThreadsGoOnMeanwhile) {
  int times_left = 0;
  for (std::uint32_t turn = 0; turn < 20; ++turn) {
    StartDoubting(turn % 2 == 1);
    std::atomic<bool> done{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (std::uint32_t seed = 1; seed <= 3; ++seed) {
      threads.emplace_back([&, seed] {
        std::minstd_rand random(seed + turn);
        std::vector<std::pair<void*, Bytes>> live;
        while (!done.load() || !live.empty()) {
          if (live.size() < 12 && !done.load()) {
            const Bytes bytes = (1 + random() % 60) * 4 * kKiB;
            live.emplace_back(runtime_->Allocate(bytes, 0, Origin::kProgram), bytes);
            FillPattern(live.back().first, bytes, seed);
            continue;
          }
          std::swap(live[random() % live.size()], live.back());
          wrong += HasPattern(live.back().first, live.back().second, seed) ? 0 : 1;
          runtime_->Free(live.back().first);
          live.pop_back();
        }
      });
    }
    void* const weights = Allocate(kWeights);
    runtime_->OnMark(EndOfInit());
    std::vector<void*> blocks;
    Forward(1000, &blocks);
    FreeAll(&blocks);
    runtime_->OnMark(AutomaticIteration());
    times_left += runtime_->Stats().left ? 1 : 0;
    ASSERT_EQ(runtime_->TakePlan(PlanBuilder().Each(100 * kKiB).Build(), 0), "");
    runtime_->OnMark(AutomaticIteration());
    done = true;
    for (std::thread& thread : threads) thread.join();
    runtime_->Free(weights);
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(runtime_->Stats().live_bytes, 0u);
    EXPECT_EQ(runtime_->Stats().unknown_frees, 0u);
  }
  EXPECT_GE(times_left, 10) << "what other threads request has slots now and then";
}

// PlanDoubt -----------------------------------------------------------------------------------------------------------

Resemblance::Totals Counts(std::uint64_t expected, std::uint64_t hits) { return {.expected = expected, .hits = hits}; }

TEST(PlanDoubtTest, SetUpIsJudgedMildly) {
  for (const std::uint64_t hits : {0u, 124u, 125u}) {
    PlanDoubt doubt;
    doubt.Open();
    EXPECT_FALSE(doubt.Doubts(Counts(15, 0))) << "too few";
    EXPECT_EQ(doubt.Doubts(Counts(1000, hits)), hits < 125);
  }
}

TEST(PlanDoubtTest, TheFirstIterationIsJudgedByItself) {
  PlanDoubt doubt;
  EXPECT_FALSE(doubt.open());
  doubt.Open();
  doubt.See(EndOfInit(), Counts(1000, 0));
  EXPECT_FALSE(doubt.Doubts(Counts(1015, 0))) << "too few";
  EXPECT_FALSE(doubt.Doubts(Counts(1016, 8)));
  EXPECT_TRUE(doubt.Doubts(Counts(1017, 8)));
  EXPECT_FALSE(doubt.Doubts(Counts(1018, 8))) << "once";
}

TEST(PlanDoubtTest, CountersOfOtherThreadsMayBeBehind) {
  PlanDoubt doubt;
  doubt.Open();
  doubt.See(EndOfInit(), Counts(1000, 900));
  EXPECT_FALSE(doubt.Doubts(Counts(990, 890)));
}

TEST(PlanDoubtTest, ALoopThatMarksItsIterationsIsJudgedInItsFirst) {
  PlanDoubt doubt;
  doubt.Open();
  doubt.See(EndOfInit(), Counts(0, 0));
  doubt.See(IterationMark(0), Counts(4, 0));
  EXPECT_TRUE(doubt.open());
  doubt.See(IterationMark(1), Counts(100, 100));
  EXPECT_FALSE(doubt.open());
  EXPECT_EQ(doubt.explicit_kinds(),
            1u << static_cast<unsigned>(MarkKind::kInit) | 1u << static_cast<unsigned>(MarkKind::kIteration));
}

}  // namespace
}  // namespace stalloc
