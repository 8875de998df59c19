// The recorded mixture of experts with whole experts taken out of an iteration: what stays must keep its partners.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/analysis/alignment.h"
#include "tests/analysis/corpus.h"

namespace stalloc::planner {
namespace {

struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
};

class DroppedExpertsTest : public testing::TestWithParam<double> {
 protected:
  // The three steady iterations have requests of the same number in the same order, so that position is identity.
  DroppedExpertsTest() {
    const DeviceTrace device = BuildLifetimes(ReadCorpus("gpt_moe16")).value().front();
    for (std::uint32_t segment = 2; segment <= 4; ++segment) {
      iterations_.push_back(MakeSequence(device, segment));
    }
    FindExperts();
  }

  [[nodiscard]] bool Varies(std::size_t i) const {
    const RequestKey key = iterations_[0].keys[i];
    return iterations_[1].keys[i] != key || iterations_[2].keys[i] != key;
  }

  // What one expert asks for in one pass: a run of varying sizes, with single ones between that do not vary, and the
  // result behind them.
  void FindExperts() {
    const std::size_t size = iterations_[0].keys.size();
    for (std::size_t i = 0; i < size; ++i) {
      if (!Varies(i)) continue;
      std::size_t end = i + 1;
      while (end < size && (Varies(end) || (end + 1 < size && Varies(end + 1)))) ++end;
      if (end - i >= 7) experts_.push_back({i, std::min(size, end + 1)});
      i = end;
    }
  }

  std::vector<Sequence> iterations_;
  std::vector<Range> experts_;
};

TEST_P(DroppedExpertsTest, WhatDoesNotVaryKeepsItsPartners) {
  ASSERT_GT(experts_.size(), 1000u);
  const Sequence& whole = iterations_[0];
  std::mt19937 random(7);
  std::vector<bool> gone(whole.keys.size());
  for (const Range& expert : experts_) {
    if (std::uniform_real_distribution<>(0, 1)(random) < GetParam()) {
      std::fill(gone.begin() + static_cast<std::ptrdiff_t>(expert.begin),
                gone.begin() + static_cast<std::ptrdiff_t>(expert.end), true);
    }
  }
  Sequence other;
  for (std::size_t i = 0; i < gone.size(); ++i) {
    if (!gone[i]) other.keys.push_back(iterations_[1].keys[i]);
  }
  const Alignment alignment = Align(whole, other);
  Bytes same = 0;  // of requests that are there and have the same size in both
  Bytes lost = 0;  // of those that are said to be missing or of another size
  for (std::uint32_t i = 0; i < gone.size(); ++i) {
    if (gone[i] || whole.keys[i] != iterations_[1].keys[i]) continue;
    const std::uint32_t partner = alignment.ToRight(i);
    const Bytes bytes = KeyBytes(whole.keys[i]);
    same += bytes;
    lost += partner == kNone || other.keys[partner] != whole.keys[i] ? bytes : 0;
  }
  const double share = static_cast<double>(lost) / static_cast<double>(same);
  std::printf("%.1f %% of the experts' runs dropped: %.2f %% of the other static bytes lose their partner\n",
              100 * GetParam(), 100 * share);
  EXPECT_LE(share, GetParam() <= 0.01 ? 0.0005 : 0.01);
}

INSTANTIATE_TEST_SUITE_P(Shares, DroppedExpertsTest, testing::Values(0.001, 0.01, 0.03, 0.1));

}  // namespace
}  // namespace stalloc::planner
