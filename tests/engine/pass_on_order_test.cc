// Memory that changes its addresses while the run goes on, proved on a simulated device by physical byte: whoever gets
// bytes at an address runs behind everybody who used the same memory before, at whichever address.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/order_run.h"
#include "tests/engine/stress_seeds.h"

namespace stalloc {
namespace pass_on_order_test {

using Told = PassingMemory::Told;
using Looks = PassingMemory::Looks;

constexpr Divergence kNone{};
constexpr Divergence kSome{
    .inserted = 0.02, .dropped = 0.02, .resized = 0.01, .swapped = 0.01, .freed_late = 0.02, .freed_early = 0.05};
constexpr Divergence kMuch{
    .inserted = 0.2, .dropped = 0.2, .resized = 0.2, .swapped = 0.3, .freed_late = 0.2, .freed_early = 0.2};

struct Kind {
  const char* name;
  Streams streams;
  SimulatedDevice::Habits habits = {};
  int threads = 1;
};

const std::vector<Kind>& Kinds() {
  static const std::vector<Kind> kinds = {
      {.name = "one stream", .streams = {.planned = 1, .recorded = 0}},
      {.name = "one stream of a plan, and strays", .streams = {.planned = 1, .recorded = 0.1, .strayed = 0.1}},
      {.name = "one stream that is another each time",
       .streams = {.planned = 2, .recorded = 0.05, .strayed = 0.02, .rotate = true},
       .habits = {.refuses = 0.02}},
      {.name = "one stream, freed on others",
       .streams = {.planned = 1, .recorded = 0.05, .strayed = 0.1, .elsewhere = 0.2, .untouched = 0.3}},
      {.name = "several streams", .streams = {.planned = 4, .recorded = 0.1, .strayed = 0.02}},
      {.name = "several streams, refusing",
       .streams = {.planned = 4, .recorded = 0.1, .strayed = 0.05, .rotate = true},
       .habits = {.refuses = 0.1}},
      {.name = "several streams, freed on others",
       .streams = {.recorded = 0.05, .strayed = 0.05, .elsewhere = 0.1, .untouched = 0.3},
       .habits = {.refuses = 0.02}},
      {.name = "one stream, freed on others and hardly used",
       .streams = {.planned = 1, .recorded = 0.02, .strayed = 0.3, .elsewhere = 0.4, .untouched = 0.7}},
      {.name = "several streams, freed on others and hardly used",
       .streams = {.planned = 4, .recorded = 0.02, .strayed = 0.1, .elsewhere = 0.4, .untouched = 0.7}},
      {.name = "much is recorded", .streams = {.recorded = 0.5, .rotate = true}, .habits = {.finishes = 0.05}},
      {.name = "per-thread stream", .streams = {.recorded = 0.1, .strayed = 0.05, .per_thread = true}},
      {.name = "threads on one stream", .streams = {.planned = 1, .recorded = 0.1, .strayed = 0.05}, .threads = 4},
      {.name = "threads",
       .streams = {.planned = 4, .recorded = 0.1, .strayed = 0.05, .rotate = true},
       .habits = {.refuses = 0.02},
       .threads = 4},
      {.name = "threads on per-thread streams",
       .streams = {.planned = 4, .recorded = 0.1, .strayed = 0.02, .per_thread = true},
       .habits = {.refuses = 0.02},
       .threads = 4}};
  return kinds;
}

class PassOnOrderTest : public testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override { RecordProperty("seed", static_cast<int>(GetParam())); }
  void TearDown() override {
    RecordProperty("requests", static_cast<int>(requests_));
    RecordProperty("passed", static_cast<int>(passed_));
    RecordProperty("passed_in_use", static_cast<int>(passed_in_use_));
  }

  void Count(OrderRun& run) {
    requests_ += run.engine().Stats().requests;
    passed_ += run.memory().passed();
    passed_in_use_ += run.memory().passed_in_use();
  }

  std::uint64_t requests_ = 0;
  std::uint64_t passed_ = 0;  // parts
  std::uint64_t passed_in_use_ = 0;
};

TEST_P(PassOnOrderTest, WhoGetsMemoryRunsBehindAllWhoHadItAtOtherAddresses) {
  for (const Served served : {Served::kSlots, Served::kEverything}) {
    for (const Kind& kind : Kinds()) {
      SCOPED_TRACE(kind.name);
      OrderRun run(GetParam(), 600, kind.streams, kind.habits, served);
      run.PassMemory();
      for (const Divergence& divergence : {kNone, kSome, kNone, kMuch, kSome, kNone, kMuch, kMuch, kNone}) {
        run.RunIteration(divergence, kind.threads);
      }
      EXPECT_EQ(run.device().violations(), 0u);
      EXPECT_EQ(run.device().unmarked(), 0u);
      EXPECT_GT(run.memory().passed_in_use(), 50u);
      Count(run);
      run.Finish();
    }
  }
}

// What the clock says is done is done with the memory that is there now.
TEST_P(PassOnOrderTest, QuietPartsAreDoneWhateverMemoryIsThere) {
  std::uint64_t quiet = 0;
  for (const std::uint32_t planned : {1, 3}) {
    OrderRun run(GetParam(), 600, {.planned = planned, .recorded = 0.1, .strayed = 0.05, .elsewhere = 0.1},
                 {.refuses = 0.02, .finishes = 0.9}, Served::kEverything);
    run.PassMemory();
    run.LendParts();
    for (int i = 0; i < 10; ++i) run.RunIteration(i % 2 == 0 ? kNone : kSome, 1);
    EXPECT_EQ(run.device().violations(), 0u);
    quiet += run.quiet_parts();
    Count(run);
    run.Finish();
  }
  EXPECT_GT(quiet, 0u);
}

// One that looks on and passes memory beside threads that do.
TEST_P(PassOnOrderTest, ThreadsThatAreWatchedStayInOrder) {
  OrderRun run(GetParam(), 800, {.planned = 4, .recorded = 0.1, .strayed = 0.05}, {.refuses = 0.02},
               Served::kEverything);
  run.PassMemory();
  std::atomic<bool> stop{false};
  std::thread observer([&] {
    while (!stop) {
      EXPECT_EQ(run.engine().CheckInvariants(), "");
      run.PassSome();
      run.LendQuietParts();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      run.TakeBackParts();
    }
  });
  for (int i = 0; i < 6; ++i) run.RunIteration(i % 2 == 0 ? kSome : kMuch, 4);
  stop = true;
  observer.join();
  EXPECT_EQ(run.device().violations(), 0u);
  Count(run);
  run.Finish();
}

// The check itself. Memory changes its address, and the engine is not told who used it: looked at by memory this is
// found out; who looks by address is blind to it.
TEST_P(PassOnOrderTest, MemoryThatPassesUntoldIsFoundOutByMemoryAndNotByAddress) {
  for (const Served served : {Served::kSlots, Served::kEverything}) {
    std::vector<std::uint64_t> passed;
    for (const Looks looks : {Looks::kAtMemory, Looks::kAtAddress}) {
      OrderRun run(GetParam(), 600, {.planned = 4, .recorded = 0.1, .strayed = 0.05}, {}, served);
      run.PassMemory(Told::kNothing, looks);
      for (int i = 0; i < 6; ++i) run.RunIteration(i % 2 == 0 ? kNone : kSome, 1);
      if (looks == Looks::kAtMemory) {
        EXPECT_GT(run.device().violations(), 0u);
      } else {
        EXPECT_EQ(run.device().violations(), 0u);
      }
      passed.push_back(run.memory().passed());
      Count(run);
      run.Finish();
    }
    EXPECT_EQ(passed[0], passed[1]) << "the same run was looked at";
    EXPECT_GT(passed[0], 50u);
  }
}

// Kernels may be launched before the one ahead of them on their stream has ended.
TEST_P(PassOnOrderTest, BetweenTwoAddressesOfMemoryAnEventIsRecordedOnItsStream) {
  for (const Told told : {Told::kAll, Told::kNothing}) {
    OrderRun run(GetParam(), 600, {.planned = 1, .recorded = 0}, {.finishes = 0}, Served::kEverything);
    run.PassMemory(told);
    for (int i = 0; i < 4; ++i) run.RunIteration(i % 2 == 0 ? kNone : kSome, 1);
    EXPECT_EQ(run.device().violations(), 0u) << "one stream is in order by itself";
    EXPECT_GT(run.memory().passed_in_use(), 50u);
    if (told == Told::kAll) {
      EXPECT_EQ(run.device().unmarked(), 0u);
    } else {
      EXPECT_GT(run.device().unmarked(), 0u);
      EXPECT_EQ(run.engine().Stats().stream_events, 0u);
    }
    Count(run);
    run.Finish();
  }
}

#if defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSeeds = 2;  // half a minute each
#else
constexpr std::uint64_t kSeeds = 8;
#endif
INSTANTIATE_TEST_SUITE_P(Seeds, PassOnOrderTest, StressSeeds(kSeeds));

}  // namespace pass_on_order_test
}  // namespace stalloc
