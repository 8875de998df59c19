#include "planner/synth/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace stalloc::planner {
namespace {

using testing::HasSubstr;

struct Wrong {
  const char* name;  // that the message must tell
  std::function<void(SynthOptions&)> spoil;
};

TEST(SynthOptionsTest, NamesWhatIsWrong) {
  const std::vector<Wrong> cases = {
      {"layers", [](SynthOptions& o) { o.layers = 0; }},
      {"layers must be a multiple of stages * chunks = 4, found 30", [](SynthOptions& o) { o.layers = 30; }},
      {"hidden", [](SynthOptions& o) { o.hidden = kMaxDimension + 1; }},
      {"seq must", [](SynthOptions& o) { o.sequence = 0; }},
      {"seq-min", [](SynthOptions& o) { o.min_sequence = o.sequence + 1; }},
      {"stages", [](SynthOptions& o) { o.stages = 0; }},
      {"stage must be between 0 and 3, found 4", [](SynthOptions& o) { o.stage = 4; }},
      {"chunks", [](SynthOptions& o) { o.chunks = 0; }},
      {"micro-batches must be a multiple", [](SynthOptions& o) { o.chunks = 2, o.micro_batches = 6; }},
      {"gpipe", [](SynthOptions& o) { o.chunks = 2, o.schedule = Schedule::kGPipe; }},
      {"iterations", [](SynthOptions& o) { o.iterations = 0; }},
      {"top-k", [](SynthOptions& o) { o.experts = 4, o.top_k = 5; }},
      {"experts must be a multiple", [](SynthOptions& o) { o.experts = 6, o.expert_parallel = 4; }},
  };
  for (const Wrong& wrong : cases) {
    SynthOptions options;
    wrong.spoil(options);
    const absl::Status status = CheckSynthOptions(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(wrong.name));
  }
}

TEST(SynthOptionsTest, PresetsAreValidAndDifferent) {
  std::vector<SynthOptions> seen;
  for (const SynthPreset& preset : SynthPresets()) {
    EXPECT_TRUE(CheckSynthOptions(preset.options).ok()) << preset.name;
    EXPECT_EQ(*FindSynthPreset(preset.name), preset.options);
    EXPECT_THAT(seen, testing::Not(testing::Contains(preset.options))) << preset.name;
    seen.push_back(preset.options);
  }
  EXPECT_THAT(std::string(FindSynthPreset("nonsense").status().message()), HasSubstr("dense, recompute"));
}

}  // namespace
}  // namespace stalloc::planner
