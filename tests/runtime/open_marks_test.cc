#include "allocator/runtime/open_marks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stalloc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Mark Begin(MarkKind kind, int index = 0) { return {.kind = kind, .index = index, .name = {}}; }
Mark End(MarkKind kind, int index = 0) { return {.kind = kind, .edge = MarkEdge::kEnd, .index = index, .name = {}}; }

TEST(OpenMarksTest, KeepsWhatIsOpen) {
  OpenMarks open;
  EXPECT_THAT(open.marks(), IsEmpty());
  open.See(Begin(MarkKind::kIteration, 3));
  open.See(Begin(MarkKind::kMicrobatch));
  open.See(Begin(MarkKind::kLayer));
  open.See(End(MarkKind::kLayer));
  EXPECT_THAT(open.marks(), ElementsAre(Begin(MarkKind::kIteration, 3), Begin(MarkKind::kMicrobatch)));
  open.See(End(MarkKind::kMicrobatch));
  EXPECT_THAT(open.marks(), ElementsAre(Begin(MarkKind::kIteration, 3)));
}

TEST(OpenMarksTest, AnIterationThatHasEndedIsKeptUntilTheNext) {
  OpenMarks open;
  open.See(Begin(MarkKind::kIteration));
  open.See(Begin(MarkKind::kOptimizer));  // never ended
  open.See(End(MarkKind::kIteration));
  EXPECT_THAT(open.marks(), ElementsAre(Begin(MarkKind::kIteration), End(MarkKind::kIteration)));
  open.See(Begin(MarkKind::kFence));
  open.See(Begin(MarkKind::kIteration, 1));
  EXPECT_THAT(open.marks(), ElementsAre(Begin(MarkKind::kIteration, 1)));
}

TEST(OpenMarksTest, AnEndWithoutABeginIsNothing) {
  OpenMarks open;
  open.See(End(MarkKind::kFence));
  open.See(End(MarkKind::kIteration));
  EXPECT_THAT(open.marks(), IsEmpty());
}

TEST(OpenMarksTest, MarksWithoutEndsDoNotPileUp) {
  OpenMarks open;
  for (int i = 0; i < 1000; ++i) open.See(Begin(MarkKind::kLayer, i));
  EXPECT_THAT(open.marks(), SizeIs(256));
}

}  // namespace
}  // namespace stalloc
