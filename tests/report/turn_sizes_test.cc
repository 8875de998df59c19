#include "planner/report/turn_sizes.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

std::set<Bytes> Sizes(const std::string& script) {
  const ScriptFacts facts(script);
  std::set<Bytes> sizes;
  for (const PhaseAndSize& place : FindTurnSizes(*facts)) sizes.insert(place.second);
  return sizes;
}

// At least four requests at either side of a turn are near it.
TEST(TurnSizesTest, ASizeThatIsElsewhereTooIsALayer) {
  EXPECT_EQ(Sizes("I F0 +a=512 +b=1024 +c=512 +d=512 +e=512 +l=8192 B0 +g=1536 -g -l -e -d -c -b -a"),
            (std::set<Bytes>{8192}))
      << "1024 comes before the last four, 512 is there, too";
}

TEST(TurnSizesTest, WhatStaysIntoTheBackwardIsNoLoss) {
  EXPECT_EQ(Sizes("I F0 +l=8192 +m=4096 B0 -m +p=512 -p +q=512 -q +r=512 -r +s=512 -s +t=512 -t -l"),
            (std::set<Bytes>{4096}));
}

TEST(TurnSizesTest, ATurnIsOfOneMicrobatch) {
  EXPECT_EQ(Sizes("I F0 +k=2048 F1 +l=8192 B0 +g=1536 -k -g B1 +g=1536 -l -g"), std::set<Bytes>{})
      << "backward passes of others follow";
  EXPECT_EQ(Sizes("I F0 +l=8192 B0 +g=1536 -l -g F1 +m=4096 B1 +g=1536 -m -g"), (std::set<Bytes>{4096, 8192}));
}

TEST(TurnSizesTest, BlocksOfTheBackwardAloneAreNotThroughTheTurn) {
  EXPECT_EQ(Sizes("I F0 +l=8192 B0 +d=1024 -d -l"), (std::set<Bytes>{8192}));
}

}  // namespace
}  // namespace stalloc::planner
