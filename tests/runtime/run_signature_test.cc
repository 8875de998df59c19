#include "allocator/runtime/run_signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

namespace stalloc {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Mark BeginOf(MarkKind kind, bool automatic = false) {
  return {.kind = kind, .edge = MarkEdge::kBegin, .name = {}, .automatic = automatic};
}
Mark EndOf(MarkKind kind) { return {.kind = kind, .edge = MarkEdge::kEnd, .name = {}}; }

// A request that nothing else lives beside.
void Add(RunSignature& signature, Bytes bytes) { signature.Add(0, bytes, BlockBytes(bytes)); }

// The sizes of each phase, set-up first: "1024 2|2048 1".
std::string Sizes(const RunSignature& signature) {
  const std::string json = signature.Json();
  std::string phases;
  for (std::size_t at = json.find("\"sizes\": ["); at != std::string::npos; at = json.find("\"sizes\": [", at + 1)) {
    const std::size_t begin = at + std::string("\"sizes\": [").size();
    phases += "|" + json.substr(begin, json.find(']', begin) - begin);
  }
  phases.erase(0, 1);
  std::erase(phases, ',');
  return phases;
}

// Of one phase, whatever the rest: the first one that has the key.
std::string Value(const RunSignature& signature, const std::string& key) {
  const std::string json = signature.Json();
  const std::size_t begin = json.find("\"" + key + "\": ") + key.size() + 4;
  return json.substr(begin, json.find(',', begin) - begin);
}

TEST(RunSignatureTest, SetUpAndIterationsAreApart) {
  RunSignature signature;
  Add(signature, 4 * kKiB);
  signature.See(EndOf(MarkKind::kInit));
  Add(signature, kKiB);
  Add(signature, kKiB - 1);
  signature.See(BeginOf(MarkKind::kIteration, /*automatic=*/true));
  Add(signature, 2 * kKiB);
  EXPECT_EQ(Sizes(signature), "4096 1|1024 2|2048 1");
}

TEST(RunSignatureTest, ALoopThatMarksItsIterationsBeginsWithOne) {
  for (const bool forward_first : {false, true}) {
    RunSignature signature;
    Add(signature, 4 * kKiB);
    if (forward_first) signature.See(EndOf(MarkKind::kInit));
    signature.See(BeginOf(MarkKind::kIteration));
    Add(signature, kKiB);
    signature.See(BeginOf(MarkKind::kIteration, /*automatic=*/true));  // of a hook, which is none here
    Add(signature, 2 * kKiB);
    signature.See(BeginOf(MarkKind::kIteration));
    Add(signature, 3 * kKiB);
    EXPECT_EQ(Sizes(signature), "4096 1|1024 1 2048 1|3072 1");
  }
}

TEST(RunSignatureTest, WhereNobodyTellsTheEndOfSetUpItLastsToTheFirstBoundary) {
  RunSignature signature;
  Add(signature, 4 * kKiB);
  signature.See(BeginOf(MarkKind::kIteration, /*automatic=*/true));
  Add(signature, kKiB);
  EXPECT_EQ(Sizes(signature), "4096 1||1024 1");
}

TEST(RunSignatureTest, SmallRequestsAndThoseOfFencesDoNotCount) {
  RunSignature signature;
  Add(signature, 512);
  signature.See(BeginOf(MarkKind::kFence));
  signature.See(BeginOf(MarkKind::kIteration));
  Add(signature, kKiB);
  signature.See(EndOf(MarkKind::kFence));
  signature.See(EndOf(MarkKind::kFence));
  Add(signature, 2 * kKiB);
  EXPECT_EQ(Sizes(signature), "2048 1");
}

TEST(RunSignatureTest, ItGrowsFromWhatLivedBefore) {
  RunSignature signature;
  signature.Add(0, kKiB, 5 * kKiB);
  signature.Add(1, kKiB, 100 * kKiB);
  signature.Add(0, kKiB, 7 * kKiB);
  signature.Add(0, kKiB, 2 * kKiB);
  EXPECT_EQ(Value(signature, "growth"), std::to_string(3 * kKiB));
  EXPECT_EQ(Value(signature, "requests"), "4");
  EXPECT_EQ(Value(signature, "bytes"), std::to_string(4 * kKiB));
}

TEST(RunSignatureTest, TheOrderOfAThreadCountsHoweverOthersInterleave) {
  const auto order = [](const std::vector<Bytes>& sizes, int threads) {
    RunSignature signature;
    std::vector<std::thread> all;
    for (int i = 0; i < threads; ++i) {
      all.emplace_back([&] {
        for (const Bytes bytes : sizes) Add(signature, bytes);
      });
    }
    for (std::thread& thread : all) thread.join();
    return Value(signature, "order");
  };
  std::vector<Bytes> sizes;
  for (Bytes i = 1; i <= 200; ++i) sizes.push_back(i * kKiB);
  const std::string expected = order(sizes, 4);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(order(sizes, 4), expected);
  std::swap(sizes[10], sizes[20]);
  EXPECT_NE(order(sizes, 4), expected);
}

TEST(RunSignatureTest, SizesBeyondTheMostAreAddedUp) {
  RunSignature signature;
  for (Bytes i = 1; i <= RunSignature::kMostSizes + 2; ++i) Add(signature, i * kKiB);
  Add(signature, kKiB);
  const Bytes others = (2 * RunSignature::kMostSizes + 3) * kKiB;
  EXPECT_THAT(signature.Json(), HasSubstr("\"others\": [2, " + std::to_string(others) + "]"));
  EXPECT_THAT(Sizes(signature), HasSubstr("1024 2 2048 1"));
}

TEST(RunSignatureTest, AfterItsLastIterationAndOnceClosedNothingCounts) {
  RunSignature signature;
  for (std::size_t i = 0; i + 1 < RunSignature::kMostPhases; ++i) {
    signature.See(BeginOf(MarkKind::kIteration));
    Add(signature, kKiB);
  }
  EXPECT_TRUE(signature.open());
  signature.See(BeginOf(MarkKind::kIteration));
  EXPECT_FALSE(signature.open());
  EXPECT_EQ(Sizes(signature), "|1024 1|1024 1|1024 1|1024 1|1024 1|1024 1|1024 1|1024 1");
  RunSignature closed;
  closed.Close();
  EXPECT_FALSE(closed.open());
  EXPECT_THAT(closed.Json(), Not(HasSubstr("1024")));
}

}  // namespace
}  // namespace stalloc
