// DynamicSpace's search in the gaps of a window, against a look at every room.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "allocator/engine/place/dynamic_space.h"

namespace stalloc {
namespace room_search_test {

using Gap = IdleGaps::Gap;
constexpr std::uint32_t kLimit = 512;
constexpr std::uint32_t kMapped = 480;

class RoomSearchTest : public testing::Test {
 protected:
  std::uint32_t Number(std::uint32_t least, std::uint32_t most) {
    return std::uniform_int_distribution<std::uint32_t>(least, most)(random_);
  }

  // Ascending, up to the limit, as those of a plan.
  std::vector<Gap> RandomWindow() {
    std::vector<Gap> window;
    for (std::uint32_t lo = Number(0, 20); lo < kLimit;) {
      const std::uint32_t hi = std::min(lo + Number(1, 24), kLimit);
      window.push_back({lo, hi});
      lo = hi + Number(1, 12);
    }
    window.back().hi = kLimit;
    return window;
  }

  // Beside the slots, or in a slot, against the plan.
  void AddBlock(bool beside) {
    const std::uint32_t lo = Number(0, kMapped - 12);
    const std::uint32_t granules = Number(1, 12);
    if (occupancy_.LastIn(lo, lo + granules) != nullptr) return;
    LiveRecord block;
    block.granule = lo;
    block.granules = granules;
    occupancy_.Insert(block);
    live_.Add(lo, block.end());
    blocks_.push_back({lo, lo + granules});
    without_slot_.push_back(beside);
    if (beside) space_.Take(lo, granules);
  }

  void RemoveBlocks() {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      occupancy_.Erase(*occupancy_.Find(blocks_[i].lo));
      live_.Remove(blocks_[i].lo, blocks_[i].hi);
      if (without_slot_[i]) space_.GiveBack(blocks_[i].lo, blocks_[i].hi - blocks_[i].lo);
    }
    blocks_.clear();
    without_slot_.clear();
  }

  // What the blocks beside the slots leave of the mapped gaps.
  [[nodiscard]] std::vector<Gap> RoomsOf(const std::vector<Gap>& window) const {
    std::vector<Gap> rooms;
    for (const Gap& gap : window) {
      bool goes_on = false;
      for (std::uint32_t at = gap.lo; at < std::min(gap.hi, kMapped); ++at) {
        const bool taken = IsTaken(at, /*slots_too=*/false);
        if (!taken && goes_on) ++rooms.back().hi;
        if (!taken && !goes_on) rooms.push_back({at, at + 1});
        goes_on = !taken;
      }
    }
    return rooms;
  }
  [[nodiscard]] bool IsTaken(std::uint32_t at, bool slots_too) const {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (blocks_[i].lo <= at && at < blocks_[i].hi && (slots_too || without_slot_[i])) return true;
    }
    return false;
  }
  // The lowest place in the room that no block has.
  [[nodiscard]] std::uint32_t PlaceIn(Gap room, std::uint32_t granules) const {
    for (std::uint32_t lo = room.lo; lo + granules <= room.hi; ++lo) {
      std::uint32_t at = lo;
      while (at < lo + granules && !IsTaken(at, /*slots_too=*/true)) ++at;
      if (at == lo + granules) return lo;
    }
    return DynamicSpace::kNone;
  }
  // In the tightest room that has a place: at its bottom, or at its top where only there another block beside the slots
  // lies; if that is taken, as low as it goes. Of equal rooms the lowest.
  [[nodiscard]] std::uint32_t Expected(const std::vector<Gap>& window, std::uint32_t granules) const {
    std::vector<Gap> rooms = RoomsOf(window);
    std::erase_if(rooms, [&](const Gap& room) { return room.hi - room.lo < granules; });
    std::ranges::stable_sort(rooms, {}, [](const Gap& room) { return room.hi - room.lo; });
    for (const Gap& room : rooms) {
      const bool at_top = !IsTaken(room.lo - 1, /*slots_too=*/false) && IsTaken(room.hi, /*slots_too=*/false);
      const std::uint32_t side = at_top ? room.hi - granules : room.lo;
      if (PlaceIn({side, side + granules}, granules) != DynamicSpace::kNone) return side;
      if (const std::uint32_t place = PlaceIn(room, granules); place != DynamicSpace::kNone) return place;
    }
    return DynamicSpace::kNone;
  }

  // Of the 32 highest rooms that are large enough the tightest, where none is known to be idle; of equal ones the
  // highest. Of what is soon over the highest place.
  [[nodiscard]] std::uint32_t ExpectedAnywhere(std::uint32_t granules, bool soon_over) const {
    std::uint32_t best = DynamicSpace::kNone;
    std::uint32_t best_room = ~std::uint32_t{0};
    int rooms = 0;
    for (std::uint32_t hi = kMapped; hi > 0 && rooms < 32; --hi) {
      if (hi < kMapped && !IsTaken(hi, /*slots_too=*/true)) continue;
      std::uint32_t lo = hi;
      while (lo > 0 && !IsTaken(lo - 1, /*slots_too=*/true)) --lo;
      if (hi - lo < granules) continue;
      if (soon_over) return hi - granules;
      ++rooms;
      if (hi - lo >= best_room) continue;
      best = lo;
      best_room = hi - lo;
    }
    return best;
  }

  std::mt19937_64 random_{7};
  Occupancy occupancy_{kLimit, 256};
  StreamClocks clocks_{nullptr};
  FreedBlocks freed_{occupancy_, clocks_, 256};
  RangeSet withdrawn_{64};
  DeferredRanges live_{kLimit};
  DynamicSpace space_{DevicePlan{}, DynamicSpaceOptions{kLimit * kBlockAlignment, kMapped* kBlockAlignment, 0},
                      occupancy_,   freed_,
                      withdrawn_,   live_};
  std::vector<Gap> blocks_;
  std::vector<bool> without_slot_;
};

TEST_F(RoomSearchTest, FindsTheTightestRoomThatHasAPlace) {
  int found = 0;
  int none = 0;
  for (int round = 0; round < 2000; ++round) {
    const bool as_planned = round % 2 == 0;
    for (std::uint32_t i = Number(0, 30); i > 0; --i) AddBlock(as_planned || Number(0, 2) > 0);
    const std::vector<Gap> window = RandomWindow();
    for (const std::uint32_t granules : {1u, 5u, 9u, 16u, 23u}) {
      DynamicSpace::Request request{.granules = granules, .stream = 0, .window = window};
      const std::uint32_t expected = Expected(window, granules);
      ASSERT_EQ(space_.Find(request), expected) << "round " << round << ", " << granules << " granules";
      ++(expected == DynamicSpace::kNone ? none : found);
    }
    RemoveBlocks();
  }
  EXPECT_GT(found, 1000);
  EXPECT_GT(none, 100);
}

TEST_F(RoomSearchTest, AnywhereItIsTheTightestOfTheHighestRooms) {
  int found = 0;
  int none = 0;
  for (int round = 0; round < 1000; ++round) {
    for (std::uint32_t i = Number(0, 90); i > 0; --i) AddBlock(false);
    for (const std::uint32_t granules : {1u, 2u, 5u, 12u, 40u}) {
      for (const bool soon_over : {false, true}) {
        DynamicSpace::Request request{.granules = granules, .stream = 0, .window = {}, .soon_over = soon_over};
        const std::uint32_t expected = ExpectedAnywhere(granules, soon_over);
        ASSERT_EQ(space_.Find(request), expected)
            << "round " << round << ", " << granules << " granules, soon over: " << soon_over;
        ++(expected == DynamicSpace::kNone ? none : found);
      }
    }
    if (round % 3 == 0) RemoveBlocks();
  }
  EXPECT_GT(found, 1000);
  EXPECT_GT(none, 100);
}

TEST_F(RoomSearchTest, WhatOtherStreamsMayStillUseIsNoRoomWithoutAWait) {
  ASSERT_EQ(clocks_.IndexOf(0), 0);
  LiveRecord freed;
  freed.granule = 100;
  freed.granules = 300;
  freed.flags = LiveRecord::kFreed;
  freed.stream = static_cast<std::uint8_t>(clocks_.IndexOf(7));
  freed.stamp = clocks_.NewStamp();
  occupancy_.Insert(freed);
  DynamicSpace::Request request{.granules = 120, .stream = 0, .window = {}};
  EXPECT_EQ(space_.Find(request), DynamicSpace::kNone);
  request.may_wait = true;
  EXPECT_EQ(space_.Find(request), 0u);
  withdrawn_.Add(0, 150);
  EXPECT_EQ(space_.Find(request), 150u);
  request.may_map = true;
  EXPECT_EQ(space_.Find(request), 0u);
}

}  // namespace room_search_test
}  // namespace stalloc
