#include "planner/analysis/weight_casts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "planner/analysis/lifetimes.h"
#include "tests/analysis/trace_script.h"

namespace stalloc::planner {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Two weights of 4096 bytes. In each forward pass: a cast (c, d), what the layer makes of it (a, b). In each backward
// pass the gradients of the casts (h, i) become those of the weights (g, k).
constexpr char kForward[] = "+c=2048 +a=1536 +d=2048 +b=1536 ";
constexpr char kBackward[] = "+i=2048 -d -b +k=4096 -i +h=2048 -c -a +g=4096 -h ";

// Allocations of the script that are casts, by their order, where blocks of 4096 bytes that last until an optimizer's
// step are named as gradients.
std::vector<std::size_t> CastsOf(const std::string& script, bool named = true) {
  Trace trace = TraceFromScript(script);
  trace.texts = {"weight"};
  const DeviceTrace plain = BuildLifetimes(trace).value()[0];
  for (std::uint32_t i = 0; named && i < plain.allocations.size(); ++i) {
    const Allocation& one = plain.allocations[i];
    const bool stepped = std::ranges::any_of(trace.events, [&](const TraceEvent& event) {
      const auto at = static_cast<std::size_t>(&event - trace.events.data());
      return event.kind == EventKind::kMark && trace.marks[event.mark].kind == MarkKind::kOptimizer && one.event < at &&
             at < one.free_event;
    });
    if (one.bytes == 4096 && one.segment > 0 && stepped) {
      trace.tensors.push_back({.allocation = i, .name = 0, .role = TensorRole::kGradient});
    }
  }
  const DeviceTrace device = BuildLifetimes(trace).value()[0];
  const std::vector<std::uint32_t> events = FindWeightCasts(device);
  EXPECT_TRUE(std::ranges::is_sorted(events));
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < device.allocations.size(); ++i) {
    if (std::ranges::binary_search(events, device.allocations[i].event)) found.push_back(i);
  }
  return found;
}

TEST(WeightCastsTest, CastsAndTheirGradientsAreFound) {
  // 0, 1: weights; 2 to 5: c a d b; 6 to 9: i k h g.
  EXPECT_THAT(CastsOf(absl::StrCat("+v=4096 +w=4096 I ", kForward, kBackward, "O -g -k I ")), ElementsAre(2, 4, 6, 8));
}

TEST(WeightCastsTest, WithoutNamesOfGradientsNothingIsFound) {
  EXPECT_THAT(CastsOf(absl::StrCat("+v=4096 +w=4096 I ", kForward, kBackward, "O -g -k I "), false), IsEmpty());
}

TEST(WeightCastsTest, WithoutCastsNothingIsFound) {
  // The gradient comes, and what goes at once is another half as large, before it or later.
  EXPECT_THAT(CastsOf("+w=4096 I +c=2048 +a=512 +h=2048 -h +g=4096 +t=512 -t -c -a O -g I "), IsEmpty());
}

// One autocast around two micro-batches: casts stay, and the second backward pass ends with all gradients of casts.
TEST(WeightCastsTest, ASecondMicroBatchAddsToTheGradients) {
  const std::string second = "+a=1536 +b=1536 +i=2048 -b +h=2048 -a +k2=4096 -i -k2 +g2=4096 -h -g2 -c -d ";
  const std::string first = "+c=2048 +a=1536 +d=2048 +b=1536 +i=2048 -b +k=4096 -i +h=2048 -a +g=4096 -h ";
  // 2 to 5: c a d b; 6 to 9: i k h g; 10, 11: a b; 12, 13: i h; 14, 15: k2 g2.
  EXPECT_THAT(CastsOf(absl::StrCat("+v=4096 +w=4096 I ", first, second, "O -g -k I ")),
              ElementsAre(2, 4, 6, 8, 12, 13, 14, 15));
}

// Each micro-batch in an autocast of its own makes them anew.
TEST(WeightCastsTest, EachMicroBatchMayCastAnew) {
  const std::string again =
      "+c=2048 +a=1536 +d=2048 +b=1536 +i=2048 -d -b +k2=4096 -i -k2 +h=2048 -c -a +g2=4096 -h -g2 ";
  EXPECT_THAT(CastsOf(absl::StrCat("+v=4096 +w=4096 I ", kForward, kBackward, again, "O -g -k I ")),
              ElementsAre(2, 4, 6, 8, 10, 12, 14, 15, 16, 17));
}

// As many rows as a weight has: what layers make is as large as casts. So many are taken as there are weights.
TEST(WeightCastsTest, OfBlocksThatAreAsLargeSoManyAreTakenAsThereAreWeights) {
  const std::string forward = "+c=2048 +a=2048 +d=2048 +b=2048 ";
  EXPECT_THAT(CastsOf(absl::StrCat("+v=4096 +w=4096 I ", forward, kBackward, "O -g -k I ")), ElementsAre(2, 4, 6, 8));
}

// The gradient of a layer's input is cast as well: without a name, before the first weight's.
TEST(WeightCastsTest, GradientsOfOtherCastsAreNone) {
  const std::string backward =
      "+x=2048 +y=4096 -x -y +i=2048 -d -b +k=4096 -i +x=2048 +y=4096 -x -y +h=2048 -c -a +g=4096 -h ";
  // 6, 7: x y; 8, 9: i k; 10, 11: x y; 12, 13: h g.
  EXPECT_THAT(CastsOf(absl::StrCat("+v=4096 +w=4096 I ", kForward, backward, "O -g -k I ")), ElementsAre(2, 4, 8, 12));
}

TEST(WeightCastsTest, ALaterMicroBatchHasThemInTheSameOrder) {
  const std::string first =
      "+x=2048 +y=4096 -x -y +i=2048 -d -b +k=4096 -i +x=2048 +y=4096 -x -y +h=2048 -c -a +g=4096 -h ";
  const std::string later =
      "+x=2048 +y=4096 -x -y +i=2048 -d -b +m=4096 -i -m +x=2048 +y=4096 -x -y +h=2048 -c -a +m=4096 -h -m ";
  // 8: i; 12: h; 14 to 17: c a d b; 18, 19: x y; 20, 21: i m; 22, 23: x y; 24, 25: h m.
  EXPECT_THAT(CastsOf(absl::StrCat("+v=4096 +w=4096 I ", kForward, first, kForward, later, "O -g -k I ")),
              ElementsAre(2, 4, 8, 12, 14, 16, 20, 21, 24, 25));
}

// The first layer's cast goes with the autocast: autograd does not keep it where no input needs a gradient.
TEST(WeightCastsTest, ACastMayGoBeforeTheBackwardPass) {
  const std::string forward = "+c=2048 +t=2048 +s=512 -t -s +a=1536 +d=2048 +b=1536 -c ";
  const std::string backward = "+i=2048 -d -b +k=4096 -i +h=2048 -a +g=4096 -h ";
  // 2: c; 3, 4: temporaries; 5: a; 6: d; 7: b; 8 to 11: i k h g.
  EXPECT_THAT(CastsOf(absl::StrCat("+v=4096 +w=4096 I ", forward, backward, "O -g -k I ")), ElementsAre(2, 6, 8, 10));
}

// Checkpoints cast again as they run the forward pass once more.
TEST(WeightCastsTest, WhatIsRecomputedIsCastAgain) {
  const std::string backward =
      "+d2=2048r +b2=1536r +i=2048 -d2 -b2 +k=4096 -i +c2=2048r +a2=1536r +h=2048 -c2 -a2 +g=4096 -h ";
  // 2: c; 3: a; 4: d; 5: b; 6, 7: d2 b2; 8, 9: i k; 10, 11: c2 a2; 12, 13: h g.
  EXPECT_THAT(CastsOf(absl::StrCat("+v=4096 +w=4096 I ", kForward, "-c -d -a -b ", backward, "O -g -k I ")),
              ElementsAre(2, 4, 6, 8, 10, 12));
}

}  // namespace
}  // namespace stalloc::planner
