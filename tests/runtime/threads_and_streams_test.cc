// Memory is never taken from under a running kernel, nor given to two: random programs of several threads and streams
// through the whole runtime, on a device that runs their kernels later (queued_device.h).
//
//   STALLOC_STRESS_SECONDS (3)   how long
//   STALLOC_STRESS_SEED (1)      of the first program; a failure names its own
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/runtime/threaded_run.h"

namespace stalloc {
namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t FromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// What all programs together have come through.
struct Totals {
  std::uint64_t programs = 0;
  std::uint64_t operations = 0;
  std::uint64_t planned = 0;
  std::uint64_t beside = 0;
  std::uint64_t moved = 0;
  std::uint64_t waited = 0;
  std::uint64_t given_back = 0;
  std::uint64_t grown = 0;
  std::uint64_t gave_up = 0;
  std::uint64_t switched = 0;
  std::uint64_t sleeps = 0;
  std::uint64_t refused = 0;

  void Add(const ThreadedRun::Result& result) {
    ++programs;
    operations += result.operations;
    planned += result.stats.planned_hits;
    beside += result.stats.dynamic_hits;
    moved += result.stats.lent.times_moved;
    waited += result.stats.lent.times_waited;
    given_back += result.stats.lent.times_given_back;
    grown += result.stats.lent.times_grown;
    gave_up += result.stats.gave_up ? 1 : 0;
    switched += result.switched ? 1 : 0;
    sleeps += result.sleeps;
    refused += result.refused;
  }
  // Of what the test is about: which programs come to it depends on how their threads run.
  [[nodiscard]] bool HasEverything() const {
    return planned > 0 && beside > 0 && waited > 0 && moved > waited && given_back > 0 && grown > 0 && gave_up > 0 &&
           switched > 0 && sleeps > 0 && refused > 0;
  }
  void Print() const {
    std::printf(
        "%llu operations in %llu programs: %llu requests in slots, %llu beside them, %llu moves (%llu waited for the "
        "device), %llu times given back, %llu times grown, %llu plans given up, %llu taken up in the middle, %llu "
        "times asleep (%llu "
        "requests refused)\n",
        static_cast<unsigned long long>(operations), static_cast<unsigned long long>(programs),
        static_cast<unsigned long long>(planned), static_cast<unsigned long long>(beside),
        static_cast<unsigned long long>(moved), static_cast<unsigned long long>(waited),
        static_cast<unsigned long long>(given_back), static_cast<unsigned long long>(grown),
        static_cast<unsigned long long>(gave_up), static_cast<unsigned long long>(switched),
        static_cast<unsigned long long>(sleeps), static_cast<unsigned long long>(refused));
  }
};

std::string Describe(std::uint64_t seed, const ThreadedRun::Result& result) {
  const QueuedDevice::Findings& found = result.findings;
  return "STALLOC_STRESS_SEED=" + std::to_string(seed) + ", " + std::to_string(result.threads) + " threads, " +
         std::to_string(result.streams) + " streams" + (result.peers ? ", two devices" : "") + ": " +
         std::to_string(found.unmapped) + " kernels without memory, " + std::to_string(found.damaged) +
         " with another's, " + std::to_string(found.events) + " wrong uses of events, " + std::to_string(found.broken) +
         " broken captures; the first: " + found.first;
}

TEST(ThreadsAndStreamsTest, NoKernelFindsItsMemoryTakenOrAnothers) {
  constexpr std::uint64_t kLeastPrograms = 15;  // on a busy machine one alone takes the seconds
  constexpr std::uint64_t kMostPrograms = 150;
  const auto end = Clock::now() + std::chrono::seconds(FromEnvironment("STALLOC_STRESS_SECONDS", 3));
  std::uint64_t seed = FromEnvironment("STALLOC_STRESS_SEED", 1);
  Totals totals;
  do {
    const ThreadedRun::Result result = ThreadedRun::Of(seed);
    totals.Add(result);
    EXPECT_EQ(result.findings.count(), 0u) << Describe(seed, result) << "; " << totals.operations << " operations";
    EXPECT_EQ(result.stats.unknown_frees, 0u) << seed;
    ++seed;
  } while (!testing::Test::HasFailure() && (Clock::now() < end || totals.programs < kLeastPrograms ||
                                            (!totals.HasEverything() && totals.programs < kMostPrograms)));
  totals.Print();
  EXPECT_GT(totals.planned, 0u);
  EXPECT_GT(totals.beside, 0u);
  EXPECT_GT(totals.waited, 0u);
  EXPECT_GT(totals.moved, totals.waited) << "some moves need no wait";
  EXPECT_GT(totals.given_back, 0u);
  EXPECT_GT(totals.grown, 0u);
  EXPECT_GT(totals.gave_up, 0u);
  EXPECT_GT(totals.switched, 0u);
  EXPECT_GT(totals.sleeps, 0u);
  EXPECT_GT(totals.refused, 0u);
}

// The simulation itself: a device that does not do what it says is found out.
TEST(ThreadsAndStreamsTest, ADeviceThatLiesIsFoundOut) {
  const std::pair<const char*, QueuedDevice::Habits> devices[] = {
      {"waits do nothing", {.waits_do_nothing = true}},
      {"what runs is said to be done", {.done_lies = true}},
      {"it is not waited for", {.never_synchronizes = true}},
      {"others are not waited for", {.ignores_others = true}},
      {"captures are ignored", {.ignores_captures = true}},
      {"kernels start before their bytes are back", {.ignores_copies = true}},
      {"memory goes before it is copied", {.forgets_copies = true}},
  };
  for (const auto& [what, habits] : devices) {
    std::uint64_t seed = 1;
    while (seed < 200 && ThreadedRun::Of(seed, habits).findings.count() == 0) ++seed;
    EXPECT_LT(seed, 200u) << what;
    std::printf("%s: found by program %llu\n", what, static_cast<unsigned long long>(seed));
  }
}

}  // namespace
}  // namespace stalloc
