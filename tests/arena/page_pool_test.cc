#include "allocator/arena/page_pool.h"

#include <gtest/gtest.h>

#include <random>

#include "allocator/driver/host_driver.h"
#include "tests/driver/faulty_driver.h"

namespace stalloc {
namespace {

constexpr Bytes kPage = 64 * 1024;

class PagePoolTest : public testing::Test {
 protected:
  std::vector<Extent> Take(PagePool& pool, std::uint64_t pages, Growth growth = Growth::kToTheLimit) {
    std::vector<Extent> extents;
    EXPECT_TRUE(pool.Take(pages, growth, &extents).ok());
    EXPECT_EQ(Pages(extents), pages);
    return extents;
  }
  static std::uint64_t Pages(const std::vector<Extent>& extents) {
    std::uint64_t pages = 0;
    for (const Extent& extent : extents) {
      pages += extent.pages;
    }
    return pages;
  }
  static void GiveBack(PagePool& pool, const std::vector<Extent>& extents) {
    for (const Extent& extent : extents) {
      pool.GiveBack(extent);
    }
  }

  std::unique_ptr<HostDriver> host_ = HostDriver::Create({.capacity = 100 * kPage, .granularity = kPage});
  FaultyDriver driver_{*host_};
};

TEST_F(PagePoolTest, ARequestIsOneHandleWhenNothingIsFree) {
  PagePool pool(driver_, 0);
  const auto extents = Take(pool, 37);
  ASSERT_EQ(extents.size(), 1u);
  EXPECT_TRUE(extents[0].fresh);
  EXPECT_EQ(pool.physical_bytes(), 37 * kPage);
  GiveBack(pool, extents);
}

TEST_F(PagePoolTest, FreeExtentsAreUsedLargestFirstWithoutADriverCall) {
  PagePool pool(driver_, 0);
  const auto a = Take(pool, 8);
  const auto b = Take(pool, 4);
  const auto c = Take(pool, 1);
  GiveBack(pool, a);
  GiveBack(pool, b);
  GiveBack(pool, c);
  driver_.FailNothing();
  const auto reused = Take(pool, 13);
  EXPECT_EQ(driver_.calls(), 0u);
  EXPECT_EQ(reused.size(), 3u);
  GiveBack(pool, reused);
}

TEST_F(PagePoolTest, AFreeExtentThatIsTooLargeIsExchangedSoThatThePoolDoesNotGrow) {
  PagePool pool(driver_, 0);
  GiveBack(pool, Take(pool, 50));
  const auto small = Take(pool, 3);
  EXPECT_EQ(pool.physical_bytes(), 3 * kPage);
  EXPECT_EQ(pool.peak_physical_bytes(), 50 * kPage);
  GiveBack(pool, small);
}

TEST_F(PagePoolTest, TheLimitHoldsAndWhatIsFreeCountsAsAvailable) {
  PagePool pool(driver_, 60 * kPage);
  const auto half = Take(pool, 30);
  GiveBack(pool, Take(pool, 30));
  std::vector<Extent> none;
  EXPECT_EQ(pool.Take(31, Growth::kToTheLimit, &none).code, DriverCode::kOutOfMemory);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(pool.physical_bytes(), 60 * kPage) << "a request that cannot be met costs nothing";
  const auto rest = Take(pool, 29);
  EXPECT_EQ(pool.physical_bytes(), 59 * kPage);
  GiveBack(pool, half);
  GiveBack(pool, rest);
}

TEST_F(PagePoolTest, TheDevicesMemoryCanBeTakenToTheLastPage) {
  PagePool pool(driver_, 0);
  std::vector<std::vector<Extent>> singles;
  for (int i = 0; i < 100; ++i) {
    singles.push_back(Take(pool, 1));
  }
  for (int i = 0; i < 100; i += 2) {
    GiveBack(pool, singles[static_cast<std::size_t>(i)]);
  }
  const auto scattered = Take(pool, 50);
  EXPECT_LE(scattered.size(), 17u) << "many single pages are exchanged for one handle";
  for (int i = 1; i < 100; i += 2) {
    GiveBack(pool, singles[static_cast<std::size_t>(i)]);
  }
  GiveBack(pool, scattered);
}

TEST_F(PagePoolTest, GrowthWhilePlentyLeavesHeadroomOnTheDevice) {
  // A sixty-fourth of a device of 6400 pages: 100 pages.
  const auto large = HostDriver::Create({.capacity = 6400 * kPage, .granularity = kPage});
  PagePool pool(*large, 0);
  std::vector<Extent> extents;
  while (pool.Take(1, Growth::kWhilePlenty, &extents).ok()) {
  }
  EXPECT_EQ(Pages(extents), 6300u);
  EXPECT_EQ(pool.CreatablePages(), 0u);
  ASSERT_TRUE(pool.Take(100, Growth::kToTheLimit, &extents).ok());
  EXPECT_EQ(pool.Take(1, Growth::kToTheLimit, &extents).code, DriverCode::kOutOfMemory);
  GiveBack(pool, extents);
}

TEST_F(PagePoolTest, MemoryThatOthersTakeIsNoticed) {
  PagePool pool(driver_, 0);
  PhysicalHandle foreign = 0;
  ASSERT_TRUE(host_->Create(90 * kPage, &foreign).ok());
  std::vector<Extent> none;
  EXPECT_EQ(pool.Take(11, Growth::kToTheLimit, &none).code, DriverCode::kOutOfMemory);
  GiveBack(pool, Take(pool, 10));
}

TEST_F(PagePoolTest, UndoReleasesWhatWasCreatedAndKeepsWhatWasFree) {
  PagePool pool(driver_, 0);
  GiveBack(pool, Take(pool, 5));
  const auto extents = Take(pool, 8);
  pool.Undo(extents);
  EXPECT_EQ(pool.physical_bytes(), 5 * kPage);
  EXPECT_EQ(pool.free_pages(), 5u);
}

TEST_F(PagePoolTest, ReleaseFreeKeepsWhatItIsTold) {
  PagePool pool(driver_, 0);
  const auto a = Take(pool, 10);
  const auto b = Take(pool, 20);
  GiveBack(pool, a);
  GiveBack(pool, b);
  EXPECT_EQ(pool.ReleaseFree(25 * kPage), 10 * kPage) << "the smallest extent that is enough";
  EXPECT_EQ(pool.ReleaseFree(0), 20 * kPage);
  EXPECT_EQ(pool.physical_bytes(), 0u);
}

TEST_F(PagePoolTest, EveryFailedCallLeavesWhatWasHeld) {
  for (std::uint64_t n = 0; n < 12; ++n) {
    {
      PagePool pool(driver_, 0);
      const auto a = Take(pool, 10);
      const auto b = Take(pool, 20);
      GiveBack(pool, Take(pool, 40));
      GiveBack(pool, Take(pool, 3));
      driver_.FailCall(n);
      std::vector<Extent> extents;
      const bool ok = pool.Take(25, Growth::kToTheLimit, &extents).ok();
      driver_.FailNothing();
      EXPECT_EQ(ok, Pages(extents) == 25);
      EXPECT_EQ(driver_.counts().handle_bytes, pool.physical_bytes()) << "call " << n;
      GiveBack(pool, extents);
      GiveBack(pool, Take(pool, 30));
      GiveBack(pool, a);
      GiveBack(pool, b);
    }
    EXPECT_EQ(driver_.counts(), FaultyDriver::Counts{}) << "call " << n;
  }
}

TEST_F(PagePoolTest, RandomUseNeverFailsWhileThePagesSuffice) {
  const std::uint64_t seed = 4242;
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  PagePool pool(driver_, 0);
  std::vector<std::vector<Extent>> live;
  std::uint64_t used = 0;
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0) {
      const std::uint64_t pages = 1 + random() % 40;
      std::vector<Extent> extents;
      const bool ok = pool.Take(pages, Growth::kToTheLimit, &extents).ok();
      ASSERT_EQ(ok, used + pages <= 100) << "seed " << seed << " step " << step;
      if (ok) {
        used += pages;
        live.push_back(std::move(extents));
      }
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      used -= Pages(live.back());
      GiveBack(pool, live.back());
      live.pop_back();
    }
    ASSERT_EQ(driver_.counts().handle_bytes, pool.physical_bytes());
    ASSERT_LE(pool.physical_bytes(), 100 * kPage);
  }
  for (const auto& extents : live) {
    GiveBack(pool, extents);
  }
}

}  // namespace
}  // namespace stalloc
