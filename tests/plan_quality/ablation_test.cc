#include "bench/plan_quality/ablation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/synth/generator.h"
#include "planner/synth/options.h"

namespace stalloc::planner {
namespace {

using ::testing::HasSubstr;

TEST(AblationTest, TheWholePortfolioComesFirstThenEachPassAlone) {
  const std::vector<Variant> variants = VariantsOf({"all"}).value();
  ASSERT_EQ(variants.size(), kPassNames.size() + 1);
  EXPECT_EQ(variants[0].name, "");
  for (std::size_t i = 0; i < kPassNames.size(); ++i) {
    EXPECT_TRUE(variants[0].passes.Have(static_cast<PackingPass>(i)));
    EXPECT_EQ(variants[i + 1].name, kPassNames[i]);
    EXPECT_FALSE(variants[i + 1].passes.Have(static_cast<PackingPass>(i)));
  }
}

TEST(AblationTest, SeveralAreLeftOutTogetherAndFinishPassesAreKnown) {
  const std::vector<Variant> variants = VariantsOf({"size-classes+sink", "sink+apart"}).value();
  ASSERT_EQ(variants.size(), 3u);
  EXPECT_FALSE(variants[1].passes.Have(PackingPass::kSizeClasses));
  EXPECT_FALSE(variants[1].passes.Have(PackingPass::kSink));
  EXPECT_TRUE(variants[1].passes.Have(PackingPass::kApart));
  EXPECT_FALSE(variants[0].IsOfFinish());
  EXPECT_FALSE(variants[1].IsOfFinish());
  EXPECT_TRUE(variants[2].IsOfFinish());
}

TEST(AblationTest, AnUnknownPassIsNamedWithThoseThereAre) {
  const absl::Status status = VariantsOf({"size-classes+squares"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("size-classes"));
  EXPECT_THAT(status.message(), HasSubstr("found squares"));
}

TEST(AblationTest, APlanIsMeasuredWithAndWithoutAPass) {
  SynthOptions options = FindSynthPreset("recompute").value();
  options.micro_batches = 8;
  options.state = ModelState::kFull;
  options.second_stream = true;
  const Trace trace = Synthesize(options).value();
  std::vector<AblationRow> rows;
  const std::vector<Variant> variants = VariantsOf({"tidy-lanes"}).value();
  for (const Variant& variant : variants) {
    const absl::StatusOr<AblationRow> row = MeasurePlan("plan/recompute", trace, variant, {.time_limit_s = 2});
    ASSERT_TRUE(row.ok()) << row.status();
    EXPECT_GE(row->height, row->load_bound);
    EXPECT_GE(row->held, row->live);
    EXPECT_GT(row->live, 0u);
    rows.push_back(*row);
  }
  EXPECT_EQ(rows[0].height, rows[1].height);
  EXPECT_LT(rows[0].hand_overs, rows[1].hand_overs);
  const std::string json = AblationJson(rows, FactsOf("plan_quality_bench", {}, "1", "gcc"), 0.1);
  EXPECT_THAT(json, HasSubstr("\"without\": \"tidy-lanes\""));
  EXPECT_THAT(json, HasSubstr("\"hand_overs\""));
}

}  // namespace
}  // namespace stalloc::planner
