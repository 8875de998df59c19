// Addresses are small numbers here: multiples of 512.
#include "allocator/graphs/pool_catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace stalloc {

void PrintTo(const ByteRange& range, std::ostream* out) { *out << "[" << range.begin << ", " << range.end << ")"; }

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Carried = GraphUse::Carried;

// Calls in order: "begin G", "end G", "fail G" (the capture has no graph), "+ADDRESS/BYTES" as captured,
// "*ADDRESS/BYTES" as not captured, "-ADDRESS".
void Play(PoolCatalog& catalog, const std::string& calls) {
  std::istringstream words(calls);
  GraphId graph = 0;
  for (std::string word; words >> word;) {
    if (word == "begin") {
      words >> graph;
      catalog.CaptureBegins(graph);
    } else if (word == "end" || word == "fail") {
      words >> graph;
      catalog.CaptureEnds(graph, word == "end");
    } else if (word[0] == '-') {
      catalog.Freed(std::stoull(word.substr(1), nullptr, 0));
    } else {
      const std::uint64_t address = std::stoull(word.substr(1), nullptr, 0);
      catalog.Allocated(address, std::stoull(word.substr(word.find('/') + 1), nullptr, 0), word[0] == '+');
    }
  }
}

TEST(PoolCatalogTest, WhatACaptureAsksForAndFreesIsDead) {
  PoolCatalog catalog;
  Play(catalog, "begin 1 +512/1000 +4096/512 -512 end 1");
  EXPECT_THAT(catalog.UseOf(1).dead, ElementsAre(ByteRange{512, 1536})) << "rounded; the other one is live";
  EXPECT_THAT(catalog.Lendable(), ElementsAre(ByteRange{512, 1536}));
  EXPECT_THAT(catalog.Requests(), ElementsAre(PoolBlock{512, 1024}, PoolBlock{4096, 512}));
  EXPECT_EQ(catalog.request_count(), 2u);
}

TEST(PoolCatalogTest, WhatAGraphInBetweenMayReadIsKeptWithoutItsTaker) {
  PoolCatalog catalog;
  // The second graph reads what the first one has made.
  Play(catalog, "begin 1 +512/512 end 1 begin 2 end 2 begin 3 -512 end 3");
  EXPECT_THAT(catalog.Lendable(), ElementsAre(ByteRange{512, 1024}));
  catalog.Destroyed(3);
  EXPECT_THAT(catalog.Lendable(), IsEmpty()) << "the second graph may be launched after the first one";
  catalog.Destroyed(2);
  EXPECT_THAT(catalog.UseOf(1).dead, ElementsAre(ByteRange{512, 1024}));
}

// Cudagraph trees warm up in the pool.
TEST(PoolCatalogTest, WhatNoCaptureSawIsGone) {
  PoolCatalog catalog;
  // 1024 is freed in a capture, 2048 made amid one; one came between the request and the free of 1536.
  Play(catalog, "*512/512 *1024/512 *1536/512 -512 begin 1 -1024 *2048/512 +512/2048 -512 end 1 -1536 -2048");
  EXPECT_THAT(catalog.Lendable(), ElementsAre(ByteRange{512, 1024}));
  EXPECT_EQ(catalog.request_count(), 5u) << "the pool's layout has them all";
}

TEST(PoolCatalogTest, WhatIsCarriedIsKeptWhereItsStateMayBeSetBack) {
  PoolCatalog catalog;
  Play(catalog, "begin 1 +512/512 +1024/512 -1024 end 1 begin 2 -512 end 2");
  EXPECT_THAT(catalog.Lendable(), ElementsAre(ByteRange{512, 1536}));
  catalog.SetRestorable();
  EXPECT_TRUE(catalog.restorable());
  EXPECT_THAT(catalog.Lendable(), ElementsAre(ByteRange{1024, 1536}));
  EXPECT_THAT(catalog.UseOf(2).takes, IsEmpty());
}

TEST(PoolCatalogTest, DeadBytesAreMergedWhereTheyTouch) {
  PoolCatalog catalog;
  Play(catalog, "begin 1");
  for (const std::uint64_t address : {1024, 512, 4096}) catalog.Allocated(address, 512);
  for (const std::uint64_t address : {4096, 512, 1024}) catalog.Freed(address);
  // The address again, for less.
  Play(catalog, "+512/256 -512 end 1");
  EXPECT_THAT(catalog.UseOf(1).dead, ElementsAre(ByteRange{512, 1536}, ByteRange{4096, 4608}));
}

TEST(PoolCatalogTest, WhatALaterCaptureFreesIsCarriedToIt) {
  PoolCatalog catalog;
  Play(catalog, "begin 1 +512/512 end 1");
  EXPECT_THAT(catalog.Lendable(), IsEmpty()) << "it lives";
  Play(catalog, "begin 2 -512 end 2");
  const Carried carried{{512, 1024}, 1, 2};
  EXPECT_THAT(catalog.UseOf(1).gives, ElementsAre(carried));
  EXPECT_THAT(catalog.UseOf(1).takes, IsEmpty());
  EXPECT_THAT(catalog.UseOf(2).takes, ElementsAre(carried));
  EXPECT_THAT(catalog.UseOf(2).dead, IsEmpty());
  EXPECT_THAT(catalog.Lendable(), ElementsAre(ByteRange{512, 1024}));
}

TEST(PoolCatalogTest, ALaunchLeavesIdleWhatItGivesToNobody) {
  PoolCatalog catalog;
  // The first block is dead, but its second half lies where a block is carried.
  Play(catalog, "begin 1 +512/1024 -512 +1024/1024 end 1 begin 2 +512/512 -512 -1024 end 2");
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
  // 512 is requested by no capture, 2048 by another stream while one is open; 1024 is freed between captures.
  Play(catalog, "+512/512 begin 1 -512 +1024/512 *2048/512 -2048 end 1 -1024");
  EXPECT_THAT(catalog.Lendable(), IsEmpty());
  EXPECT_EQ(catalog.UseOf(1), GraphUse{});
}

TEST(PoolCatalogTest, AnAddressHasABlockAfterAnother) {
  PoolCatalog catalog;
  Play(catalog, "begin 1 +512/512 -512 +512/1024 end 1 begin 2 -512 +512/512 -512 end 2");
  EXPECT_THAT(catalog.UseOf(1).dead, ElementsAre(ByteRange{512, 1024}));
  EXPECT_THAT(catalog.UseOf(1).gives, ElementsAre(Carried{{512, 1536}, 1, 2}));
  EXPECT_THAT(catalog.UseOf(2).dead, ElementsAre(ByteRange{512, 1024}));
  EXPECT_EQ(catalog.request_count(), 3u);
}

TEST(PoolCatalogTest, KeptBytesWinOverThoseOfOtherBlocks) {
  PoolCatalog catalog;
  // The last two blocks stay.
  Play(catalog,
       "begin 1 +0x1000/0x1000 -0x1000 +0x4000/0x1000 end 1 begin 2 -0x4000 +0x1400/0x200 +0x4e00/0x400 end 2");
  EXPECT_THAT(catalog.UseOf(1).dead, ElementsAre(ByteRange{0x1000, 0x1400}, ByteRange{0x1600, 0x2000}));
  EXPECT_THAT(catalog.UseOf(2).takes, ElementsAre(Carried{{0x4000, 0x4e00}, 1, 2}));
  EXPECT_THAT(catalog.Lendable(),
              ElementsAre(ByteRange{0x1000, 0x1400}, ByteRange{0x1600, 0x2000}, ByteRange{0x4000, 0x4e00}));
}

// A free that was not seen.
TEST(PoolCatalogTest, ABlockWhoseAddressIsGivenOutAgainIsKept) {
  PoolCatalog catalog;
  Play(catalog, "begin 1 +512/1024 +512/512 -512 end 1");
  EXPECT_THAT(catalog.Lendable(), IsEmpty());
}

TEST(PoolCatalogTest, AddressesThatAreNotLiveAreIgnored) {
  PoolCatalog catalog;
  // At its last free, the address is another pool's.
  Play(catalog, "-512 begin 1 +512/512 -512 end 1 -512");
  EXPECT_THAT(catalog.UseOf(1).dead, ElementsAre(ByteRange{512, 1024}));
}

TEST(PoolCatalogTest, NothingIsCarriedWithoutAGraph) {
  PoolCatalog catalog;
  Play(catalog, "begin 1 +512/512 +2048/512 -2048 fail 1 begin 2 -512 +4096/512 end 2 begin 3 -4096 fail 3");
  EXPECT_THAT(catalog.Lendable(), ElementsAre(ByteRange{2048, 2560})) << "what the one that failed had for itself";
}

TEST(PoolCatalogTest, WhatWasCarriedToAGraphThatIsGoneIsDead) {
  PoolCatalog catalog;
  Play(catalog, "begin 1 +512/512 end 1 begin 2 -512 end 2");
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
  Play(catalog, "begin 1 +512/512 -512");
  EXPECT_TRUE(catalog.followable());
  Play(catalog, "begin 2");
  EXPECT_FALSE(catalog.followable());
  Play(catalog, "end 1 end 2");
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
