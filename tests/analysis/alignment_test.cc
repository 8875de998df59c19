#include "planner/analysis/alignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/analysis/anchors.h"

namespace stalloc::planner {
namespace {

using testing::ElementsAre;
using testing::Pair;

// Keys from sizes in KiB on stream 0.
std::vector<RequestKey> Keys(const std::vector<Bytes>& kib) {
  std::vector<RequestKey> keys;
  for (const Bytes size : kib) keys.push_back(MakeKey(size * 1024, 0));
  return keys;
}

Sequence MakeSequenceOf(const std::vector<Bytes>& kib) { return {Keys(kib), {}}; }

TEST(MakeKeyTest, KeepsSizeAndStreamApart) {
  EXPECT_EQ(KeyBytes(MakeKey(1536, 7)), 1536u);
  EXPECT_EQ(KeyStream(MakeKey(1536, 7)), 7u);
  EXPECT_NE(MakeKey(1024, 0), MakeKey(1024, 1));
}

TEST(AlignRequestsTest, PairsEqualSequencesOneToOne) {
  EXPECT_THAT(AlignRequests(Keys({1, 2, 2, 3}), Keys({1, 2, 2, 3})),
              ElementsAre(Pair(0, 0), Pair(1, 1), Pair(2, 2), Pair(3, 3)));
}

TEST(AlignRequestsTest, SkipsAnExtraRequest) {
  EXPECT_THAT(AlignRequests(Keys({10, 20, 30, 40}), Keys({10, 20, 99, 30, 40})),
              ElementsAre(Pair(0, 0), Pair(1, 1), Pair(2, 3), Pair(3, 4)));
}

TEST(AlignRequestsTest, SkipsAMissingRequest) {
  EXPECT_THAT(AlignRequests(Keys({10, 20, 30, 40}), Keys({10, 30, 40})),
              ElementsAre(Pair(0, 0), Pair(2, 1), Pair(3, 2)));
}

TEST(AlignRequestsTest, PairsVaryingRequestsBetweenAnchorsByPosition) {
  // 100 and 200 hold; what lies between varies in every position.
  const auto left = Keys({100, 11, 12, 13, 200, 14, 15, 100, 16, 200});
  const auto right = Keys({100, 21, 22, 23, 200, 24, 25, 100, 26, 200});
  EXPECT_THAT(AlignRequests(left, right), ElementsAre(Pair(0, 0), Pair(1, 1), Pair(2, 2), Pair(3, 3), Pair(4, 4),
                                                      Pair(5, 5), Pair(6, 6), Pair(7, 7), Pair(8, 8), Pair(9, 9)));
}

// Layers that are alike, of experts that are alike: each with its number of tokens, and without any one time in eight.
std::vector<Bytes> LayersOfExperts(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Bytes> kib;
  for (int layer = 0; layer < 12; ++layer) {
    for (Bytes i = 0; i < 12; ++i) kib.push_back(50000 + 100 * i);
    for (int expert = 0; expert < 16; ++expert) {
      if (random() % 8 == 0) continue;
      const Bytes tokens = random() % 400 + 1;
      for (int i = 0; i < 4; ++i) kib.insert(kib.end(), {16 * tokens, 900, tokens, 901, 22 * tokens});
    }
  }
  return kib;
}

TEST(AlignRequestsTest, LayersAreNotConfusedWhereTheirExpertsVary) {
  for (unsigned seed = 1; seed <= 16; ++seed) {
    SCOPED_TRACE(seed);
    const auto left = LayersOfExperts(2 * seed);
    const auto right = LayersOfExperts(2 * seed + 1);
    std::vector<int> layers;  // that begin with each other
    for (const auto& [l, r] : AlignRequests(Keys(left), Keys(right))) {
      if (left[l] != 50000) continue;
      EXPECT_EQ(right[r], 50000u);
      const auto before_left = std::count(left.begin(), left.begin() + l, 50000);
      const auto before_right = std::count(right.begin(), right.begin() + r, 50000);
      EXPECT_EQ(before_left, before_right);
      layers.push_back(static_cast<int>(before_left));
    }
    EXPECT_EQ(layers.size(), 12u);
  }
}

TEST(AlignRequestsTest, KeepsADifferenceInCountBetweenItsAnchors) {
  // Two varying requests in one gap on the left, three on the right; nothing after the next anchor may shift.
  std::vector<Bytes> left{500};
  std::vector<Bytes> right{500};
  for (Bytes i = 0; i < 40; ++i) {
    left.insert(left.end(), {1000 + i % 7, 2000 + i, 3000 + i});
    right.insert(right.end(), {1000 + i % 7, 4000 + i, 5000 + i});
    if (i == 20) right.push_back(6000);
  }
  left.push_back(600);
  right.push_back(600);
  const Alignment alignment(AlignRequests(Keys(left), Keys(right)), static_cast<std::uint32_t>(left.size()),
                            static_cast<std::uint32_t>(right.size()));
  for (std::uint32_t i = 0; i < 40; ++i) {
    const std::uint32_t shift = i > 20 ? 1 : 0;
    EXPECT_EQ(alignment.ToRight(1 + 3 * i), 1 + 3 * i + shift) << i;
  }
  EXPECT_EQ(alignment.ToRight(121), 122u);
}

// One layer of a mixture of experts: each expert has a mask, rows of its own number, and a result of a fixed size.
// `given`: which experts have tokens; one without stops after its mask.
void AppendLayer(std::mt19937& random, const std::vector<bool>& given, std::vector<Bytes>* kib) {
  kib->insert(kib->end(), {512, 96});
  for (const bool tokens : given) {
    kib->insert(kib->end(), {16, 21});
    if (!tokens) continue;
    const Bytes rows = 40 + random() % 9;
    kib->insert(kib->end(), {rows, 11 * rows, 11 * rows, 16 * rows, 512});
  }
  kib->push_back(96);
}

TEST(AlignRequestsTest, ExpertsWithoutTokensCostOnlyTheirOwnRequests) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<Bytes> left;
    std::vector<Bytes> right;
    std::vector<std::uint32_t> partner;  // on the left, of each request on the right
    for (int layer = 0; layer < 12; ++layer) {
      const std::size_t left_begin = left.size();
      const std::size_t right_begin = right.size();
      const std::size_t lost = random() % 16;
      AppendLayer(random, std::vector<bool>(16, true), &left);
      std::vector<bool> given(16, true);
      given[lost] = layer % 2 == 0;
      AppendLayer(random, given, &right);
      for (std::size_t i = right_begin; i < right.size(); ++i) {
        const std::size_t at = i - right_begin;
        const bool behind = layer % 2 == 1 && at >= 2 + 7 * lost + 2;
        partner.push_back(static_cast<std::uint32_t>(left_begin + at + (behind ? 5 : 0)));
      }
    }
    const Alignment alignment(AlignRequests(Keys(left), Keys(right)), static_cast<std::uint32_t>(left.size()),
                              static_cast<std::uint32_t>(right.size()));
    for (std::uint32_t i = 0; i < right.size(); ++i) {
      EXPECT_EQ(alignment.ToLeft(i), partner[i]) << i;
    }
  }
}

// A run of layers that the left side has first and the right side last: what both have strays far from the diagonal.
TEST(AlignRequestsTest, FollowsWhatBothHaveHoweverFarFromTheDiagonal) {
  constexpr std::size_t kExtra = 240;
  std::mt19937 random(1);
  const auto varying = [&] { return Bytes{100} + random() % 400; };
  std::vector<Bytes> left(kExtra);
  std::vector<Bytes> right;
  for (Bytes& kib : left) kib = 1'000'000 + varying();
  for (Bytes layer = 0; layer < 300; ++layer) {
    for (std::vector<Bytes>* side : {&left, &right}) {
      side->push_back(10'000 + 100 * layer);
      for (int i = 0; i < 4; ++i) side->push_back(varying());
    }
  }
  for (std::size_t i = 0; i < kExtra; ++i) right.push_back(1'000'000 + varying());
  const Alignment aligned = Align(MakeSequenceOf(left), MakeSequenceOf(right));
  for (std::uint32_t layer = 0; layer < 300; ++layer) {
    EXPECT_EQ(aligned.ToRight(kExtra + 5 * layer), 5 * layer) << layer;
  }
}

TEST(AlignRequestsTest, DoesNotPairAcrossStreams) {
  const std::vector<RequestKey> left{MakeKey(1024, 0), MakeKey(2048, 0), MakeKey(4096, 0)};
  const std::vector<RequestKey> right{MakeKey(1024, 0), MakeKey(3072, 1), MakeKey(4096, 0)};
  EXPECT_THAT(AlignRequests(left, right), ElementsAre(Pair(0, 0), Pair(2, 2)));
}

TEST(FindAnchorsTest, FiltersBothSidesToTheSameSequence) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto fill = [&](std::size_t size) {
      std::vector<RequestKey> keys(size);
      for (auto& key : keys) key = MakeKey((1 + random() % 9) * 512, 0);
      return keys;
    };
    const auto left = fill(random() % 60);
    auto right = left;
    for (unsigned i = 0; i < 3 && !right.empty(); ++i) std::swap(right[random() % right.size()], right.front());
    const Matches matches = FindAnchors(left, right);
    for (std::size_t i = 0; i < matches.size(); ++i) {
      EXPECT_EQ(left[matches[i].first], right[matches[i].second]);
      EXPECT_GE(KeyBytes(left[matches[i].first]), kAnchorBytes);
      if (i > 0) {
        EXPECT_GT(matches[i].second, matches[i - 1].second);
      }
    }
  }
}

TEST(FindAnchorsTest, DropsTheLighterOfTwoSizesThatChangedPlaces) {
  EXPECT_THAT(FindAnchors(Keys({8, 1, 9}), Keys({1, 8, 9})), ElementsAre(Pair(0, 1), Pair(2, 2)));
}

TEST(AlignTest, MarksKeepPhasesApart) {
  // Without marks the second 7 of the left would be paired with the only 7 of the right, in the first phase.
  const Mark forward{.kind = MarkKind::kMicrobatch, .pass = Pass::kForward, .name = ""};
  const Mark backward{.kind = MarkKind::kMicrobatch, .pass = Pass::kBackward, .name = ""};
  Sequence left = MakeSequenceOf({7, 8, 9});
  left.phases = {{forward, 0}, {backward, 2}};
  Sequence right = MakeSequenceOf({7, 8, 8, 9});
  right.phases = {{forward, 0}, {backward, 2}};
  const Alignment alignment = Align(left, right);
  EXPECT_EQ(alignment.ToRight(0), 0u);
  EXPECT_EQ(alignment.ToRight(1), 1u);
  EXPECT_EQ(alignment.ToRight(2), 3u);
  EXPECT_EQ(alignment.ToLeft(2), kNone);
}

TEST(AlignTest, AMarkThatOneSideLacksIsNoBoundary) {
  Sequence left = MakeSequenceOf({7, 8, 9});
  left.phases = {{{.kind = MarkKind::kOptimizer, .name = ""}, 1}};
  const Alignment alignment = Align(left, MakeSequenceOf({7, 8, 9}));
  EXPECT_EQ(alignment.ToRight(2), 2u);
}

TEST(AlignTest, IterationsOfDifferentNumbersAreTheSamePhase) {
  Sequence left = MakeSequenceOf({7, 7});
  left.phases = {{{.kind = MarkKind::kIteration, .edge = MarkEdge::kEnd, .index = 1, .name = ""}, 1}};
  Sequence right = MakeSequenceOf({7, 7, 7});
  right.phases = {{{.kind = MarkKind::kIteration, .edge = MarkEdge::kEnd, .index = 2, .name = ""}, 2}};
  const Alignment alignment = Align(left, right);
  EXPECT_EQ(alignment.ToRight(1), 2u);
}

TEST(AlignmentTest, LeftBoundIsTheNextPartner) {
  const Alignment alignment({{0, 1}, {2, 3}}, 4, 5);
  EXPECT_EQ(alignment.LeftBound(0), 0u);
  EXPECT_EQ(alignment.LeftBound(1), 0u);
  EXPECT_EQ(alignment.LeftBound(2), 2u);
  EXPECT_EQ(alignment.LeftBound(3), 2u);
  EXPECT_EQ(alignment.LeftBound(4), 4u);
  EXPECT_EQ(alignment.LeftBound(5), 4u);
}

TEST(AlignTest, IsMonotoneOnRandomSequences) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Sequence left;
    for (unsigned i = 0; i < 200; ++i) left.keys.push_back(MakeKey((1 + random() % 20) * 512, random() % 2));
    Sequence right;
    for (const RequestKey key : left.keys) {
      const unsigned what = random() % 20;
      if (what == 0) continue;
      if (what == 1) right.keys.push_back(MakeKey((1 + random() % 20) * 512, 0));
      right.keys.push_back(what == 2 ? MakeKey(KeyBytes(key) + 512, KeyStream(key)) : key);
    }
    const Alignment alignment = Align(left, right);
    std::uint32_t last = 0;
    std::uint32_t pairs = 0;
    for (std::uint32_t i = 0; i < left.keys.size(); ++i) {
      const std::uint32_t partner = alignment.ToRight(i);
      if (partner == kNone) continue;
      EXPECT_EQ(alignment.ToLeft(partner), i);
      EXPECT_EQ(KeyStream(left.keys[i]), KeyStream(right.keys[partner]));
      if (pairs++ > 0) {
        EXPECT_GT(partner, last);
      }
      last = partner;
    }
    EXPECT_GT(pairs, 100u);
  }
}

}  // namespace
}  // namespace stalloc::planner
