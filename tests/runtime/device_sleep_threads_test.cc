// Sleep and wake beside other threads of the program.
#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "tests/runtime/device_sleep_fixture.h"

namespace stalloc {
namespace {

// What lives was chosen before the device was waited for, so that no kernel runs in what seems idle; and nobody is
// placed there any more.
TEST_F(DeviceSleepTest, WhileTheDeviceIsWaitedForNothingIsPlacedAndWhatEndsWasChosen) {
  StartWithWeights();
  int waits = 0;
  std::future<void> requests;
  driver_->SetHook([&] {
    if (waits++ > 0) return;
    // An engine that places something may wait for the sleep's end, which is not to come before this one's.
    requests = std::async(std::launch::async, [this] {
      PlanEngine& engine = runtime_->spaces()[0]->engine();
      EXPECT_EQ(engine.Allocate(4 * kMiB, 0).pointer, nullptr);
      EXPECT_EQ(engine.AllocateUnexpected(2 * kMiB, 0, MissReason::kParallel).pointer, nullptr);
    });
    EXPECT_EQ(requests.wait_for(std::chrono::seconds(10)), std::future_status::ready) << "nothing is placed";
    runtime_->Free(second_);
  });
  const SleepFigures slept = Sleep();
  requests.get();
  EXPECT_EQ(waits, 1) << "one wait for all";
  EXPECT_EQ(slept.blocks, 2u);
  EXPECT_EQ(slept.asleep, 3 * kMiB);
  driver_->SetHook(nullptr);
  EXPECT_EQ(Wake().blocks, 1u);
  EXPECT_TRUE(HasPattern(first_, 3 * kMiB, 1));
  ExpectSound();
}

// A thread that asks in the middle of it is served afterwards.
TEST_F(DeviceSleepTest, OtherThreadsAskAndFreeMeanwhile) {
  StartWithWeights();
  std::atomic<bool> stop{false};
  std::atomic<int> served{0};
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      while (!stop) {
        try {
          const Bytes bytes = 300 * kKiB + static_cast<Bytes>(t) * 100 * kKiB;
          runtime_->Free(runtime_->Allocate(bytes, 0, Origin::kProgram));
          ++served;
        } catch (const AsleepError&) {
          ++refused;
        }
      }
    });
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto may_go_on = [&] { return !HasFailure() && std::chrono::steady_clock::now() < end; };
  for (int cycle = 0; (cycle < 40 || refused == 0) && may_go_on(); ++cycle) {
    Sleep();
    EXPECT_EQ(runtime_->arena()->mapped_bytes(), 0u);
    if (cycle % 8 == 0) std::this_thread::yield();
    Wake();
    ExpectWeights();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(served, 0);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(runtime_->Stats().unknown_frees, 0u);
  ExpectSound();
}

}  // namespace
}  // namespace stalloc
