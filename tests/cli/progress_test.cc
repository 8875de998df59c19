#include "planner/cli/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "planner/report/quantities.h"

namespace stalloc::planner {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr ProgressPace kAtOnce{std::chrono::milliseconds(0), std::chrono::milliseconds(0)};
constexpr ProgressPace kNotAgain{std::chrono::hours(1), std::chrono::hours(1)};

TEST(ProgressTest, ATerminalHasOneLineThatIsRedrawnAndClearedInTheEnd) {
  std::ostringstream err;
  {
    Progress progress(err, true, 4, kAtOnce);
    progress.Finished(0, "fine");
    progress.Doing(2, PackingProgressText(1002, 1000));
    EXPECT_THAT(err.str(), HasSubstr("\r[#####...............] 1/4 rank 2: packing 1.00200 x the bound (1002 B)"));
  }
  EXPECT_THAT(err.str(), testing::EndsWith(" \r"));
}

TEST(ProgressTest, ElsewhereThereAreWholeLinesOnly) {
  std::ostringstream err;
  Progress(err, false, 2, kAtOnce).Doing(1, PackingProgressText(1000, 1000));
  EXPECT_EQ(err.str(), "rank 1: packing at the bound (1000 B)\n");
}

TEST(ProgressTest, WhatComesTooFastIsDroppedButNoResult) {
  for (const bool terminal : {false, true}) {
    std::ostringstream err;
    Progress progress(err, terminal, 2, kNotAgain);
    progress.Doing(0, "reading");
    progress.Finished(0, "fine");
    EXPECT_THAT(err.str(), AllOf(Not(HasSubstr("reading")), HasSubstr("[1/2] rank 0: fine\n")));
  }
}

}  // namespace
}  // namespace stalloc::planner
