#include "planner/whatif/run_edit.h"

#include <gtest/gtest.h>

#include "planner/synth/generator.h"
#include "planner/synth/options.h"
#include "planner/whatif/layer_units.h"
#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

Bytes PeakOf(const Trace& trace) { return PeakLiveBytes(TakeTrace(trace).value().devices.at(0)); }

TEST(RunEditTest, ABlockThatIsAwayIsNotLiveAndComesBack) {
  // Blocks 0: w, 1: a, 2: b. Events: +w 0, I 1, F0 2, +a 3, +b 4, -b 5, -a 6, O 7.
  const ScriptFacts facts("+w=512 I F0 +a=4096 +b=8192 -b -a O");
  const EditPlayer player(*facts);
  EXPECT_EQ(player.Play({}, TracedSizes(*facts)).live, 512u + 4096u + 8192u);
  RunEdit edit;
  edit.actions = {{4, 1, false}, {6, 1, true}};
  EXPECT_EQ(player.Play(edit, TracedSizes(*facts)).live, 512u + 8192u);
  const Trace edited = EditTrace(facts.trace(), facts->device, edit, {});
  EXPECT_EQ(PeakOf(edited), 512u + 8192u);
  EXPECT_EQ(edited.allocations, 4u) << "it is made twice";
}

TEST(RunEditTest, ABlockThatStaysIsLetGoByItsAction) {
  const ScriptFacts facts("+w=512 I F0 +a=4096 -a +b=8192 -b O");
  RunEdit edit;
  edit.staying = {1};
  edit.actions = {{7, 1, false}};
  EXPECT_EQ(EditPlayer(*facts).Play(edit, TracedSizes(*facts)).live, 512u + 4096u + 8192u);
  EXPECT_EQ(PeakOf(EditTrace(facts.trace(), facts->device, edit, {})), 512u + 4096u + 8192u);
}

TEST(RunEditTest, ExtraBlocksAreAsLargeAsTheirModelOrAsTold) {
  const ScriptFacts facts("+w=512 I F0 +a=4096 -a O");
  RunEdit edit;
  edit.extras = {{1, 0}, {kNone, 100}};
  edit.actions = {{4, 2, true}, {4, 3, true}, {5, 2, false}, {5, 3, false}};
  EXPECT_EQ(EditPlayer(*facts).Play(edit, TracedSizes(*facts)).live, 512u + 2 * 4096u + 512u);
  EXPECT_EQ(PeakOf(EditTrace(facts.trace(), facts->device, edit, {})), 512u + 2 * 4096u + 512u);
}

TEST(RunEditTest, OnlyWhatScalesGrowsWithTheMicroBatch) {
  const ScriptFacts facts("+w=5120 " + Repeat("I F0 +a=4096 +t=512 -t B0 +d=1024 -d -a O ", 3));
  const std::vector<Bytes> sizes = SizesAt(PartsByClass(*facts), 2.5);
  EXPECT_EQ(EditPlayer(*facts).Play({}, sizes).live, 5120u + 2.5 * (4096 + 1024));
  EXPECT_EQ(PeakOf(EditTrace(facts.trace(), facts->device, {}, sizes)), 5120u + 2.5 * (4096 + 1024));
}

TEST(RunEditTest, APoolHoldsTheMostThatPassesHaveMade) {
  // The optimizer's temporary is there when the passes have nothing.
  const ScriptFacts facts("+w=1024 " + Repeat("I F0 +a=4096 B0 -a O +t=2048 -t ", 2));
  const EditedPeak peak = EditPlayer(*facts).Play({}, TracedSizes(*facts));
  EXPECT_EQ(peak.live, 1024u + 4096u);
  EXPECT_EQ(peak.pool, 4096u);
  EXPECT_EQ(peak.outside_pool, 1024u + 2048u);
}

TEST(RunEditTest, MarksNamesAndStreamsOfTheTraceStay) {
  Trace trace = TraceFromScript("+w=512 I F0 L:net +a=4096 +c=512@1 ~a@1 LE:net B0 LB:net -c -a LBE:net O ");
  trace.texts = {"w", "a"};
  trace.tensors = {{.allocation = 0, .bytes = 512, .name = 0, .role = TensorRole::kParameter},
                   {.allocation = 1, .bytes = 4096, .name = 1, .role = TensorRole::kNone}};
  const ScriptFacts facts(trace);
  RunEdit edit;
  edit.extras = {{kNone, 512}};
  edit.actions = {{0, 3, true}, {1, 3, false}};  // before everything: numbers shift
  const Trace edited = EditTrace(facts.trace(), facts->device, edit, {});
  EXPECT_EQ(edited.marks, trace.marks);
  EXPECT_EQ(edited.tensors[0].allocation, 1u);
  EXPECT_EQ(edited.tensors[1].allocation, 2u);
  const TracedRank traced = TakeTrace(edited).value();
  EXPECT_EQ(traced.devices.at(0).allocations[3].stream, 1u);
  EXPECT_TRUE(traced.devices.at(0).allocations[2].foreign_stream);
}

TEST(RunEditTest, TheEditedTraceHasThePeakThatWasPlayed) {
  SynthOptions options;
  options.layers = 6;
  options.stages = 1;
  options.micro_batches = 3;
  options.iterations = 3;
  const ScriptFacts facts(Synthesize(options).value());
  const LayerUnits units(*facts);
  ASSERT_GE(units.units().size(), 6u);
  const EditPlayer player(*facts);
  for (const double scale : {1.0, 1.5, 3.0}) {
    const std::vector<Bytes> sizes = SizesAt(PartsByClass(*facts), scale);
    for (std::size_t chosen = 0; chosen <= units.units().size(); ++chosen) {
      UnitChoice choice = units.Nothing();
      for (std::size_t i = 0; i < chosen; ++i) {
        choice.uses[i] = i % 3 == 2 ? UnitUse::kOffloaded : UnitUse::kRecomputed;
      }
      choice.state_offloaded = chosen % 2 == 1;
      choice.accumulated = chosen % 3 == 1;
      choice.single = chosen % 3 == 2;
      const RunEdit edit = units.EditOf(choice);
      EXPECT_EQ(PeakOf(EditTrace(facts.trace(), facts->device, edit, sizes)), player.Play(edit, sizes).live)
          << chosen << " units, scale " << scale;
    }
  }
}

}  // namespace
}  // namespace stalloc::planner
