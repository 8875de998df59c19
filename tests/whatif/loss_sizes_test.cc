#include "planner/whatif/loss_sizes.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

std::set<Bytes> Sizes(const std::string& script) {
  const ScriptFacts facts(script);
  std::set<Bytes> sizes;
  for (const PhaseAndSize& place : FindLossBlocks(*facts).sizes) sizes.insert(place.second);
  return sizes;
}

// At least four requests at either side of a turn are near it.
TEST(LossSizesTest, ASizeThatIsElsewhereTooIsALayer) {
  EXPECT_EQ(Sizes("I F0 +a=512 +b=1024 +c=512 +d=512 +e=512 +l=8192 B0 +g=1536 -g -l -e -d -c -b -a"),
            (std::set<Bytes>{8192}))
      << "1024 comes before the last four, 512 is there, too";
}

TEST(LossSizesTest, WhatStaysIntoTheBackwardIsNoLoss) {
  EXPECT_EQ(Sizes("I F0 +l=8192 +m=4096 B0 -m +p=512 -p +q=512 -q +r=512 -r +s=512 -s +t=512 -t -l"),
            (std::set<Bytes>{4096}));
}

TEST(LossSizesTest, ATurnIsOfOneMicrobatch) {
  EXPECT_EQ(Sizes("I F0 +k=2048 F1 +l=8192 B0 +g=1536 -k -g B1 +g=1536 -l -g"), std::set<Bytes>{})
      << "backward passes of others follow";
  EXPECT_EQ(Sizes("I F0 +l=8192 B0 +g=1536 -l -g F1 +m=4096 B1 +g=1536 -m -g"), (std::set<Bytes>{4096, 8192}));
}

TEST(LossSizesTest, WithoutMicrobatchesLayersTellWhereTheTurnIs) {
  const std::string layers = "L:m +a=512 +b=1024 +c=512 +d=512 +e=512 LE:m=0 L:head +l=8192 LE:head=0 ";
  EXPECT_EQ(Sizes("I " + layers + "LB:head +g=1536 -g -l LB:m -e -d -c -b -a O +t=512 -t"), (std::set<Bytes>{8192}));
  EXPECT_EQ(Sizes("+w=4096 " + layers + "LB:head +g=1536 -g -l LB:m -e -d -c -b -a O? +t=512 -t I?"),
            (std::set<Bytes>{8192}))
      << "the first iteration is a part of the set-up";
  EXPECT_EQ(Sizes("I " + layers + "+g=1536 -g -l -e -d -c -b -a O +t=512 -t"), (std::set<Bytes>{}));
}

TEST(LossSizesTest, ALossOutsideOfAllLayersIsBetweenTheLastAndItsBackwardPass) {
  const std::string before = "I L:m +a=512 +b=1024 LE:m=0 L:head +l=4096 LE:head=0 ";
  const std::string after = "-g -h +w=2048 LE:head LB:m -b -a O -w";
  // More than four requests on either side: logits in another type, what the loss makes of them, and their gradients.
  EXPECT_EQ(Sizes(before + "+f=8192 -l +s=8192 -f +n=512 -n +n=512 -n +n=512 -n +g=8192 -s +h=4096 LB:head " + after),
            (std::set<Bytes>{4096, 8192}));
  // The loss is a layer, too, and the logits are of the size of what it makes.
  EXPECT_EQ(Sizes("I L:m +a=512 +b=1024 LE:m=0 L:head +l=8192 LE:head=0 L:loss +s=8192 LE:loss=0 +n=512 -n +n=512 -n "
                  "+n=512 -n +n=512 -n LB:loss +g=8192 -s LE:loss LB:head -l -g +w=2048 LE:head LB:m -b -a O -w"),
            (std::set<Bytes>{8192}));
}

TEST(LossSizesTest, GradientsOfTheLayerThatMakesTheLogitsAreThereInAllParts) {
  // h: of the layer's weights; x: of its input. n comes when the logits and their gradient have gone.
  const ScriptFacts facts("I F0 +a=512 +l=8192 B0 +g=8192 -l +h=1024 +x=1536 -g +n=512 -n +p=640 -p -x -a O -h");
  const LossBlocks found = FindLossBlocks(*facts);
  ASSERT_EQ(found.gradients.size(), 2u);
  EXPECT_EQ(facts->device.allocations[found.gradients[0].block].bytes, 1024u);
  EXPECT_EQ(facts->device.allocations[found.gradients[1].block].bytes, 1536u);
  EXPECT_EQ(found.gradients[0].loss_event, 4u);
}

TEST(LossSizesTest, BlocksOfTheBackwardAloneAreNotThroughTheTurn) {
  EXPECT_EQ(Sizes("I F0 +l=8192 B0 +d=1024 -d -l"), (std::set<Bytes>{8192}));
}

}  // namespace
}  // namespace stalloc::planner
