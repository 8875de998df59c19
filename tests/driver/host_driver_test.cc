#include "allocator/driver/host_driver.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "allocator/driver/host_memory.h"
#include "tests/driver/driver_conformance.h"

namespace stalloc {
namespace {

DriverUnderTest MakeHostDriver() { return HostUnderTest({.capacity = 1024 * kMiB, .granularity = 2 * kMiB}); }
DriverUnderTest MakeSmallPageHostDriver() { return HostUnderTest({.capacity = 8 * kMiB, .granularity = 4096}); }

INSTANTIATE_TEST_SUITE_P(Host, DriverConformance, testing::Values(&MakeHostDriver));
INSTANTIATE_TEST_SUITE_P(HostSmallPages, DriverConformance, testing::Values(&MakeSmallPageHostDriver));

TEST(HostDriverTest, OptionsOutOfRangeGiveNoDriver) {
  EXPECT_EQ(HostDriver::Create({.capacity = 0, .granularity = 3 * 4096}), nullptr);
  EXPECT_EQ(HostDriver::Create({.capacity = 0, .granularity = 512}), nullptr);
  EXPECT_EQ(HostDriver::Create({.capacity = 0, .granularity = 0}), nullptr);
}

TEST(HostDriverTest, WithoutACapacityTheMachinesMemoryIsTheCapacity) {
  const auto driver = HostDriver::Create({});
  ASSERT_NE(driver, nullptr);
  MemoryInfo info;
  ASSERT_TRUE(driver->GetMemoryInfo(&info).ok());
  EXPECT_EQ(info.total, static_cast<Bytes>(sysconf(_SC_PHYS_PAGES)) * static_cast<Bytes>(sysconf(_SC_PAGESIZE)));
}

TEST(HostDriverTest, WithoutACapacityHalfOfWhatTheMachineHasLeftIsFree) {
  const auto driver = HostDriver::Create({});
  ASSERT_NE(driver, nullptr);
  MemoryInfo info;
  ASSERT_TRUE(driver->GetMemoryInfo(&info).ok());
  EXPECT_LT(info.free, AvailableHostBytes() / 4 * 3);  // between the two, others take and give back
  EXPECT_GT(info.free, 0u);
}

TEST(HostDriverTest, MemoryIsNotAccessibleBeforeSetAccessNorAfterUnmap) {
  const auto driver = HostDriver::Create({.capacity = 16 * kMiB});
  Address address = 0;
  PhysicalHandle handle = 0;
  ASSERT_TRUE(driver->Reserve(4 * kMiB, &address).ok());
  ASSERT_TRUE(driver->Create(2 * kMiB, &handle).ok());
  const auto touch = [&] { *reinterpret_cast<volatile char*>(address) = 1; };
  EXPECT_DEATH(touch(), "");
  ASSERT_TRUE(driver->Map(address, 2 * kMiB, handle).ok());
  EXPECT_DEATH(touch(), "");
  ASSERT_TRUE(driver->SetAccess(address, 2 * kMiB).ok());
  touch();
  ASSERT_TRUE(driver->Unmap(address, 2 * kMiB).ok());
  EXPECT_DEATH(touch(), "");
}

TEST(HostDriverTest, ReleasedMemoryGoesBackToTheSystem) {
  const auto driver = HostDriver::Create({.capacity = 64 * kMiB});
  Address address = 0;
  PhysicalHandle handle = 0;
  ASSERT_TRUE(driver->Reserve(16 * kMiB, &address).ok());
  ASSERT_TRUE(driver->Create(16 * kMiB, &handle).ok());
  ASSERT_TRUE(driver->Map(address, 16 * kMiB, handle).ok());
  ASSERT_TRUE(driver->SetAccess(address, 16 * kMiB).ok());
  EXPECT_EQ(driver->GetCounts().resident_bytes, 0u) << "pages come at first touch";
  std::memset(reinterpret_cast<void*>(address), 1, 8 * kMiB);
  EXPECT_EQ(driver->GetCounts().resident_bytes, 8 * kMiB);
  ASSERT_TRUE(driver->Release(handle).ok());
  EXPECT_EQ(driver->GetCounts().resident_bytes, 8 * kMiB);
  ASSERT_TRUE(driver->Unmap(address, 16 * kMiB).ok());
  EXPECT_EQ(driver->GetCounts().resident_bytes, 0u);
  EXPECT_EQ(driver->GetCounts().handles, 0u);
  EXPECT_EQ(driver->GetCounts().maps, 0u);
}

TEST(HostDriverTest, FreshMemoryIsZeroAlsoInAReusedPlaceOfTheFile) {
  const auto driver = HostDriver::Create({.capacity = 4 * kMiB});
  Address address = 0;
  ASSERT_TRUE(driver->Reserve(2 * kMiB, &address).ok());
  for (int round = 0; round < 3; ++round) {
    PhysicalHandle handle = 0;
    ASSERT_TRUE(driver->Create(2 * kMiB, &handle).ok());
    ASSERT_TRUE(driver->Map(address, 2 * kMiB, handle).ok());
    ASSERT_TRUE(driver->SetAccess(address, 2 * kMiB).ok());
    auto* const bytes = reinterpret_cast<char*>(address);
    for (Bytes i = 0; i < 2 * kMiB; i += 4096) {
      ASSERT_EQ(bytes[i], 0);
    }
    std::memset(bytes, 0x5A, 2 * kMiB);
    ASSERT_TRUE(driver->Release(handle).ok());
    ASSERT_TRUE(driver->Unmap(address, 2 * kMiB).ok());
  }
}

TEST(HostDriverTest, TheCapacityIsSharedAndExact) {
  const auto driver = HostDriver::Create({.capacity = 10 * kMiB});
  PhysicalHandle a = 0;
  PhysicalHandle b = 0;
  PhysicalHandle c = 0;
  ASSERT_TRUE(driver->Create(4 * kMiB, &a).ok());
  ASSERT_TRUE(driver->Create(6 * kMiB, &b).ok());
  EXPECT_EQ(driver->Create(2 * kMiB, &c).code, DriverCode::kOutOfMemory);
  ASSERT_TRUE(driver->Release(a).ok());
  EXPECT_TRUE(driver->Create(4 * kMiB, &c).ok());
}

TEST(HostDriverTest, AHandleIsReleasedOnce) {
  const auto driver = HostDriver::Create({.capacity = 10 * kMiB});
  PhysicalHandle handle = 0;
  ASSERT_TRUE(driver->Create(2 * kMiB, &handle).ok());
  EXPECT_TRUE(driver->Release(handle).ok());
  EXPECT_EQ(driver->Release(handle).code, DriverCode::kInvalid);
  EXPECT_EQ(driver->Release(12345).code, DriverCode::kInvalid);
}

TEST(HostDriverTest, OnlyALiveHandleIsExported) {
  const auto driver = HostDriver::Create({.capacity = 10 * kMiB});
  PhysicalHandle handle = 0;
  int descriptor = -1;
  ASSERT_TRUE(driver->Create(2 * kMiB, &handle).ok());
  ASSERT_TRUE(driver->Release(handle).ok());
  EXPECT_EQ(driver->Export(handle, &descriptor).code, DriverCode::kInvalid);
  EXPECT_EQ(driver->Export(12345, &descriptor).code, DriverCode::kInvalid);
  EXPECT_EQ(descriptor, -1);
}

TEST(HostDriverTest, ThreadsMapAndUnmapTheirOwnMemoryAtOnce) {
  const auto driver = HostDriver::Create({.capacity = 64 * kMiB, .granularity = 64 * 1024});
  constexpr Bytes kUnit = 64 * 1024;
  Address base = 0;
  ASSERT_TRUE(driver->Reserve(64 * kUnit, &base).ok());
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Address mine = base + t * 16 * kUnit;
      for (std::uint64_t round = 1; round <= 200; ++round) {
        PhysicalHandle handle = 0;
        const Bytes bytes = (1 + round % 16) * kUnit;
        ASSERT_TRUE(driver->Create(bytes, &handle).ok());
        ASSERT_TRUE(driver->Map(mine, bytes, handle).ok());
        ASSERT_TRUE(driver->SetAccess(mine, bytes).ok());
        auto* const words = reinterpret_cast<std::uint64_t*>(mine);
        words[0] = t * 1000 + round;
        words[bytes / 8 - 1] = round;
        ASSERT_EQ(words[0], t * 1000 + round);
        ASSERT_TRUE(driver->Release(handle).ok());
        ASSERT_TRUE(driver->Unmap(mine, bytes).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(driver->GetCounts().handles, 0u);
  EXPECT_EQ(driver->GetCounts().resident_bytes, 0u);
}

}  // namespace
}  // namespace stalloc
