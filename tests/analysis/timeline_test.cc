#include "planner/analysis/timeline.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/analysis/plan_fixture.h"

namespace stalloc::planner {
namespace {

const Block& BlockOf(const Timeline& timeline, std::size_t script, std::size_t entry) {
  return timeline.problem.blocks.at(timeline.scripts.at(script).entries.at(entry).block);
}

TEST(TimelineTest, WeightsLiveToTheEndOfTheAxis) {
  const Timeline timeline = PlanOf("+w=4096 " + Repeat("I +a=512 +b=512 -a -b", 3)).timeline;
  EXPECT_EQ(timeline.prologue, 1u);
  EXPECT_EQ(timeline.cycle_begin, 1);
  EXPECT_EQ(timeline.end, 3);
  EXPECT_EQ(BlockOf(timeline, 0, 0).life, (Lifetime{0, 3}));
  EXPECT_TRUE(BlockOf(timeline, 0, 0).persistent);
  EXPECT_EQ(timeline.scripts[0].entries[0].entry_class, EntryClass::kPersistent);
}

TEST(TimelineTest, APlanForTheTracedRunItselfHasPlacesForItsCycleAlone) {
  const std::string body = "I +a=512 -l +b=1024 -a +l=2048 -b ";
  Planned planned = PlanOf("+w=4096 I +a=512 +b=1024 -a +l=2048 -b +s=8192 " + body + body + body);
  planned.model.running = true;
  const Timeline timeline = BuildTimeline(planned.device, planned.model);
  ASSERT_EQ(timeline.prologue, 2u);
  for (std::uint32_t script = 0; script < timeline.prologue; ++script) {
    for (const TimelineEntry& entry : timeline.scripts[script].entries) EXPECT_EQ(entry.block, kNone);
  }
  for (const TimelineEntry& entry : timeline.scripts[2].entries) EXPECT_NE(entry.block, kNone);
  EXPECT_EQ(LoadBound(timeline.problem), 1024u + 2048u);
}

TEST(TimelineTest, WeightsFreedAtExitAreAsGoodAsNeverFreed) {
  const Timeline timeline = PlanOf("+w=4096 " + Repeat("I +a=512 +b=512 -a -b", 3) + "-w").timeline;
  EXPECT_EQ(BlockOf(timeline, 0, 0).life, (Lifetime{0, 3}));
}

TEST(TimelineTest, TransientBlocksEndWhereTheNextRequestMayReuseThem) {
  const Timeline timeline = PlanOf(Repeat("I +a=512 +b=512 -a +c=512 -b -c", 3)).timeline;
  EXPECT_EQ(BlockOf(timeline, 1, 0).life, (Lifetime{0, 2}));
  EXPECT_EQ(BlockOf(timeline, 1, 1).life, (Lifetime{1, 3}));
  EXPECT_EQ(LoadBound(timeline.problem), 1024u);
}

TEST(TimelineTest, ABlockThatCrossesIntoTheNextIterationIsAnArc) {
  // +l in the middle, -l at the beginning of the next iteration; the first iteration differs in one block of state.
  const std::string body = "+a=512 -l +b=1024 -a -b +l=2048 +c=512 -c ";
  const Timeline timeline =
      PlanOf("I +a=512 +b=1024 -a -b +l=2048 +s=9000 +c=512 -c I " + body + "I " + body + "I " + body).timeline;
  ASSERT_EQ(timeline.prologue, 2u);
  const std::uint32_t arc = timeline.scripts[2].entries[2].block;
  const Block& block = timeline.problem.blocks[arc];
  EXPECT_EQ(block.life, (Lifetime{timeline.cycle_begin + 2, timeline.end}));
  // Its twin of the first iteration has the same place: one block, from there to the free in the cycle.
  EXPECT_EQ(timeline.scripts[1].entries[2].block, arc);
  ASSERT_TRUE(block.second_life.has_value());
  EXPECT_EQ(*block.second_life, (Lifetime{2, timeline.cycle_begin + 1}));
}

TEST(TimelineTest, AnArcWithoutATwinBeginsWithTheCycle) {
  const std::string body = "+a=512 -l +b=1024 -a -b +l=2048 +c=512 -c ";
  // In the first iteration the block has another size.
  const Timeline timeline =
      PlanOf("I +a=512 +b=1024 -a -b +l=7000 +s=9000 +c=512 -c I " + body + "I " + body + "I " + body).timeline;
  const Block& block = BlockOf(timeline, 2, 2);
  ASSERT_TRUE(block.second_life.has_value());
  EXPECT_EQ(*block.second_life, (Lifetime{timeline.cycle_begin, timeline.cycle_begin + 1}));
}

TEST(TimelineTest, ABlockThatOutlivesOnePeriodGetsTwoPlacesInTurn) {
  // A new loss is allocated before the old one goes.
  const std::string script =
      "+l0=2048 I +a=512 +l1=2048 -l0 -a +b=512 -b I +a=512 +l0=2048 -l1 -a +b=512 -b "
      "I +a=512 +l1=2048 -l0 -a +b=512 -b I +a=512 +l0=2048 -l1 -a +b=512 -b";
  const Planned planned = PlanOf(script);
  ASSERT_EQ(planned.timeline.copies, 2u);
  EXPECT_EQ(planned.plan.cycle.size(), 2u);
  const std::uint32_t first = planned.timeline.scripts[1].entries[1].block;
  const std::uint32_t second = planned.timeline.scripts[2].entries[1].block;
  EXPECT_NE(first, second);
  // What stays within its copy keeps one place in both.
  EXPECT_EQ(planned.timeline.scripts[1].entries[0].block, planned.timeline.scripts[2].entries[0].block);
  const Replay replay = ReplayTrace(planned.device, planned.plan).value();
  EXPECT_EQ(replay.segments[4].hits, 3u);
}

TEST(TimelineTest, WhatSetUpLeavesTakesThePlaceOfWhatEachIterationLeaves) {
  // A batch is fetched while the one before it is used, and the set-up fetches the first: two are there at any peak.
  std::string script = "INIT +w=8192 +n0=4096 ";
  for (int i = 0; i < 5; ++i) {
    absl::StrAppend(&script, "I +n", i + 1, "=4096 ", i > 0 ? absl::StrCat("-n", i - 1, " ") : "", "+a=16384 -a ");
  }
  const Timeline timeline = PlanOf(script).timeline;
  EXPECT_EQ(timeline.copies, 3u);
  EXPECT_EQ(LoadBound(timeline.problem), 8192u + 2 * 4096 + 16384);
  const Block& first = BlockOf(timeline, 0, 1);
  ASSERT_TRUE(first.second_life.has_value());
  EXPECT_EQ(first.life.end, timeline.end);  // it shares an arc's place
}

TEST(TimelineTest, ABlockOfManyPeriodsIsLeftToUpstream) {
  std::string script;
  for (int i = 0; i < 9; ++i) {
    const std::string old = i >= 6 ? "-l" + std::to_string(i - 6) + " " : "";
    script += "I +a=512 +l" + std::to_string(i) + "=2048 " + old + "-a +b=512 -b ";
  }
  const Timeline timeline = PlanOf(script).timeline;
  const TimelineEntry& entry = timeline.scripts[timeline.prologue].entries[1];
  EXPECT_EQ(entry.block, kNone);
  EXPECT_EQ(entry.unplanned, Unplanned::kLongLived);
}

TEST(TimelineTest, ABlockThatNoIterationFreesHasOnePlaceForTheWholeCycle) {
  const Timeline timeline =
      PlanOf("I +a=512 -a +x0=4096 +b=512 -b I +a=512 -a +x1=4096 +b=512 -b I +a=512 -a +x2=4096 +b=512 -b").timeline;
  const Block& block = BlockOf(timeline, 1, 1);
  EXPECT_EQ(block.life, (Lifetime{timeline.cycle_begin, timeline.end}));
  EXPECT_FALSE(block.second_life.has_value());
}

TEST(TimelineTest, WarmUpRequestsWhoseTwinsVaryAreNotPlanned) {
  const Timeline timeline =
      PlanOf("I +a=4096 +b=8192 -b -a +s=9000 I +a=4096 +b=6000 -b -a I +a=4096 +b=7000 -b -a").timeline;
  ASSERT_EQ(timeline.prologue, 2u);
  EXPECT_NE(timeline.scripts[1].entries[0].block, kNone);
  EXPECT_EQ(timeline.scripts[1].entries[1].block, kNone);
  EXPECT_EQ(timeline.scripts[1].entries[1].entry_class, EntryClass::kDynamic);
}

TEST(TimelineTest, SmallRequestsThatVaryHaveSlotsLargerThanTheLargest) {
  // Small is what is below a 4096th of the peak: 4096 bytes.
  const Timeline timeline =
      PlanOf("+w=16777216 I +a=4096 +b=1024 -b -a I +a=5000 +b=2048 -b -a I +a=4096 +b=1536 -b -a").timeline;
  EXPECT_EQ(BlockOf(timeline, 1, 1).bytes, 3072u);
  EXPECT_EQ(timeline.scripts[1].entries[1].entry_class, EntryClass::kDynamic);
  EXPECT_EQ(timeline.scripts[1].entries[0].block, kNone);
}

TEST(TimelineTest, FencedBlocksAreInNoScript) {
  const Timeline timeline = PlanOf(Repeat("I +a=512 (eval +e=8192 -e ) -a +b=512 -b", 3)).timeline;
  EXPECT_EQ(timeline.scripts[1].entries.size(), 2u);
  EXPECT_EQ(LoadBound(timeline.problem), 512u);
}

TEST(TimelineTest, ALifeIsTheLatestOfAllIterations) {
  // d varies in size; the third iteration frees it two requests later than the others.
  const Timeline timeline =
      PlanOf(
          "I +d=2048 +a=4096 -d +b=512 -b +c=512 -c -a I +d=3072 +a=4096 -d +b=512 -b +c=512 -c -a "
          "I +d=1024 +a=4096 +b=512 -b +c=512 -d -c -a")
          .timeline;
  const TimelineEntry& d = timeline.scripts[1].entries[0];
  ASSERT_EQ(d.entry_class, EntryClass::kDynamic);
  EXPECT_EQ(d.life, 4u);
}

TEST(TimelineTest, ALifeMayPassTheEndOfTheCycle) {
  // d varies, and goes after the first request of the next iteration.
  const Timeline timeline = PlanOf(
                                "+d=1024 I +a=512 -d +b=1024 -a -b +d=2048 +c=512 -c "
                                "I +a=512 -d +b=1024 -a -b +d=7168 +c=512 -c "
                                "I +a=512 -d +b=1024 -a -b +d=3072 +c=512 -c "
                                "I +a=512 -d +b=1024 -a -b +d=5120 +c=512 -c -d")
                                .timeline;
  const TimelineEntry& d = timeline.scripts.back().entries[2];
  ASSERT_EQ(d.entry_class, EntryClass::kDynamic);
  EXPECT_EQ(d.life, 4u - 2u + 1u);
}

TEST(TimelineTest, ALifeIsZeroOnlyWhereNoFreeIsKnown) {
  std::string script = "+w=4096 ";
  for (const char* name : {"k0", "k1", "k2"}) {
    script += "I +a=512 +x=4096 -x -a +" + std::string(name) + "=1024 ";
  }
  const Timeline timeline = PlanOf(script + "-w -k0 -k1 -k2").timeline;
  EXPECT_EQ(timeline.scripts[0].entries[0].life, 0u);  // freed at exit only
  const auto& entries = timeline.scripts.back().entries;
  EXPECT_EQ(entries[0].life, 2u);
  EXPECT_EQ(entries[1].life, 1u);
  EXPECT_EQ(entries[2].life, 0u);
}

TEST(TimelineTest, AnOptionalEntryLivesAsLongAsItsLongestSample) {
  // The second iteration lacks x, and the third keeps it for two requests more; the size of d varies.
  const Timeline timeline = PlanOf(
                                "I +a=4096 +d=20000 -d +b=512 +x=7000 -x +e=600 +c=1024 -a -b -c -e "
                                "I +a=4096 +d=30000 -d +b=512 +e=600 +c=1024 -a -b -c -e "
                                "I +a=4096 +d=10000 -d +b=512 +x=7000 +e=600 +c=1024 -x -a -b -c -e")
                                .timeline;
  const auto& entries = timeline.scripts.back().entries;
  const auto x = std::find_if(entries.begin(), entries.end(), [](const auto& e) { return e.bytes == 7168; });
  ASSERT_NE(x, entries.end());
  ASSERT_EQ(x->entry_class, EntryClass::kOptional);
  EXPECT_EQ(x->life, 3u);
}

TEST(TimelineTest, LivesOfThePrologueGoOnIntoTheCycle) {
  const Timeline timeline = PlanOf("+s=4096 +w=9000 " + Repeat("I +a=512 -s +b=1024 -a -b +s=4096", 3)).timeline;
  EXPECT_EQ(timeline.scripts[0].entries[0].life, 3u);
  EXPECT_EQ(timeline.scripts[0].entries[1].life, 0u);
}

TEST(TimelineTest, AVaryingRequestOfThePrologueLivesAsLongAsItsSteadyTwin) {
  // The first iteration leaves state behind, and frees d two requests earlier than the others.
  const auto steady = [](const std::string& bytes) { return "I +a=512 +d=" + bytes + " +b=512 +c=512 -d -b -c -a "; };
  const Timeline timeline = PlanOf("I +a=512 +d=2048 -d +b=512 +c=512 +state=9000 -b -c -a " + steady("3072") +
                                   steady("1024") + steady("7168"))
                                .timeline;
  ASSERT_EQ(timeline.prologue, 2u);
  const TimelineEntry& d = timeline.scripts[1].entries[1];
  ASSERT_EQ(d.entry_class, EntryClass::kDynamic);
  EXPECT_EQ(d.life, 3u);
}

// d varies and x is not always there.
const char* const kVarying =
    "I +a=4096 +d=20000 -d +b=512 +x=7000 -x +e=600 +c=1024 -a -b -c -e "
    "I +a=4096 +d=30000 -d +b=512 +e=600 +c=1024 -a -b -c -e "
    "I +a=4096 +d=10000 -d +b=512 +x=7000 +e=600 +c=1024 -x -a -b -c -e";

TEST(TimelineTest, WhatVariesHasASlotWhereTheChoiceSaysSo) {
  const auto timeline = [](const SlotChoice& choice) { return PlanOf(kVarying, true, choice).timeline; };
  const Timeline none = timeline({});
  EXPECT_EQ(none.scripts[1].entries[1].block, kNone);
  EXPECT_EQ(none.scripts[1].entries[3].block, kNone);
  EXPECT_EQ(none.scripts[1].entries[1].unplanned, Unplanned::kDynamic);

  const Timeline traced = timeline({SlotPolicy::kTemplate});
  EXPECT_EQ(BlockOf(traced, 1, 1).bytes, BlockBytes(20000));
  EXPECT_EQ(BlockOf(traced, 1, 3).bytes, BlockBytes(7000));
  EXPECT_EQ(traced.scripts[1].entries[1].unplanned, Unplanned::kPlanned);
  EXPECT_EQ(traced.scripts[1].entries[1].entry_class, EntryClass::kDynamic);

  const Timeline largest = timeline({SlotPolicy::kLargest});
  EXPECT_EQ(BlockOf(largest, 1, 1).bytes, BlockBytes(30000));
  EXPECT_EQ(BlockOf(largest, 1, 3).bytes, BlockBytes(7000));
  const Timeline roomy = timeline({SlotPolicy::kLargest, 0.2});
  EXPECT_EQ(BlockOf(roomy, 1, 1).bytes, BlockBytes(36250));  // 1.2 x 30208
  EXPECT_EQ(BlockOf(roomy, 1, 3).bytes, BlockBytes(7000));   // does not vary when it is there
}

TEST(TimelineTest, WhereSizesVaryStateHasItsPlaceFromTheBeginningIfThatCostsNothing) {
  // The first iteration makes the state; d varies. With `early`, set-up has a peak that leaves no room for the state.
  const auto timeline = [](const std::string& early, int third) {
    return PlanOf(early + "+w=4096 I +a=8192 +d=2048 -d -a +state=6000 I +a=8192 +d=3072 -d -a I +a=8192 +d=" +
                  std::to_string(third) + " -d -a I +a=8192 +d=5120 -d -a")
        .timeline;
  };
  const Timeline roomy = timeline("", 1024);
  const auto state_of = [](const Timeline& t) {
    return std::find_if(t.problem.blocks.begin(), t.problem.blocks.end(),
                        [](const Block& b) { return b.bytes == 6144; });
  };
  EXPECT_EQ(state_of(roomy)->life, (Lifetime{0, roomy.end}));
  const Timeline tight = timeline("+init=20000 -init ", 1024);
  EXPECT_GT(state_of(tight)->life.begin, 0);
  EXPECT_EQ(LoadBound(tight.problem), BlockBytes(20000));
}

// A validation before training leaves k behind, and a checkpoint m; t and u go, and nobody knows whether z stays.
constexpr char kFenced[] =
    "+w=4096 (eval +k=8192 +t=2048 -t ) I +a=512 -a I +a=512 -a (save +u=1024 +m=3072 ) I +a=512 -a -u "
    "I +a=512 -a (eval +z=2048 )";

TEST(TimelineTest, WhatAFenceLeavesBehindForGoodHasAPlaceOfItsOwn) {
  const Timeline timeline = PlanOf(kFenced).timeline;
  ASSERT_EQ(timeline.kept.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const Block& block = timeline.problem.blocks.at(timeline.kept[i].block);
    EXPECT_EQ(block.bytes, i == 0 ? 8192u : 3072u);
    EXPECT_EQ(block.life, (Lifetime{0, timeline.end}));
    EXPECT_TRUE(block.persistent);
  }
}

TEST(TimelineTest, APlanSaysWhatFencesKeepAndItsReplayServesIt) {
  const Planned planned = PlanOf(kFenced);
  const std::vector<Entry>& kept = planned.plan.kept.entries;
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].bytes, 8192u);
  EXPECT_EQ(kept[0].entry_class, EntryClass::kPersistent);
  EXPECT_EQ(planned.plan.slots.at(kept[1].slot).capacity, 3072u);
  EXPECT_EQ(planned.plan.arena_bytes, 4096u + 8192u + 3072u + 512u);
  const Replay replay = ReplayTrace(planned.device, planned.plan).value();
  EXPECT_EQ(replay.planned_peak_bytes, 4096u + 8192u + 3072u + 512u);
}

TEST(TimelineTest, WhatFencesKeepWithoutASlotIsUpstreams) {
  Planned planned = PlanOf(kFenced);
  planned.plan.kept.entries[0].slot = kNoSlot;  // as any plan may say
  const Replay replay = ReplayTrace(planned.device, planned.plan).value();
  EXPECT_EQ(replay.planned_peak_bytes, 4096u + 3072u + 512u);
  EXPECT_GE(replay.upstream_peak_bytes, 8192u);
}

}  // namespace
}  // namespace stalloc::planner
