#include "planner/cli/shared_packings.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

#include "planner/cli/task_queue.h"

namespace stalloc::planner {
namespace {

RankPacking PackingOfHeight(Bytes height) {
  RankPacking packing(1);
  packing[0].packing.height = height;
  return packing;
}

Bytes HeightOf(const SharedPacking& shared) { return (**shared)[0].packing.height; }

TEST(SharedPackingsTest, EqualKeysAreSolvedOnceAndOthersEachForItself) {
  SharedPackings packings;
  int solved = 0;
  std::vector<Bytes> heights;
  for (const std::uint64_t key : {1, 2, 1, 1}) {
    packings.Use(
        {key, 0},
        [&] {
          ++solved;
          return PackingOfHeight(10 * key);
        },
        [&](const SharedPacking& shared) { heights.push_back(HeightOf(shared)); });
  }
  EXPECT_EQ(solved, 2);
  EXPECT_EQ(heights, (std::vector<Bytes>{10, 20, 10, 10}));
}

TEST(SharedPackingsTest, WhoComesWhileAnotherSolvesIsCalledBackAndDoesNotWait) {
  SharedPackings packings;
  std::latch begun(1);
  std::latch may_end(1);
  std::atomic<int> called{0};
  std::jthread solver([&] {
    packings.Use(
        {},
        [&] {
          begun.count_down();
          may_end.wait();
          return PackingOfHeight(7);
        },
        [&](const SharedPacking&) { ++called; });
  });
  begun.wait();
  packings.Use(
      {}, []() -> absl::StatusOr<RankPacking> { return absl::InternalError("not asked"); },
      [&](const SharedPacking& shared) { called += HeightOf(shared) == 7 ? 10 : 100; });
  EXPECT_EQ(called, 0);
  may_end.count_down();
  solver.join();
  EXPECT_EQ(called, 11);
}

TEST(SharedPackingsTest, AFailureIsEverybodys) {
  SharedPackings packings;
  int failures = 0;
  for (int i = 0; i < 2; ++i) {
    packings.Use(
        {}, [] { return absl::ResourceExhaustedError("no memory"); },
        [&](const SharedPacking& shared) { failures += !shared->ok(); });
  }
  EXPECT_EQ(failures, 2);
}

TEST(TaskQueueTest, RunsTasksThatTasksQueue) {
  for (const int threads : {1, 4}) {
    TaskQueue tasks;
    std::atomic<int> done{0};
    for (int i = 0; i < 20; ++i) {
      tasks.PushBack([&] {
        tasks.PushFront([&] { ++done; });
        tasks.PushBack([&] { ++done; });
        ++done;
      });
    }
    tasks.Run(threads);
    EXPECT_EQ(done, 60);
  }
}

TEST(TaskQueueTest, AThreadWithoutWorkWaitsForWhatOthersMayQueue) {
  TaskQueue tasks;
  std::latch both(2);  // passes only if two threads are there for the two tasks that come late
  tasks.PushBack([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (int i = 0; i < 2; ++i) tasks.PushBack([&] { both.arrive_and_wait(); });
  });
  tasks.Run(2);
}

}  // namespace
}  // namespace stalloc::planner
