#include "planner/report/worth_text.h"

#include <gtest/gtest.h>

namespace stalloc::planner {
namespace {

DeviceReport Held(Bytes live, Bytes native, Bytes expandable) {
  DeviceReport device;
  device.peak.live_bytes = live;
  device.simulated.native_bytes = native;
  device.simulated.expandable_bytes = expandable;
  return device;
}

TEST(WorthTextTest, SaysWhatEachAllocatorHoldsAndWhatAPlanSaves) {
  DevicePlan plan;
  plan.predicted.efficiency = 0.5;
  EXPECT_EQ(
      WorthText(Held(10 * kGiB, 48 * kGiB, 24 * kGiB), &plan, 80 * kGiB),
      "native would hold 48.00 GiB, expandable_segments 24.00 GiB, stalloc 20.00 GiB: worth 28.00 GiB against native, "
      "4.00 GiB against expandable_segments; all of them fit the card's 80.00 GiB");
}

TEST(WorthTextTest, WithoutAPlanItIsABound) {
  const std::string text = WorthText(Held(20 * kGiB, 48 * kGiB, 20 * kGiB), nullptr, 32 * kGiB);
  EXPECT_EQ(
      text,
      "native would hold 48.00 GiB, expandable_segments 20.00 GiB, stalloc at least 20.00 GiB: worth 28.00 GiB against "
      "native, nothing against expandable_segments; only expandable_segments and stalloc fit the card's 32.00 GiB");
}

TEST(WorthTextTest, SaysWhereNothingIsWon) {
  const std::string text = WorthText(Held(20 * kGiB, 20 * kGiB, 20 * kGiB), nullptr, 0);
  EXPECT_NE(text.find("worth no memory"), std::string::npos) << text;
  EXPECT_EQ(text.find("card"), std::string::npos) << text;
  EXPECT_NE(WorthText(Held(20 * kGiB, 21 * kGiB, 22 * kGiB), nullptr, kGiB).find("none of them fits"),
            std::string::npos);
  EXPECT_EQ(WorthText(Held(0, 0, 0), nullptr, 0), "");
  DeviceReport cpu = Held(20 * kGiB, 48 * kGiB, 20 * kGiB);
  cpu.device = kCpuDevice;
  EXPECT_EQ(WorthText(cpu, nullptr, kGiB).find("card"), std::string::npos) << "its memory is the host's";
}

}  // namespace
}  // namespace stalloc::planner
