#include "bench/plan_quality/floors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace stalloc::planner {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Bytes kLittleMemory = 1 << 20;

Measurement Interleaved(Bytes height, double seconds) {
  return {.instance = "megatron_vpp_rank0",
          .solver = "portfolio",
          .load_bound = 10'000,
          .finished = true,
          .height = height,
          .seconds = 5,
          .improvements = {{0.1, 10'400}, {seconds, height}}};
}

TEST(FloorsTest, NamesAreUniqueAndLimitsSensible) {
  std::set<std::string> names;
  for (const Floor& floor : Floors()) {
    EXPECT_TRUE(names.insert(floor.instance).second) << floor.instance;
    EXPECT_GE(floor.ratio, 1.0) << floor.instance;
    EXPECT_GT(floor.seconds, 0.0) << floor.instance;
    EXPECT_EQ(FloorOf(floor.instance), &floor);
  }
  EXPECT_EQ(FloorOf("another"), nullptr);
}

TEST(FloorsTest, TheHeightMustBeReachedInTime) {
  EXPECT_THAT(MissedFloors({Interleaved(10'026, 4.9)}, kLittleMemory), IsEmpty());
  EXPECT_THAT(MissedFloors({Interleaved(10'026, 5.1)}, kLittleMemory), ElementsAre(HasSubstr("found it after 5.10 s")));
  EXPECT_THAT(MissedFloors({Interleaved(10'027, 0.2)}, kLittleMemory),
              ElementsAre(AllOf(HasSubstr("at most 10026"), HasSubstr("found 10027 (ratio 1.00270)"))));
}

TEST(FloorsTest, NoPackingIsAMiss) {
  Measurement measurement = Interleaved(0, 0);
  measurement.finished = false;
  EXPECT_THAT(MissedFloors({measurement}, kLittleMemory), ElementsAre(HasSubstr("found no packing")));
}

TEST(FloorsTest, OtherInstancesAreFree) {
  Measurement measurement = Interleaved(20'000, 9);
  measurement.instance = "another";
  EXPECT_THAT(MissedFloors({measurement}, kLittleMemory), IsEmpty());
}

TEST(FloorsTest, PublicInstancesHaveACapacityAndATotal) {
  Measurement first{.instance = "minimalloc/A",
                    .solver = "portfolio",
                    .load_bound = 900,
                    .capacity = 1000,
                    .finished = true,
                    .height = 1000,
                    .seconds = 2.5};
  EXPECT_THAT(MissedFloors({first}, kLittleMemory), IsEmpty());
  EXPECT_THAT(MissedFloors({first, first, first, first, first}, kLittleMemory),
              ElementsAre(HasSubstr("minimalloc/*: expected at most 10.0 s together, found 12.50 s")));
  first.height = 1001;
  EXPECT_THAT(MissedFloors({first}, kLittleMemory), ElementsAre(HasSubstr("at most 1000")));
}

TEST(FloorsTest, MemoryIsAFloor) {
  EXPECT_THAT(MissedFloors({}, kPeakResidentBytes), IsEmpty());
  EXPECT_THAT(MissedFloors({}, kPeakResidentBytes + 1), ElementsAre(HasSubstr("bytes of memory")));
}

}  // namespace
}  // namespace stalloc::planner
