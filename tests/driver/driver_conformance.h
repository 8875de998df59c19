// The contract of VmmDriver as a test suite. Each driver's test program instantiates it:
//
//   INSTANTIATE_TEST_SUITE_P(Host, DriverConformance, testing::Values(&MakeHostDriver));
//
// A factory whose driver is absent makes every test skip, with the reason printed.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "allocator/driver/stream_fence.h"
#include "tests/driver/driver_under_test.h"

namespace stalloc {

using DriverFactory = DriverUnderTest (*)();

class DriverConformance : public testing::TestWithParam<DriverFactory> {
 protected:
  void SetUp() override {
    under_test_ = GetParam()();
    if (under_test_.driver == nullptr) {
      GTEST_SKIP() << under_test_.absent_because;
    }
    unit_ = driver().Granularity();
  }

  void TearDown() override {
    if (under_test_.driver == nullptr) return;
    for (const auto& [address, bytes] : mapped_) {
      EXPECT_TRUE(driver().Unmap(address, bytes).ok());
    }
    for (const PhysicalHandle handle : handles_) {
      EXPECT_TRUE(driver().Release(handle).ok());
    }
    for (const auto& [address, bytes] : reserved_) {
      EXPECT_TRUE(driver().ReleaseReservation(address, bytes).ok());
    }
  }

  VmmDriver& driver() { return *under_test_.driver; }

  // What these make is taken back at the end, unless the test does it and says so (Forget...).
  Address Reserve(Bytes units) {
    Address address = 0;
    EXPECT_TRUE(driver().Reserve(units * unit_, &address).ok());
    reserved_.emplace_back(address, units * unit_);
    return address;
  }
  PhysicalHandle Create(Bytes units) {
    PhysicalHandle handle = 0;
    EXPECT_TRUE(driver().Create(units * unit_, &handle).ok());
    handles_.push_back(handle);
    return handle;
  }
  void Map(Address address, Bytes units, PhysicalHandle handle) {
    EXPECT_TRUE(driver().Map(address, units * unit_, handle).ok());
    mapped_.emplace_back(address, units * unit_);
  }
  void MapUsable(Address address, Bytes units, PhysicalHandle handle) {
    Map(address, units, handle);
    EXPECT_TRUE(driver().SetAccess(address, units * unit_).ok());
  }
  void Unmap(Address address, Bytes units) {
    EXPECT_TRUE(driver().Unmap(address, units * unit_).ok());
    std::erase_if(mapped_,
                  [&](const auto& range) { return range.first >= address && range.first < address + units * unit_; });
  }
  void Release(PhysicalHandle handle) {
    EXPECT_TRUE(driver().Release(handle).ok());
    std::erase(handles_, handle);
  }
  void ReleaseReservation(Address address, Bytes units) {
    EXPECT_TRUE(driver().ReleaseReservation(address, units * unit_).ok());
    std::erase(reserved_, std::pair<Address, Bytes>(address, units * unit_));
  }
  MemoryInfo Memory() {
    MemoryInfo info;
    EXPECT_TRUE(driver().GetMemoryInfo(&info).ok());
    return info;
  }

  DriverUnderTest under_test_;
  Bytes unit_ = 0;

 private:
  std::vector<std::pair<Address, Bytes>> reserved_;
  std::vector<std::pair<Address, Bytes>> mapped_;
  std::vector<PhysicalHandle> handles_;
};

TEST_P(DriverConformance, GranularityIsAPowerOfTwoAndCoversTheBlockAlignment) {
  EXPECT_GE(unit_, kBlockAlignment);
  EXPECT_EQ(unit_ & (unit_ - 1), 0u);
  EXPECT_STRNE(driver().Name(), "");
}

TEST_P(DriverConformance, ReservationsAreAlignedAndDisjoint) {
  const Address first = Reserve(5);
  const Address second = Reserve(3);
  EXPECT_EQ(first % unit_, 0u);
  EXPECT_EQ(second % unit_, 0u);
  EXPECT_TRUE(first + 5 * unit_ <= second || second + 3 * unit_ <= first);
}

TEST_P(DriverConformance, AReservationMayBeFarLargerThanTheMemory) {
  const Bytes units = Memory().total / unit_ * 8;
  const Address address = Reserve(units);
  MapUsable(address + (units - 1) * unit_, 1, Create(1));
  under_test_.WriteWord(address + units * unit_ - 8, 42);
  EXPECT_EQ(under_test_.ReadWord(address + units * unit_ - 8), 42u);
}

TEST_P(DriverConformance, UsableMemoryHoldsItsBytes) {
  const Address address = Reserve(2);
  MapUsable(address, 2, Create(2));
  std::vector<std::uint64_t> words(2 * unit_ / 8);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = i * 0x9E3779B97F4A7C15u;
  under_test_.write(address, words.data(), 2 * unit_);
  std::vector<std::uint64_t> back(words.size());
  under_test_.read(back.data(), address, 2 * unit_);
  EXPECT_EQ(words, back);
}

TEST_P(DriverConformance, AHandleAtTwoAddressesIsOneMemory) {
  const Address address = Reserve(4);
  const PhysicalHandle handle = Create(1);
  MapUsable(address, 1, handle);
  MapUsable(address + 3 * unit_, 1, handle);
  under_test_.WriteWord(address + 512, 7);
  EXPECT_EQ(under_test_.ReadWord(address + 3 * unit_ + 512), 7u);
  under_test_.WriteWord(address + 3 * unit_, 8);
  EXPECT_EQ(under_test_.ReadWord(address), 8u);
}

TEST_P(DriverConformance, AFillSetsItsBytesAlone) {
  const Address address = Reserve(1);
  MapUsable(address, 1, Create(1));
  std::vector<unsigned char> bytes(unit_, 7);
  under_test_.write(address, bytes.data(), unit_);
  ASSERT_TRUE(driver().Fill(address + 512, 1024, 0xff, kLegacyDefaultStream).ok());
  ASSERT_TRUE(driver().Synchronize().ok());
  std::fill_n(bytes.begin() + 512, 1024, static_cast<unsigned char>(0xff));
  std::vector<unsigned char> back(unit_);
  under_test_.read(back.data(), address, unit_);
  EXPECT_EQ(bytes, back);
}

TEST_P(DriverConformance, BytesFollowTheHandleToAnotherAddress) {
  const Address address = Reserve(2);
  const PhysicalHandle handle = Create(1);
  MapUsable(address, 1, handle);
  under_test_.WriteWord(address + 1024, 99);
  Unmap(address, 1);
  MapUsable(address + unit_, 1, handle);
  EXPECT_EQ(under_test_.ReadWord(address + unit_ + 1024), 99u);
}

TEST_P(DriverConformance, OneSetAccessAndOneUnmapCoverSeveralMaps) {
  const Address address = Reserve(4);
  Map(address, 1, Create(1));
  Map(address + unit_, 2, Create(2));
  Map(address + 3 * unit_, 1, Create(1));
  ASSERT_TRUE(driver().SetAccess(address, 4 * unit_).ok());
  for (Bytes i = 0; i < 4; ++i) under_test_.WriteWord(address + i * unit_, i + 1);
  for (Bytes i = 0; i < 4; ++i) {
    EXPECT_EQ(under_test_.ReadWord(address + i * unit_), i + 1);
  }
  Unmap(address, 4);
}

TEST_P(DriverConformance, AddressesAreReusableAfterUnmap) {
  const Address address = Reserve(2);
  const PhysicalHandle first = Create(1);
  const PhysicalHandle second = Create(1);
  MapUsable(address, 1, first);
  MapUsable(address + unit_, 1, second);
  under_test_.WriteWord(address, 1);
  under_test_.WriteWord(address + unit_, 2);
  Unmap(address, 2);
  MapUsable(address, 1, second);
  MapUsable(address + unit_, 1, first);
  EXPECT_EQ(under_test_.ReadWord(address), 2u);
  EXPECT_EQ(under_test_.ReadWord(address + unit_), 1u);
}

TEST_P(DriverConformance, MemoryReleasedWhileMappedLivesUntilItIsUnmapped) {
  const Bytes free_before = Memory().free;
  const Address address = Reserve(16);
  const PhysicalHandle handle = Create(16);
  MapUsable(address, 16, handle);
  under_test_.WriteWord(address, 5);
  Release(handle);
  EXPECT_EQ(under_test_.ReadWord(address), 5u);
  EXPECT_LE(Memory().free, free_before - 16 * unit_);
  Unmap(address, 16);
  EXPECT_EQ(Memory().free, free_before);
}

TEST_P(DriverConformance, AnExportedHandleIsOneMemoryWithItsMaps) {
  const Address address = Reserve(3);
  Map(address, 1, Create(1));
  const PhysicalHandle handle = Create(2);
  Map(address + unit_, 2, handle);
  ASSERT_TRUE(driver().SetAccess(address, 3 * unit_).ok());
  under_test_.WriteWord(address + 3 * unit_ - 8, 17);
  int descriptor = -1;
  const DriverStatus status = driver().Export(handle, &descriptor);
  ASSERT_TRUE(status.ok()) << status.call << " " << status.native;
  const Address elsewhere = under_test_.map_exported(descriptor, 2 * unit_);
  EXPECT_EQ(close(descriptor), 0) << "it is not needed once it is mapped";
  ASSERT_NE(elsewhere, 0u);
  EXPECT_EQ(under_test_.ReadWord(elsewhere + 2 * unit_ - 8), 17u);
  under_test_.WriteWord(elsewhere + 512, 18);
  EXPECT_EQ(under_test_.ReadWord(address + unit_ + 512), 18u);
  under_test_.unmap_exported(elsewhere, 2 * unit_);
}

TEST_P(DriverConformance, EachExportIsADescriptorOfItsOwn) {
  const PhysicalHandle handle = Create(1);
  int first = -1;
  int second = -1;
  ASSERT_TRUE(driver().Export(handle, &first).ok());
  ASSERT_TRUE(driver().Export(handle, &second).ok());
  EXPECT_NE(first, second);
  EXPECT_EQ(close(first), 0);
  EXPECT_EQ(close(second), 0);
}

TEST_P(DriverConformance, CreateTakesMemoryAndReleaseGivesItBack) {
  const MemoryInfo before = Memory();
  const PhysicalHandle handle = Create(32);
  EXPECT_EQ(Memory().total, before.total);
  EXPECT_EQ(Memory().free, before.free - 32 * unit_);
  Release(handle);
  EXPECT_EQ(Memory().free, before.free);
}

TEST_P(DriverConformance, CreateBeyondTheMemoryIsOutOfMemoryAndTakesNothing) {
  const MemoryInfo before = Memory();
  PhysicalHandle handle = 0;
  const DriverStatus status = driver().Create(RoundUp(before.total, unit_) + unit_, &handle);
  EXPECT_EQ(status.code, DriverCode::kOutOfMemory) << status.call << " " << status.native;
  EXPECT_EQ(Memory().free, before.free);
  Create(1);
}

TEST_P(DriverConformance, AHandleMayConsistOfScatteredMemory) {
  // All but 256 units in one piece, the rest in single units, of which every second one is given back: no two free
  // units touch, and yet one handle has them all. This is what makes a page heap over large handles free of
  // fragmentation.
  const Bytes units = Memory().free / unit_;
  const Bytes single = std::min<Bytes>(units / 2, 256);
  const PhysicalHandle bulk = Create(units - single);
  std::vector<PhysicalHandle> singles;
  PhysicalHandle handle = 0;
  while (driver().Create(unit_, &handle).ok()) singles.push_back(handle);
  EXPECT_GE(singles.size(), single * 9 / 10);  // a driver may need a little for its own tables
  std::size_t given_back = 0;
  for (std::size_t i = 0; i < singles.size(); i += 2) {
    EXPECT_TRUE(driver().Release(singles[i]).ok());
    ++given_back;
  }
  PhysicalHandle scattered = 0;
  const DriverStatus status = driver().Create(given_back * unit_, &scattered);
  EXPECT_TRUE(status.ok()) << status.call << " " << status.native;
  if (status.ok()) {
    const Address address = Reserve(given_back);
    MapUsable(address, given_back, scattered);
    under_test_.WriteWord(address + given_back * unit_ - 8, 3);
    EXPECT_EQ(under_test_.ReadWord(address + given_back * unit_ - 8), 3u);
    Unmap(address, given_back);
    EXPECT_TRUE(driver().Release(scattered).ok());
  }
  for (std::size_t i = 1; i < singles.size(); i += 2) {
    EXPECT_TRUE(driver().Release(singles[i]).ok());
  }
  Release(bulk);
}

TEST_P(DriverConformance, SizesOffTheGranularityAreRefused) {
  Address address = 0;
  PhysicalHandle handle = 0;
  EXPECT_EQ(driver().Create(unit_ / 2, &handle).code, DriverCode::kInvalid);
  EXPECT_EQ(driver().Create(0, &handle).code, DriverCode::kInvalid);
  EXPECT_EQ(driver().Reserve(0, &address).code, DriverCode::kInvalid);
  const Address reserved = Reserve(2);
  const PhysicalHandle page = Create(1);
  EXPECT_FALSE(driver().Map(reserved + unit_ / 2, unit_, page).ok());
  Map(reserved, 1, page);
}

TEST_P(DriverConformance, MapRefusesWhatIsNotReservedOrAlreadyMapped) {
  const Address address = Reserve(2);
  const PhysicalHandle handle = Create(1);
  const PhysicalHandle other = Create(1);
  const Address gone = Reserve(2);
  ReleaseReservation(gone, 2);
  EXPECT_FALSE(driver().Map(gone, unit_, handle).ok());
  MapUsable(address, 1, handle);
  under_test_.WriteWord(address, 11);
  EXPECT_FALSE(driver().Map(address, unit_, other).ok());
  EXPECT_EQ(under_test_.ReadWord(address), 11u) << "the refused call changed the map that was there";
}

TEST_P(DriverConformance, MapRefusesAPartOfAHandle) {
  const Address address = Reserve(4);
  const PhysicalHandle handle = Create(2);
  EXPECT_FALSE(driver().Map(address, 3 * unit_, handle).ok());
  MapUsable(address, 2, handle);
}

TEST_P(DriverConformance, UnmapRefusesAPartOfAMap) {
  const Address address = Reserve(2);
  MapUsable(address, 2, Create(2));
  under_test_.WriteWord(address + unit_, 21);
  EXPECT_FALSE(driver().Unmap(address, unit_).ok());
  EXPECT_FALSE(driver().Unmap(address + unit_, unit_).ok());
  EXPECT_EQ(under_test_.ReadWord(address + unit_), 21u);
}

TEST_P(DriverConformance, SetAccessRefusesWhatIsNotMapped) {
  const Address address = Reserve(3);
  EXPECT_FALSE(driver().SetAccess(address, unit_).ok());
  Map(address, 1, Create(1));
  EXPECT_FALSE(driver().SetAccess(address, 2 * unit_).ok());
  EXPECT_TRUE(driver().SetAccess(address, unit_).ok());
}

TEST_P(DriverConformance, AReservationWithAMapInItIsNotReleased) {
  const Address address = Reserve(2);
  MapUsable(address + unit_, 1, Create(1));
  under_test_.WriteWord(address + unit_, 31);
  EXPECT_FALSE(driver().ReleaseReservation(address, 2 * unit_).ok());
  EXPECT_EQ(under_test_.ReadWord(address + unit_), 31u);
}

TEST_P(DriverConformance, SynchronizeSucceedsWhenNothingRuns) { EXPECT_TRUE(driver().Synchronize().ok()); }

}  // namespace stalloc
