// Addresses are small numbers here: multiples of 512.
#include "allocator/graphs/pool_catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace stalloc {

void PrintTo(const ByteRange& range, std::ostream* out) { *out << "[" << range.begin << ", " << range.end << ")"; }

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Carried = GraphUse::Carried;

TEST(PoolCatalogTest, WhatACaptureAsksForAndFreesIsDead) {
  PoolCatalog catalog;
  catalog.CaptureBegins(1);
  catalog.Allocated(512, 1000);
  catalog.Allocated(4096, 512);
  catalog.Freed(512);
  catalog.CaptureEnds(1);
  EXPECT_THAT(catalog.UseOf(1).dead, ElementsAre(ByteRange{512, 1536})) << "rounded; the other one is live";
  EXPECT_THAT(catalog.Lendable(), ElementsAre(ByteRange{512, 1536}));
  EXPECT_THAT(catalog.Requests(), ElementsAre(PoolBlock{512, 1024}, PoolBlock{4096, 512}));
  EXPECT_EQ(catalog.request_count(), 2u);
}

TEST(PoolCatalogTest, WhatAGraphInBetweenMayReadIsKeptWithoutItsTaker) {
  PoolCatalog catalog;
  catalog.CaptureBegins(1);
  catalog.Allocated(512, 512);
  catalog.CaptureEnds(1);
  catalog.CaptureBegins(2);  // reads it
  catalog.CaptureEnds(2);
  catalog.CaptureBegins(3);
  catalog.Freed(512);
  catalog.CaptureEnds(3);
  EXPECT_THAT(catalog.Lendable(), ElementsAre(ByteRange{512, 1024}));
  catalog.Destroyed(3);
  EXPECT_THAT(catalog.Lendable(), IsEmpty()) << "the second graph may be launched after the first one";
  catalog.Destroyed(2);
  EXPECT_THAT(catalog.UseOf(1).dead, ElementsAre(ByteRange{512, 1024}));
}

// Cudagraph trees warm up in the pool.
TEST(PoolCatalogTest, WhatNoCaptureSawIsGone) {
  PoolCatalog catalog;
  catalog.Allocated(512, 512, /*captured=*/false);
  catalog.Allocated(1024, 512, /*captured=*/false);
  catalog.Allocated(1536, 512, /*captured=*/false);
  catalog.Freed(512);
  catalog.CaptureBegins(1);
  catalog.Freed(1024);                               // in a capture
  catalog.Allocated(2048, 512, /*captured=*/false);  // amid one
  catalog.Allocated(512, 2048);
  catalog.Freed(512);
  catalog.CaptureEnds(1);
  catalog.Freed(1536);  // one came in between
  catalog.Freed(2048);
  EXPECT_THAT(catalog.Lendable(), ElementsAre(ByteRange{512, 1024}));
  EXPECT_EQ(catalog.request_count(), 5u) << "the pool's layout has them all";
}

TEST(PoolCatalogTest, WhatIsCarriedIsKeptWhereItsStateMayBeSetBack) {
  PoolCatalog catalog;
  catalog.CaptureBegins(1);
  catalog.Allocated(512, 512);
  catalog.Allocated(1024, 512);
  catalog.Freed(1024);
  catalog.CaptureEnds(1);
  catalog.CaptureBegins(2);
  catalog.Freed(512);
  catalog.CaptureEnds(2);
  EXPECT_THAT(catalog.Lendable(), ElementsAre(ByteRange{512, 1536}));
  catalog.SetRestorable();
  EXPECT_TRUE(catalog.restorable());
  EXPECT_THAT(catalog.Lendable(), ElementsAre(ByteRange{1024, 1536}));
  EXPECT_THAT(catalog.UseOf(2).takes, IsEmpty());
}

TEST(PoolCatalogTest, DeadBytesAreMergedWhereTheyTouch) {
  PoolCatalog catalog;
  catalog.CaptureBegins(1);
  for (const std::uint64_t address : {1024, 512, 4096}) catalog.Allocated(address, 512);
  for (const std::uint64_t address : {4096, 512, 1024}) catalog.Freed(address);
  catalog.Allocated(512, 256);  // the address again, for less
  catalog.Freed(512);
  catalog.CaptureEnds(1);
  EXPECT_THAT(catalog.UseOf(1).dead, ElementsAre(ByteRange{512, 1536}, ByteRange{4096, 4608}));
}

TEST(PoolCatalogTest, WhatALaterCaptureFreesIsCarriedToIt) {
  PoolCatalog catalog;
  catalog.CaptureBegins(1);
  catalog.Allocated(512, 512);
  catalog.CaptureEnds(1);
  EXPECT_THAT(catalog.Lendable(), IsEmpty()) << "it lives";
  catalog.CaptureBegins(2);
  catalog.Freed(512);
  catalog.CaptureEnds(2);
  const Carried carried{{512, 1024}, 1, 2};
  EXPECT_THAT(catalog.UseOf(1).gives, ElementsAre(carried));
  EXPECT_THAT(catalog.UseOf(1).takes, IsEmpty());
  EXPECT_THAT(catalog.UseOf(2).takes, ElementsAre(carried));
  EXPECT_THAT(catalog.UseOf(2).dead, IsEmpty());
  EXPECT_THAT(catalog.Lendable(), ElementsAre(ByteRange{512, 1024}));
}

TEST(PoolCatalogTest, ALaunchLeavesIdleWhatItGivesToNobody) {
  PoolCatalog catalog;
  catalog.CaptureBegins(1);
  catalog.Allocated(512, 1024);  // dead, but its second half lies where a block is carried
  catalog.Freed(512);
  catalog.Allocated(1024, 1024);
  catalog.CaptureEnds(1);
  catalog.CaptureBegins(2);
  catalog.Allocated(512, 512);
  catalog.Freed(512);
  catalog.Freed(1024);
  catalog.CaptureEnds(2);
  EXPECT_THAT(catalog.IdleAfter(1), ElementsAre(ByteRange{512, 1024}));
  EXPECT_THAT(catalog.IdleAfter(2), ElementsAre(ByteRange{512, 2048})) << "with what it took";
  EXPECT_THAT(catalog.IdleAfter(3), IsEmpty());
  EXPECT_THAT(catalog.NeverGiven(), ElementsAre(ByteRange{512, 1024}));
  catalog.SetUnfollowable("a reason");
  EXPECT_THAT(catalog.IdleAfter(2), IsEmpty());
  EXPECT_THAT(catalog.NeverGiven(), IsEmpty());
}

TEST(PoolCatalogTest, AllElseIsKept) {
  PoolCatalog catalog;
  catalog.Allocated(512, 512);  // by no capture
  catalog.CaptureBegins(1);
  catalog.Freed(512);
  catalog.Allocated(1024, 512);
  catalog.Allocated(2048, 512, false);  // while one is open, but by another stream
  catalog.Freed(2048);
  catalog.CaptureEnds(1);
  catalog.Freed(1024);  // between captures
  EXPECT_THAT(catalog.Lendable(), IsEmpty());
  EXPECT_EQ(catalog.UseOf(1), GraphUse{});
}

TEST(PoolCatalogTest, AnAddressHasABlockAfterAnother) {
  PoolCatalog catalog;
  catalog.CaptureBegins(1);
  catalog.Allocated(512, 512);
  catalog.Freed(512);
  catalog.Allocated(512, 1024);
  catalog.CaptureEnds(1);
  catalog.CaptureBegins(2);
  catalog.Freed(512);
  catalog.Allocated(512, 512);
  catalog.Freed(512);
  catalog.CaptureEnds(2);
  EXPECT_THAT(catalog.UseOf(1).dead, ElementsAre(ByteRange{512, 1024}));
  EXPECT_THAT(catalog.UseOf(1).gives, ElementsAre(Carried{{512, 1536}, 1, 2}));
  EXPECT_THAT(catalog.UseOf(2).dead, ElementsAre(ByteRange{512, 1024}));
  EXPECT_EQ(catalog.request_count(), 3u);
}

TEST(PoolCatalogTest, KeptBytesWinOverThoseOfOtherBlocks) {
  PoolCatalog catalog;
  catalog.CaptureBegins(1);
  catalog.Allocated(0x1000, 0x1000);
  catalog.Freed(0x1000);
  catalog.Allocated(0x4000, 0x1000);
  catalog.CaptureEnds(1);
  catalog.CaptureBegins(2);
  catalog.Freed(0x4000);
  catalog.Allocated(0x1400, 0x200);  // stays
  catalog.Allocated(0x4e00, 0x400);  // stays
  catalog.CaptureEnds(2);
  EXPECT_THAT(catalog.UseOf(1).dead, ElementsAre(ByteRange{0x1000, 0x1400}, ByteRange{0x1600, 0x2000}));
  EXPECT_THAT(catalog.UseOf(2).takes, ElementsAre(Carried{{0x4000, 0x4e00}, 1, 2}));
  EXPECT_THAT(catalog.Lendable(),
              ElementsAre(ByteRange{0x1000, 0x1400}, ByteRange{0x1600, 0x2000}, ByteRange{0x4000, 0x4e00}));
}

// A free that was not seen.
TEST(PoolCatalogTest, ABlockWhoseAddressIsGivenOutAgainIsKept) {
  PoolCatalog catalog;
  catalog.CaptureBegins(1);
  catalog.Allocated(512, 1024);
  catalog.Allocated(512, 512);
  catalog.Freed(512);
  catalog.CaptureEnds(1);
  EXPECT_THAT(catalog.Lendable(), IsEmpty());
}

TEST(PoolCatalogTest, AddressesThatAreNotLiveAreIgnored) {
  PoolCatalog catalog;
  catalog.Freed(512);
  catalog.CaptureBegins(1);
  catalog.Allocated(512, 512);
  catalog.Freed(512);
  catalog.CaptureEnds(1);
  catalog.Freed(512);  // of another pool by now
  EXPECT_THAT(catalog.UseOf(1).dead, ElementsAre(ByteRange{512, 1024}));
}

TEST(PoolCatalogTest, NothingIsCarriedWithoutAGraph) {
  PoolCatalog catalog;
  catalog.CaptureBegins(1);
  catalog.Allocated(512, 512);
  catalog.Allocated(2048, 512);
  catalog.Freed(2048);
  catalog.CaptureEnds(1, false);
  catalog.CaptureBegins(2);
  catalog.Freed(512);
  catalog.Allocated(4096, 512);
  catalog.CaptureEnds(2);
  catalog.CaptureBegins(3);
  catalog.Freed(4096);
  catalog.CaptureEnds(3, false);
  EXPECT_THAT(catalog.Lendable(), ElementsAre(ByteRange{2048, 2560})) << "what the one that failed had for itself";
}

TEST(PoolCatalogTest, WhatWasCarriedToAGraphThatIsGoneIsDead) {
  PoolCatalog catalog;
  catalog.CaptureBegins(1);
  catalog.Allocated(512, 512);
  catalog.CaptureEnds(1);
  catalog.CaptureBegins(2);
  catalog.Freed(512);
  catalog.CaptureEnds(2);
  catalog.Destroyed(1);
  EXPECT_THAT(catalog.UseOf(2).takes, ElementsAre(Carried{{512, 1024}, 1, 2})) << "it may still read it";
  catalog.Destroyed(2);
  EXPECT_THAT(catalog.UseOf(2).takes, IsEmpty());
  EXPECT_THAT(catalog.UseOf(1).dead, ElementsAre(ByteRange{512, 1024}));
  EXPECT_THAT(catalog.Lendable(), ElementsAre(ByteRange{512, 1024}));
}

TEST(PoolCatalogTest, CapturesThatOverlapAreNotFollowed) {
  PoolCatalog catalog;
  EXPECT_TRUE(catalog.followable());
  catalog.CaptureBegins(1);
  catalog.Allocated(512, 512);
  catalog.Freed(512);
  EXPECT_TRUE(catalog.followable());
  catalog.CaptureBegins(2);
  EXPECT_FALSE(catalog.followable());
  catalog.CaptureEnds(1);
  catalog.CaptureEnds(2);
  EXPECT_STREQ(catalog.why_not(), "two captures of it were open at once");
  catalog.SetUnfollowable("another reason");
  EXPECT_STREQ(catalog.why_not(), "two captures of it were open at once") << "the first one stays";
  EXPECT_THAT(catalog.Lendable(), IsEmpty());
}

TEST(PoolCatalogTest, TheVersionTellsOfChanges) {
  PoolCatalog catalog;
  std::uint64_t last = catalog.version();
  const auto changed = [&] { return std::exchange(last, catalog.version()) != last; };
  EXPECT_FALSE(changed());
  catalog.CaptureBegins(1);
  EXPECT_TRUE(changed());
  catalog.Allocated(512, 512);
  EXPECT_TRUE(changed());
  catalog.Freed(512);
  EXPECT_TRUE(changed());
  catalog.Freed(512);
  EXPECT_FALSE(changed());
  catalog.CaptureEnds(1);
  EXPECT_TRUE(changed());
  (void)catalog.UseOf(1);
  EXPECT_FALSE(changed());
  catalog.Destroyed(1);
  EXPECT_TRUE(changed());
  catalog.SetUnfollowable("a reason");
  EXPECT_TRUE(changed());
}

TEST(PoolCatalogTest, UnknownGraphsUseNothing) {
  PoolCatalog catalog;
  EXPECT_EQ(catalog.UseOf(0), GraphUse{});
  EXPECT_EQ(catalog.UseOf(7), GraphUse{});
  catalog.CaptureEnds(7);
  catalog.Destroyed(7);
  EXPECT_EQ(catalog.UseOf(7), GraphUse{});
}

// Each block of 512 bytes counted for itself, against random captures.
TEST(PoolCatalogTest, AgreesWithACountOfEachBlock) {
  constexpr std::uint64_t kUnits = 40;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t limit) { return static_cast<std::uint32_t>(random() % limit); };
    struct Live {
      std::uint64_t begin, end;
      GraphId asked;
      GraphId begun;  // captures, when it was asked for
    };
    PoolCatalog catalog;
    std::vector<Live> live;
    std::vector<bool> kept(kUnits), lent(kUnits);
    std::vector<std::vector<bool>> dead(10, std::vector<bool>(kUnits));
    GraphId open = 0;
    GraphId last = 0;
    const auto mark = [](std::vector<bool>& units, const Live& block) {
      for (std::uint64_t i = block.begin; i < block.end; ++i) units[i] = true;
    };
    for (int step = 0; step < 120; ++step) {
      const std::uint32_t what = below(10);
      if (what == 0 && open == 0 && last < 9) {
        catalog.CaptureBegins(open = ++last);
      } else if (what == 1 && open != 0) {
        catalog.CaptureEnds(std::exchange(open, 0));
      } else if (what < 6) {
        const Live block{below(kUnits - 8), 0, open, last};
        Live whole = block;
        whole.end = block.begin + 1 + below(8);
        const bool taken = std::ranges::any_of(
            live, [&](const Live& each) { return each.begin < whole.end && whole.begin < each.end; });
        if (taken) continue;
        catalog.Allocated(whole.begin * 512, (whole.end - whole.begin) * 512);
        live.push_back(whole);
      } else if (!live.empty()) {
        const std::size_t index = below(static_cast<std::uint32_t>(live.size()));
        const Live block = live[index];
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
        catalog.Freed(block.begin * 512);
        if (block.asked == 0 && open == 0 && block.begun == last) continue;  // no graph knows it
        mark(block.asked == 0 || open == 0 ? kept : lent, block);
        if (open != 0 && block.asked == open) mark(dead[open], block);
      }
    }
    for (const Live& block : live) mark(kept, block);
    const auto units = [](const std::vector<ByteRange>& ranges) {
      std::vector<bool> found(kUnits);
      for (const ByteRange& range : ranges) {
        for (std::uint64_t i = range.begin / 512; i < range.end / 512; ++i) found[i] = true;
      }
      return found;
    };
    for (std::uint64_t i = 0; i < kUnits; ++i) lent[i] = lent[i] && !kept[i];
    EXPECT_EQ(units(catalog.Lendable()), lent) << "seed " << seed;
    for (GraphId graph = 1; graph <= last; ++graph) {
      for (std::uint64_t i = 0; i < kUnits; ++i) dead[graph][i] = dead[graph][i] && !kept[i];
      EXPECT_EQ(units(catalog.UseOf(graph).dead), dead[graph]) << "seed " << seed << " graph " << graph;
    }
  }
}

TEST(PoolCatalogTest, ThreadsAskAndFreeWhileOthersLook) {
  PoolCatalog catalog;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 1; thread <= 3; ++thread) {
    threads.emplace_back([&catalog, thread] {
      for (std::uint64_t i = 0; i < 500; ++i) {
        catalog.Allocated(thread << 20, 512);
        catalog.Freed(thread << 20);
      }
    });
  }
  threads.emplace_back([&] {
    while (!stop) {
      EXPECT_LE(catalog.Lendable().size(), 3u);
      (void)catalog.UseOf(1);
    }
  });
  for (GraphId graph = 1; graph <= 20; ++graph) {
    catalog.CaptureBegins(graph);
    std::this_thread::yield();
    catalog.CaptureEnds(graph);
  }
  for (std::size_t i = 0; i < 3; ++i) threads[i].join();
  stop = true;
  threads.back().join();
  EXPECT_TRUE(catalog.followable());
  EXPECT_EQ(catalog.request_count(), 1500u);
}

}  // namespace
}  // namespace stalloc
