#include "bench/replay/lagging_device.h"

#include <gtest/gtest.h>

#include "allocator/base/clock.h"
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

TEST(LaggingDeviceTest, CallsAreCountedByKind) {
  const auto driver = HostDriver::Create({.capacity = Bytes{1} << 30});
  LaggingDevice device(*driver, 0);
  const auto calls = [&device](DriverCall call) { return device.calls()[static_cast<std::size_t>(call)]; };
  Address address = 0;
  PhysicalHandle handle = 0;
  ASSERT_TRUE(device.Reserve(device.Granularity(), &address).ok());
  ASSERT_TRUE(device.Create(device.Granularity(), &handle).ok());
  ASSERT_TRUE(device.Map(address, device.Granularity(), handle).ok());
  ASSERT_TRUE(device.SetAccess(address, device.Granularity()).ok());
  ASSERT_TRUE(device.Unmap(address, device.Granularity()).ok());
  ASSERT_TRUE(device.Release(handle).ok());
  ASSERT_TRUE(device.ReleaseReservation(address, device.Granularity()).ok());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(device.Done(device.Record(0)));
  EXPECT_TRUE(device.Wait(0, 1));
  EXPECT_TRUE(device.Synchronize().ok());
  for (const DriverCall once : {DriverCall::kCreate, DriverCall::kMap, DriverCall::kSetAccess, DriverCall::kUnmap,
                                DriverCall::kRelease, DriverCall::kSynchronize, DriverCall::kStreamWait}) {
    EXPECT_EQ(calls(once), 1u) << DriverCallName(once);
  }
  EXPECT_EQ(calls(DriverCall::kEventRecord), 2u);
  EXPECT_EQ(calls(DriverCall::kEventQuery), 2u);
}

}  // namespace
}  // namespace stalloc::bench
