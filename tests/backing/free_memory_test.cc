#include "allocator/backing/free_memory.h"

#include <gtest/gtest.h>

#include <memory>

#include "allocator/driver/forwarding_driver.h"
#include "allocator/driver/host_driver.h"

namespace stalloc {
namespace {

// A device of which the test says how much is free; counts who asks.
class AskedDriver final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  DriverStatus GetMemoryInfo(MemoryInfo* info) noexcept override {
    ++asked;
    *info = {.free = free, .total = total};
    return {};
  }
  Bytes free = 0;
  Bytes total = Bytes{100} << 30;
  int asked = 0;
};

class FreeMemoryTest : public ::testing::Test {
 protected:
  static bool Always(Bytes /*more*/) { return true; }

  const std::unique_ptr<HostDriver> host_ = HostDriver::Create({.capacity = kGiB, .granularity = kMiB});
  AskedDriver driver_{*host_};
};

TEST_F(FreeMemoryTest, TheDeviceIsAskedForALargeStepAtATime) {
  driver_.free = 18 * kGiB;
  FreeMemory memory(driver_, 2 * kGiB);
  EXPECT_TRUE(memory.is_free());
  driver_.asked = 0;
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(memory.Take(128 * kMiB, Always));
  EXPECT_EQ(driver_.asked, 1) << "an eighth of 16 GiB";
  EXPECT_TRUE(memory.Take(128 * kMiB, Always));
  EXPECT_EQ(driver_.asked, 2);
}

TEST_F(FreeMemoryTest, WhatIsToStayFreeIsNotTaken) {
  driver_.free = 3 * kGiB;
  FreeMemory memory(driver_, 2 * kGiB);
  EXPECT_TRUE(memory.Take(kGiB, Always));
  driver_.free = 2 * kGiB;
  EXPECT_FALSE(memory.Take(1, Always));
  EXPECT_FALSE(memory.is_free());
}

TEST_F(FreeMemoryTest, AFullDeviceIsAskedAgainOnceItIsSaidAndIsFreeWithTwiceAsMuchLeft) {
  driver_.free = kGiB;
  FreeMemory memory(driver_, 2 * kGiB);
  EXPECT_FALSE(memory.is_free());
  EXPECT_FALSE(memory.Take(1, Always));
  driver_.free = 10 * kGiB;
  EXPECT_FALSE(memory.Take(1, Always)) << "it was asked in this iteration";
  memory.QueryAgain();
  driver_.free = 4 * kGiB;
  EXPECT_FALSE(memory.Take(1, Always));
  memory.QueryAgain();
  driver_.free = 4 * kGiB + kMiB;
  EXPECT_TRUE(memory.Take(kMiB, Always));
  EXPECT_TRUE(memory.is_free());
}

TEST_F(FreeMemoryTest, TheProgramsOwnLimitMakesItFullAndSoDoesARefusal) {
  driver_.free = 50 * kGiB;
  FreeMemory memory(driver_, 2 * kGiB);
  EXPECT_FALSE(memory.Take(kGiB, [](Bytes more) { return more < kGiB; }));
  EXPECT_FALSE(memory.is_free());
  memory.QueryAgain();
  EXPECT_TRUE(memory.Take(kGiB, Always));
  memory.Refused();
  EXPECT_FALSE(memory.is_free());
  EXPECT_FALSE(memory.Take(1, Always));
}

TEST_F(FreeMemoryTest, ByDefaultAFiftiethStaysFreeAndAGibibyteAtLeast) {
  driver_.free = 2 * kGiB;
  EXPECT_TRUE(FreeMemory(driver_, FreeMemory::kDefaultKeep).is_free());
  driver_.free = 2 * kGiB - 1;
  EXPECT_FALSE(FreeMemory(driver_, FreeMemory::kDefaultKeep).is_free());
  driver_.total = 24 * kGiB;
  EXPECT_TRUE(FreeMemory(driver_, FreeMemory::kDefaultKeep).is_free());
  driver_.free = kGiB - 1;
  EXPECT_FALSE(FreeMemory(driver_, FreeMemory::kDefaultKeep).is_free());
}

}  // namespace
}  // namespace stalloc
