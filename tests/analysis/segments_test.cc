#include "planner/analysis/segments.h"

#include <gtest/gtest.h>

#include "planner/analysis/warnings.h"
#include "tests/analysis/trace_script.h"

namespace stalloc::planner {
namespace {

Segmentation Cut(std::string_view script) { return CutAtMarks(TraceFromScript(script)); }

TEST(SegmentsTest, EverythingBeforeTheFirstIterationIsSetUp) {
  const Segmentation cut = Cut("+w=512 I +a=512 -a I +a=512 -a");
  ASSERT_EQ(cut.segments.size(), 3u);
  EXPECT_EQ(cut.segments[0].index, -1);
  EXPECT_EQ(cut.segments[0].begin_event, 0u);
  EXPECT_EQ(cut.segments[0].end_event, 1u);
  EXPECT_EQ(cut.segments[1].begin_event, 1u);
  EXPECT_EQ(cut.segments[1].index, 0);
  EXPECT_EQ(cut.segments[2].end_event, 7u);
}

TEST(SegmentsTest, ATraceWithoutMarksIsAllSetUp) {
  const Segmentation cut = Cut("+w=512 -w");
  ASSERT_EQ(cut.segments.size(), 1u);
  EXPECT_EQ(cut.iterations(), 0u);
  EXPECT_EQ(cut.segments[0].end_event, 2u);
}

TEST(SegmentsTest, AnIterationsEndIsAPhaseAndDoesNotCut) {
  const Segmentation cut = Cut("I +a=512 E +b=512 I");
  ASSERT_EQ(cut.segments.size(), 3u);
  EXPECT_TRUE(cut.segments[1].ended);
  ASSERT_EQ(cut.segments[1].marks.size(), 1u);
  EXPECT_EQ(cut.segments[1].marks[0].event, 2u);
  EXPECT_FALSE(cut.segments[2].ended);
}

TEST(SegmentsTest, ExplicitIterationsOverruleAutomaticOnesFromTheFirstOn) {
  const Segmentation cut = Cut("+w=512 I? +a=512 I +b=512 I? +c=512 I");
  ASSERT_EQ(cut.segments.size(), 4u);
  EXPECT_EQ(cut.census.iterations, 3u);
  EXPECT_EQ(cut.census.automatic_iterations, 1u);
  EXPECT_EQ(cut.census.ignored_automatic, 1u);
}

TEST(SegmentsTest, AutomaticMarksOfOneKindAreKeptBesideExplicitOnesOfAnother) {
  const Segmentation cut = Cut("I F0 O? I F0 O?");
  EXPECT_EQ(cut.census.optimizers, 2u);
  EXPECT_EQ(cut.census.ignored_automatic, 0u);
  EXPECT_EQ(cut.segments[1].marks.size(), 2u);
}

TEST(SegmentsTest, MarksInsideFencesDoNotCount) {
  const Segmentation cut = Cut("I +a=512 (eval I F0 (save ) +b=512 ) -a I");
  EXPECT_EQ(cut.segments.size(), 3u);
  EXPECT_EQ(cut.census.fences, 1u);
  EXPECT_EQ(cut.census.microbatches, 0u);
  ASSERT_EQ(cut.fences.size(), 1u);
  EXPECT_EQ(cut.fences[0].begin_event, 2u);
  EXPECT_EQ(cut.fences[0].end_event, 8u);
}

TEST(SegmentsTest, AFenceThatNeverEndsReachesToTheEnd) {
  const Segmentation cut = Cut("I +a=512 (eval +b=512 -b");
  ASSERT_EQ(cut.fences.size(), 1u);
  EXPECT_EQ(cut.fences[0].end_event, 5u);
}

TEST(SegmentsTest, AFencesEndWithoutItsBeginningIsIgnored) {
  const Segmentation cut = Cut("I ) +a=512 I");
  EXPECT_TRUE(cut.fences.empty());
  EXPECT_EQ(cut.segments.size(), 3u);
}

TEST(MissingMarksTest, NamesWhatIsMissing) {
  EXPECT_NE(MissingMarks(Cut("+a=512").census).warnings[0].find("no iteration marks"), std::string::npos);
  const MarkFindings automatic = MissingMarks(Cut("I? I?").census);
  EXPECT_TRUE(automatic.warnings.empty());
  EXPECT_NE(automatic.notes[0].find("optimizer steps"), std::string::npos);
  EXPECT_NE(automatic.notes[1].find("no micro-batch marks"), std::string::npos);
  const MarkFindings dense = MissingMarks(Cut("I F0 I F0").census);
  EXPECT_TRUE(dense.warnings.empty());
  ASSERT_EQ(dense.notes.size(), 1u);
  EXPECT_NE(dense.notes[0].find("no layer marks"), std::string::npos);
  EXPECT_TRUE(MissingMarks(Cut("I F0 L:mlp I F0 L:mlp").census).notes.empty());
}

}  // namespace
}  // namespace stalloc::planner
