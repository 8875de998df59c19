#include "allocator/graphs/graph_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "allocator/graphs/graph_error.h"
#include "allocator/graphs/graph_pools.h"
#include "tests/graphs/fake_listener.h"

namespace stalloc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Verdict = LaunchListener::Verdict;

class GraphPoolTest : public ::testing::Test {
 protected:
  Verdict Launch(GraphId graph, bool captured = false) {
    return pool_.LaunchWith(graph, 9, captured, [this] { listener_.Hear("launch"); }).verdict;
  }

  FakeListener listener_;
  GraphPool pool_{3, 0, &listener_};
};

TEST_F(GraphPoolTest, IsOpenFromTheFirstOpeningToTheEndOfAll) {
  pool_.Opens();
  EXPECT_THAT(listener_.Heard(), ElementsAre("3 opens"));
  EXPECT_EQ(pool_.CaptureBegins(), 1u);
  pool_.Closes();
  pool_.Opens();  // a conditional node
  EXPECT_THAT(listener_.Heard(), ElementsAre("3 opens")) << "the capture goes on";
  pool_.CaptureEnds(1, true);
  EXPECT_THAT(listener_.Heard(), IsEmpty());
  pool_.Closes();
  EXPECT_THAT(listener_.Heard(), ElementsAre("3 closes"));
  pool_.Closes();
  EXPECT_THAT(listener_.Heard(), IsEmpty());
  pool_.Opens();
  EXPECT_EQ(pool_.CaptureBegins(), 2u);
}

TEST_F(GraphPoolTest, ALaunchIsBetweenTheTwoCalls) {
  EXPECT_EQ(Launch(2), Verdict::kLaunch);
  EXPECT_THAT(listener_.Heard(), ElementsAre("before 3/2 on 9", "launch", "after 3/2"));
}

TEST_F(GraphPoolTest, ARefusedGraphIsNotLaunched) {
  for (const Verdict verdict : {Verdict::kOutOfMemory, Verdict::kCarriedGone, Verdict::kNotOrdered}) {
    listener_.verdict = verdict;
    EXPECT_EQ(Launch(2), verdict);
    EXPECT_THAT(listener_.Heard(), ElementsAre("before 3/2 on 9"));
  }
}

TEST_F(GraphPoolTest, ALaunchIntoACaptureIsTheLastThatIsToldOfThePool) {
  EXPECT_EQ(Launch(1, true), Verdict::kLaunch);
  EXPECT_THAT(listener_.Heard(), ElementsAre("3: a graph of it became a part of another graph", "launch"));
  EXPECT_EQ(Launch(1), Verdict::kLaunch);
  pool_.Opens();
  pool_.Closes();
  pool_.GraphGone(1);
  pool_.Left();
  EXPECT_THAT(listener_.Heard(), ElementsAre("launch"));
}

TEST_F(GraphPoolTest, CapturesThatOverlapAreToldOf) {
  EXPECT_EQ(pool_.CaptureBegins(), 1u);
  EXPECT_EQ(pool_.CaptureBegins(), 2u);
  EXPECT_THAT(listener_.Heard(), ElementsAre("3 opens", "3: two captures of it were open at once"));
}

TEST_F(GraphPoolTest, NothingIsToldAfterThePoolIsLeft) {
  pool_.GraphGone(1);
  pool_.Left();
  EXPECT_THAT(listener_.Heard(), ElementsAre("3/1 is gone", "3 is left"));
  pool_.SetUnfollowable("a reason");
  EXPECT_EQ(Launch(1), Verdict::kLaunch);
  EXPECT_THAT(listener_.Heard(), ElementsAre("launch"));
  EXPECT_FALSE(pool_.catalog().followable());
}

TEST_F(GraphPoolTest, WhatCannotBeTakenBackStopsWhatWouldNotBeSeen) {
  listener_.stuck = true;
  EXPECT_FALSE(pool_.Opens());
  EXPECT_FALSE(pool_.SetUnfollowable("a reason"));
  EXPECT_EQ(Launch(1), Verdict::kOutOfMemory);
  EXPECT_THAT(listener_.Heard(), ElementsAre("3 opens", "3: a reason", "3: a reason"));
  listener_.stuck = false;
  EXPECT_EQ(Launch(1), Verdict::kLaunch);
  EXPECT_THAT(listener_.Heard(), ElementsAre("3: a reason", "launch"));
}

TEST_F(GraphPoolTest, AListenerThatComesLateIsToldWhereThePoolStands) {
  FakeListener open, closed, lost;
  pool_.Opens();
  pool_.SetListener(&open);
  EXPECT_THAT(open.Heard(), ElementsAre("3 opens"));
  pool_.SetListener(&open);
  EXPECT_THAT(open.Heard(), IsEmpty()) << "it knows";
  pool_.Closes();
  pool_.SetListener(&closed);
  EXPECT_THAT(closed.Heard(), IsEmpty());
  pool_.SetUnfollowable("a reason");
  EXPECT_THAT(closed.Heard(), ElementsAre("3: a reason"));
  pool_.SetListener(&lost);
  EXPECT_THAT(lost.Heard(), ElementsAre("3: a reason"));
  pool_.SetListener(nullptr);
  EXPECT_EQ(Launch(1), Verdict::kLaunch);
}

TEST_F(GraphPoolTest, OneGraphIsLaunchedAtATime) {
  std::atomic<int> inside{0};
  std::atomic<int> launches{0};
  std::vector<std::thread> threads;
  for (GraphId graph = 1; graph <= 3; ++graph) {
    threads.emplace_back([&, graph] {
      for (int i = 0; i < 500; ++i) {
        const LaunchListener::Answer answer = pool_.LaunchWith(graph, graph, false, [&] {
          EXPECT_EQ(++inside, 1);
          ++launches;
          --inside;
        });
        EXPECT_EQ(answer.verdict, Verdict::kLaunch);
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    pool_.Opens();
    const GraphId graph = pool_.CaptureBegins();
    pool_.CaptureEnds(graph, true);
    pool_.Closes();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(launches, 1500);
  const std::vector<std::string> heard = listener_.Heard();
  for (std::size_t i = 0; i < heard.size(); ++i) {
    if (!heard[i].starts_with("before")) continue;
    ASSERT_LT(i + 1, heard.size());
    EXPECT_EQ(heard[i + 1], "after " + heard[i].substr(7, 3)) << "nothing comes between";
  }
}

TEST(GraphPoolsTest, ADevicesListenerIsThatOfItsPools) {
  GraphPools pools;
  FakeListener listener;
  EXPECT_EQ(pools.Find(1), nullptr);
  GraphPool& early = pools.Get(2, 0);
  GraphPool& other = pools.Get(5, 1);
  pools.SetListener(0, &listener);
  GraphPool& late = pools.Get(7, 0);
  early.Opens();
  other.Opens();
  late.Opens();
  EXPECT_THAT(listener.Heard(), ElementsAre("2 opens", "7 opens"));
  EXPECT_EQ(&pools.Get(2, 0), &early);
  EXPECT_EQ(pools.Find(7), &late);
  EXPECT_EQ(pools.Find(6), nullptr);
  EXPECT_THAT(pools.OfDevice(0), ElementsAre(&early, &late));
  pools.SetListener(0, nullptr);
  early.Closes();
  EXPECT_THAT(listener.Heard(), IsEmpty());
}

TEST(GraphErrorTest, IsThisThreadsLastRefusal) {
  SetGraphError({.verdict = Verdict::kOutOfMemory}, 4, 7);
  EXPECT_THAT(GraphError(), HasSubstr("graph 7 of pool 4: out of memory"));
  std::thread([] { EXPECT_STREQ(GraphError(), ""); }).join();
  SetGraphError({.verdict = Verdict::kCarriedGone}, 4, 7);
  EXPECT_THAT(GraphError(), HasSubstr("graph 7 of pool 4: other tensors have used"));
}

TEST(GraphErrorTest, NamesWhoLeavesTheBytes) {
  SetGraphError({.verdict = Verdict::kCarriedGone, .giver = 12}, 4, 17);
  EXPECT_THAT(GraphError(), HasSubstr("graph 17 of pool 4: it reads what graph 12 of the pool leaves to it"));
  EXPECT_THAT(GraphError(), HasSubstr("Launch graph 12 first, or set STALLOC_GRAPHS=apart"));
  EXPECT_STREQ(TakeGraphError(), GraphError());
  EXPECT_STREQ(TakeGraphError(), "") << "once";
}

}  // namespace
}  // namespace stalloc
