#include "planner/analysis/steady.h"

#include <gtest/gtest.h>

#include "tests/analysis/plan_fixture.h"

namespace stalloc::planner {
namespace {

SteadyModel Compare(const std::string& script, bool all_streams = true) { return PlanOf(script, all_streams).model; }

// b is of another stream, d captured, and c recorded on another stream.
const char* const kStreams = "I +a=4096 +b=512@1 +c=1024 +d=2048! +e=512 ~c@1 -a -b -c -d -e";

TEST(SteadyTest, SameSizesAreStaticAndVaryingOnesDynamic) {
  const SteadyModel model = Compare(
      "I +a=4096 +b=1024 -a -b +c=9000 -c I +a=4096 +b=2048 -a -b +c=9000 -c I +a=4096 +b=700 -a -b +c=9000 -c");
  ASSERT_EQ(model.scripts.size(), 1u);
  const auto& script = model.scripts[0];
  EXPECT_EQ(script[0].entry_class, EntryClass::kStatic);
  EXPECT_EQ(script[1].entry_class, EntryClass::kDynamic);
  EXPECT_EQ(script[1].unplanned, Unplanned::kDynamic);
  EXPECT_EQ(script[1].min_bytes, 1024u);
  EXPECT_EQ(script[1].max_bytes, 2048u);
  EXPECT_EQ(script[2].entry_class, EntryClass::kStatic);
}

TEST(SteadyTest, ARequestThatSomeIterationLacksIsOptional) {
  const SteadyModel model =
      Compare("I +a=4096 +x=7000 -x -a +c=9000 -c I +a=4096 -a +c=9000 -c I +a=4096 +x=7000 -x -a +c=9000 -c");
  const auto& script = model.scripts[0];
  const auto x = std::find_if(script.begin(), script.end(), [](const CycleEntry& e) { return e.bytes == 7168; });
  if (x != script.end()) {  // absent if the iteration without it is the template
    EXPECT_EQ(x->entry_class, EntryClass::kOptional);
    EXPECT_EQ(x->unplanned, Unplanned::kOptional);
  }
  EXPECT_EQ(script.front().entry_class, EntryClass::kStatic);
  EXPECT_EQ(script.back().entry_class, EntryClass::kStatic);
}

TEST(SteadyTest, TheLatestFreeOfAllIterationsCounts) {
  // The third iteration frees a only after c.
  const SteadyModel model = Compare(
      "I +a=4096 -a +b=512 +c=512 -b -c +d=512 -d "
      "I +a=4096 -a +b=512 +c=512 -b -c +d=512 -d "
      "I +a=4096 +b=512 +c=512 -a -b -c +d=512 -d");
  EXPECT_EQ(model.scripts[0][0].end, 3);
}

TEST(SteadyTest, ABlockFreedInTheNextIterationEndsBeyondTheCycle) {
  const SteadyModel model = Compare("+l=2048 " + Repeat("I +a=512 -l +b=1024 -a -b +l=2048 +c=512 -c", 3));
  const CycleEntry& l = model.scripts[0][2];
  EXPECT_EQ(l.bytes, 2048u);
  EXPECT_EQ(l.begin, 2);
  EXPECT_EQ(l.end, 4 + 1);
  EXPECT_FALSE(l.resident);
}

TEST(SteadyTest, ABlockThatIsNeverFreedIsResident) {
  const SteadyModel model =
      Compare("I +a=512 -a +x0=4096 +b=512 -b I +a=512 -a +x1=4096 +b=512 -b I +a=512 -a +x2=4096 +b=512 -b");
  EXPECT_TRUE(model.scripts[0][1].resident);
  EXPECT_EQ(model.scripts[0][1].entry_class, EntryClass::kPersistent);
}

TEST(SteadyTest, BlocksOfAllStreamsArePlanned) {
  const SteadyModel model = Compare(Repeat(kStreams, 3));
  ASSERT_EQ(model.scripts[0].size(), 4u);  // the captured one is not in it
  for (const CycleEntry& entry : model.scripts[0]) EXPECT_EQ(entry.unplanned, Unplanned::kPlanned);
}

TEST(SteadyTest, APlanOfOneStreamHasOnlyWhatThatStreamAloneUses) {
  const SteadyModel model = Compare(Repeat(kStreams, 3), false);
  const auto& script = model.scripts[0];
  EXPECT_EQ(model.main_stream, 0u);
  ASSERT_EQ(script.size(), 4u);
  EXPECT_EQ(script[0].unplanned, Unplanned::kPlanned);
  EXPECT_EQ(script[1].unplanned, Unplanned::kOtherStream);
  EXPECT_EQ(script[2].unplanned, Unplanned::kRecorded);
  EXPECT_EQ(script[3].unplanned, Unplanned::kPlanned);
}

TEST(SteadyTest, RecordedInOneIterationIsRecorded) {
  const SteadyModel model = Compare("I +a=4096 -a I +a=4096 -a I +a=4096 ~a@1 -a", false);
  EXPECT_EQ(model.scripts[0][0].unplanned, Unplanned::kRecorded);
}

TEST(SteadyTest, WarmUpTellsWhichSizesVaryWhereNothingElseDoes) {
  // Two iterations: the first leaves state behind, so the second is the template and nothing follows it.
  const SteadyModel model = Compare("I +a=4096 +b=8192 -b -a +s=5000 I +a=4096 +b=9000 -b -a");
  ASSERT_EQ(model.cycle.warmup, 1u);
  EXPECT_EQ(model.scripts[0][0].entry_class, EntryClass::kStatic);
  EXPECT_EQ(model.scripts[0][1].entry_class, EntryClass::kDynamic);
}

TEST(SteadyTest, FreesAtTheEndOfTheProcessTellNothing) {
  // l is freed early in every next iteration; in the last one only at exit, together with the weights.
  const std::string body = "I +a=512 -l +b=1024 -a -b +l=2048 +c=512 -c ";
  const SteadyModel model = Compare("+w=4096 +l=2048 " + Repeat(body, 3) + "-w -l");
  EXPECT_EQ(model.scripts[0][2].end, 5);
  EXPECT_FALSE(model.scripts[0][2].resident);
}

TEST(SteadyTest, AnEvaluationBehindTheLastStepTellsNothingOfEnds) {
  // g is freed where the next iteration begins. What follows the last step is no iteration, and does not free it.
  const std::string body = "I? -g +a=512 +b=1024 -a -b +g=2048 +c=512 -c ";
  const std::string run = "+g=2048 " + Repeat(body, 4) + "I? +a=512 -a +b=1024 ";
  for (const std::string end : {"-b", "-g -b"}) {
    const SteadyModel model = Compare(run + end);
    ASSERT_TRUE(model.cycle.broken_off());
    EXPECT_EQ(model.scripts[0][2].bytes, 2048u);
    EXPECT_EQ(model.scripts[0][2].end, 4) << end;
  }
}

TEST(SteadyTest, ABrokenOffIterationTellsOfAnEndWhereNoOtherDoes) {
  const std::string body = "I -g +a=512 +b=1024 -a -b +g=2048 +c=512 -c +d=512 -d ";
  const SteadyModel model = Compare("+g=2048 " + Repeat(body, 1) + "+s=65536 " + body + "I +a=512 -g +b=1024 -b -a");
  ASSERT_EQ(model.cycle.warmup, 1u);
  ASSERT_TRUE(model.cycle.broken_off());
  EXPECT_FALSE(model.scripts[0][2].resident);
}

}  // namespace
}  // namespace stalloc::planner
