#include "planner/report/growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Iterations of the same body; each % is the iteration's number, each ^ that of `window` iterations before, if any.
std::string Loop(const std::string& body, int iterations, int window = 0) {
  std::string script;
  for (int i = 0; i < iterations; ++i) {
    std::istringstream words(body);
    for (std::string word; words >> word;) {
      const std::size_t now = word.find('%');
      const std::size_t before = word.find('^');
      if (now != std::string::npos) word.replace(now, 1, std::to_string(i));
      if (before != std::string::npos && i < window) continue;
      if (before != std::string::npos) word.replace(before, 1, std::to_string(i - window));
      script += word + " ";
    }
  }
  return script;
}

Growth GrowthOf(const std::string& script) {
  const ScriptFacts facts(script);
  return FindGrowth(*facts, facts.traced().segmentation, 10);
}

TEST(GrowthTest, WhatEveryIterationLeavesForGoodIsALeak) {
  // s stays from the first iteration on (state), k is handed to the next iteration, l leaks in each.
  const Growth growth = GrowthOf("+w=4096 I +s=4096 +k0=1024 +m=2048 " + Loop("I +a=512 -a +l%=2048 +k=1024 -k", 6));
  EXPECT_THAT(growth.begin_live, ElementsAre(0, 4096, 11264, 11264 + 2048, 11264 + 2 * 2048, 11264 + 3 * 2048,
                                             11264 + 4 * 2048, 11264 + 5 * 2048));
  ASSERT_EQ(growth.leaks.size(), 1u);
  const Leak& leak = growth.leaks[0];
  EXPECT_EQ(leak.least_bytes, 2048u);
  EXPECT_EQ(leak.most_bytes, 2048u);
  EXPECT_EQ(leak.blocks, 1);
  EXPECT_EQ(leak.bytes, 2048);
  EXPECT_EQ(leak.since, 2u);
  EXPECT_THAT(leak.live, ElementsAre(0, 0, 2048, 2 * 2048, 3 * 2048, 4 * 2048, 5 * 2048, 6 * 2048));
}

// A deque of three: each block outlives the iteration after its own, and three are there from the fourth iteration on.
TEST(GrowthTest, WhatAWindowKeepsIsNone) {
  for (const int iterations : {6, 8, 20}) {
    EXPECT_THAT(GrowthOf("+w=4096 " + Loop("I +a=512 -a +k%=2048 -k^", iterations, 3)).leaks, IsEmpty());
  }
}

TEST(GrowthTest, AWindowThatWasFullWhereTheTraceBeganIsNone) {
  std::string script = "+q0=2048 +q1=2048 +q2=2048 +q3=2048 +q4=2048 +q5=2048 +q6=2048 +q7=2048 +q8=2048 ";
  EXPECT_THAT(GrowthOf(script + Loop("I +a=512 -a +k%=2048 -q%", 8)).leaks, IsEmpty()) << "what was set-up is replaced";
  EXPECT_EQ(GrowthOf(script + Loop("I +a=512 -a +k%=2048", 8)).leaks.size(), 1u);
}

TEST(GrowthTest, FewIterationsTellNothing) {
  EXPECT_THAT(GrowthOf(Loop("I +l%=2048", kLeakIterations - 1)).leaks, IsEmpty());
  EXPECT_EQ(GrowthOf(Loop("I +l%=2048", kLeakIterations)).leaks.size(), 1u);
}

TEST(GrowthTest, ALeakOfEverySecondIterationIsOne) {
  const Growth growth = GrowthOf(Loop("I +a%=512 -a% I +l%=2048", 6));
  ASSERT_EQ(growth.leaks.size(), 1u);
  EXPECT_NEAR(growth.leaks[0].bytes, 1024, 150);
}

TEST(GrowthTest, SizesThatVaryLeakTogether) {
  const Growth growth = GrowthOf("I +a=512 -a I +l0=1024 I +l1=4096 I +l2=2048 I +l3=8192 I +l4=1536 I +a=512 -a");
  ASSERT_EQ(growth.leaks.size(), 1u);
  EXPECT_EQ(growth.leaks[0].least_bytes, 1024u);
  EXPECT_EQ(growth.leaks[0].most_bytes, 8192u);
  EXPECT_EQ(growth.leaks[0].blocks, 1);
}

// A history that is copied into a longer one in each iteration.
TEST(GrowthTest, ABlockThatIsReplacedByALargerOneIsALeak) {
  std::string script = "I +h0=1024 ";
  for (int i = 1; i < 10; ++i) {
    script += "I +h" + std::to_string(i) + "=" + std::to_string(1024 * (i + 1)) + " -h" + std::to_string(i - 1) + " ";
  }
  const Growth growth = GrowthOf(script);
  ASSERT_EQ(growth.leaks.size(), 1u);
  EXPECT_EQ(growth.leaks[0].blocks, 0);
  EXPECT_EQ(growth.leaks[0].bytes, 1024);
}

TEST(GrowthTest, WhatIsFreedWithTheProcessStays) {
  std::string frees;
  for (int i = 0; i < 7; ++i) frees += "-l" + std::to_string(i) + " ";
  EXPECT_EQ(GrowthOf("+w=4096 " + Loop("I +a=512 -a +l%=2048", 7) + "I +a=512 -a " + frees + "-w").leaks.size(), 1u);
}

TEST(GrowthTest, KeepsTheLargest) {
  const ScriptFacts facts(Loop("I +a%=512 +b%=4096", 7));
  const Growth growth = FindGrowth(*facts, facts.traced().segmentation, 1);
  ASSERT_EQ(growth.leaks.size(), 1u);
  EXPECT_EQ(growth.leaks[0].bytes, 4096);
}

TEST(GrowthTest, WhatIsMadeAllThroughAnIterationAndStaysUntilItsEndGrowsInside) {
  std::string parts;
  std::string frees;
  for (int i = 0; i < 10; ++i) {
    parts += "+a" + std::to_string(i) + "=4096 " + Repeat("+t=512 -t ", 20);
    frees += "-a" + std::to_string(i) + " ";
  }
  const std::string loop = Repeat("I " + parts + frees + "O +t=512 -t ", 3);
  const std::optional<GrowthInside> inside = GrowthOf("+w=4096 " + loop).inside;
  ASSERT_TRUE(inside.has_value());
  EXPECT_EQ(inside->bytes, 10 * 4096u);
  EXPECT_EQ(inside->blocks, 10u);
}

TEST(GrowthTest, AForwardPassWhoseBlocksGoInItsBackwardPassDoesNotGrow) {
  std::string forward;
  std::string backward;
  for (int i = 0; i < 10; ++i) {
    forward += "+a" + std::to_string(i) + "=4096 +t=512 -t ";
    backward += "+t=512 -t +g=1024 -g -a" + std::to_string(9 - i) + " ";
  }
  EXPECT_FALSE(GrowthOf("+w=4096 " + Repeat("I " + forward + backward + "O +t=512 -t ", 3)).inside.has_value());
  EXPECT_FALSE(GrowthOf("+w=4096 " + Repeat("I " + forward + forward + "O ", 1)).inside.has_value());
}

TEST(GrowthTest, AClimbIsHigherThanBeforeAndGoesOn) {
  const auto climbs = [](const std::vector<Bytes>& values) { return FindClimb(values, kLeakRises).has_value(); };
  EXPECT_TRUE(climbs({1, 2, 3, 4, 5}));
  EXPECT_FALSE(climbs({1, 2, 3, 4, 5, 5})) << "full";
  EXPECT_FALSE(climbs({1, 1, 1, 1, 1, 1, 2, 3, 4, 5, 5, 5})) << "full, and begun late";
  EXPECT_TRUE(climbs({9, 2, 3, 4, 8, 10}));
  EXPECT_FALSE(climbs({1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5})) << "emptied now and then";
  EXPECT_TRUE(climbs({1, 1, 2, 2, 3, 3, 4, 4, 5, 5}));
  EXPECT_FALSE(climbs({1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5}));
  EXPECT_FALSE(climbs({}));
}

}  // namespace
}  // namespace stalloc::planner
