#include "allocator/base/check.h"

#include <gtest/gtest.h>

#include <vector>

namespace stalloc {
namespace {

TEST(CheckTest, FailedCheckPrintsConditionPlaceAndDetailThenAborts) {
  const int slot = 7;
  EXPECT_DEATH(STALLOC_CHECK(slot < 5), "E .*check_test.cc:[0-9]+: check failed: slot < 5");
  EXPECT_DEATH(STALLOC_CHECK(slot < 5, "slot %d of %d", slot, 5), "check failed: slot < 5: slot 7 of 5");
}

TEST(CheckTest, PassedCheckEvaluatesItsConditionOnce) {
  int evaluations = 0;
  STALLOC_CHECK(++evaluations > 0);
  EXPECT_EQ(evaluations, 1);
}

TEST(CheckTest, DebugCheckIsEvaluatedInCheckedBuildsOnly) {
  int evaluations = 0;
  STALLOC_DCHECK(++evaluations > 0, "count %d", evaluations);
#if defined(STALLOC_CHECKED)
  EXPECT_EQ(evaluations, 1);
#else
  EXPECT_EQ(evaluations, 0);
#endif
}

}  // namespace
}  // namespace stalloc
