#include "bench/replay/lagging_device.h"

#include <gtest/gtest.h>

#include "allocator/driver/host_driver.h"

namespace stalloc::bench {
namespace {

TEST(LaggingDeviceTest, AnEventIsDoneWhenTheHostIsFarEnoughAhead) {
  const auto driver = HostDriver::Create({.capacity = Bytes{1} << 30});
  LaggingDevice device(*driver, 2);
  const StreamFence::Event first = device.Record(0);
  device.Advance();
  const StreamFence::Event second = device.Record(7);
  EXPECT_FALSE(device.Done(first));
  device.Advance();
  EXPECT_TRUE(device.Done(first));
  EXPECT_FALSE(device.Done(second));
  device.Advance();
  EXPECT_TRUE(device.Done(second));
}

TEST(LaggingDeviceTest, WhoeverWaitsForTheDeviceFindsAllDone) {
  const auto driver = HostDriver::Create({.capacity = Bytes{1} << 30});
  LaggingDevice device(*driver, 1000);
  const StreamFence::Event event = device.Record(0);
  EXPECT_FALSE(device.Done(event));
  EXPECT_TRUE(device.Synchronize().ok());
  EXPECT_TRUE(device.Done(event));
  EXPECT_FALSE(device.Done(device.Record(0)));
}

TEST(LaggingDeviceTest, WithoutALagAllIsDoneAtOnce) {
  const auto driver = HostDriver::Create({.capacity = Bytes{1} << 30});
  LaggingDevice device(*driver, 0);
  EXPECT_TRUE(device.Done(device.Record(0)));
}

}  // namespace
}  // namespace stalloc::bench
