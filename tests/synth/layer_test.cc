#include "planner/synth/layer.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace stalloc::planner {
namespace {

TEST(LayerTest, NoTokenIsDropped) {
  SynthOptions options;
  options.experts = 12;
  options.top_k = 3;
  Random random(5);
  const std::vector<Bytes> tokens = ExpertTokens(options, 1000, random);
  ASSERT_EQ(tokens.size(), 12u);
  EXPECT_EQ(std::accumulate(tokens.begin(), tokens.end(), Bytes{0}), 3000u);
  EXPECT_GT(std::set<Bytes>(tokens.begin(), tokens.end()).size(), 6u) << "shares vary";
}

TEST(LayerTest, OneOfSeveralRanksHoldsItsShareOfTheExperts) {
  SynthOptions options;
  options.experts = 12;
  options.top_k = 3;
  options.expert_parallel = 4;
  Random random(6);
  Bytes sum = 0;
  constexpr int kRounds = 200;
  for (int i = 0; i < kRounds; ++i) {
    const std::vector<Bytes> tokens = ExpertTokens(options, 1000, random);
    ASSERT_EQ(tokens.size(), 3u);
    sum += std::accumulate(tokens.begin(), tokens.end(), Bytes{0});
  }
  EXPECT_NEAR(static_cast<double>(sum) / kRounds, 3000, 200) << "on average what this rank's tokens ask for";
}

TEST(LayerTest, WeightsOfADenseLayerAreTwelveSquaresOfTheWidth) {
  SynthOptions options;
  options.hidden = 100;
  options.ffn = 400;
  const std::vector<Bytes> weights = LayerWeights(options);
  const Bytes norms = 2 * 2 * 100;
  EXPECT_EQ(std::accumulate(weights.begin(), weights.end(), Bytes{0}), 2 * 12 * 100 * 100 + norms);
}

}  // namespace
}  // namespace stalloc::planner
