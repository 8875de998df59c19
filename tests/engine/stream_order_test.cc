// Reuse across streams, proved on a simulated device: whoever gets bytes runs behind everybody who used them before,
// whatever the plan foresaw and however the run diverges from it.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "tests/engine/order_run.h"
#include "tests/engine/stress_seeds.h"

namespace stalloc {
namespace {

constexpr Divergence kNone{};
constexpr Divergence kSome{
    .inserted = 0.02, .dropped = 0.02, .resized = 0.01, .swapped = 0.01, .freed_late = 0.02, .freed_early = 0.05};
constexpr Divergence kMuch{
    .inserted = 0.2, .dropped = 0.2, .resized = 0.2, .swapped = 0.3, .freed_late = 0.2, .freed_early = 0.2};

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
  for (int mark = 0; mark < 3; ++mark)
    run.engine().OnMark(Mark{MarkKind::kIteration, MarkEdge::kBegin, Pass::kNone, 0, 0, "", false});
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

// What the clock says is done nobody uses any more, so that its memory may go without a wait.
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
