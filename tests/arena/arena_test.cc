#include "allocator/arena/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "allocator/driver/host_driver.h"
#include "tests/driver/faulty_driver.h"

namespace stalloc {
namespace {

constexpr Bytes kPage = 2 * kMiB;

// No byte is touched except where a test says so: capacities of many GiB cost nothing here.
class ArenaTest : public testing::Test {
 protected:
  std::unique_ptr<Arena> MakeArena(Bytes reserve) {
    DriverStatus status;
    auto arena = Arena::Create(driver_, reserve, &status);
    EXPECT_TRUE(status.ok());
    return arena;
  }
  static char* At(const Arena& arena, Offset offset) { return reinterpret_cast<char*>(arena.base() + offset); }

  std::unique_ptr<HostDriver> host_ = HostDriver::Create({.capacity = 16 * kGiB});
  FaultyDriver driver_{*host_};
};

TEST_F(ArenaTest, CreateReservesAddressesAndTakesNoMemory) {
  const auto arena = MakeArena(10 * kMiB + 1);
  EXPECT_EQ(arena->reserved_bytes(), 12 * kMiB);
  EXPECT_EQ(arena->mapped_bytes(), 0u);
  EXPECT_EQ(arena->base() % kPage, 0u);
  EXPECT_EQ(driver_.counts().handles, 0);
}

TEST_F(ArenaTest, CreateThatFailsSaysWhy) {
  driver_.FailCall(0, DriverCode::kOutOfMemory);
  DriverStatus status;
  EXPECT_EQ(Arena::Create(driver_, kGiB, &status), nullptr);
  EXPECT_EQ(status.code, DriverCode::kOutOfMemory);
}

TEST_F(ArenaTest, GrowthIsUsableAndKeepsAddressesAndBytes) {
  const auto arena = MakeArena(64 * kMiB);
  ASSERT_TRUE(arena->GrowTo(3 * kMiB).ok());
  EXPECT_EQ(arena->mapped_bytes(), 4 * kMiB);
  std::memset(At(*arena, 0), 1, 4 * kMiB);
  ASSERT_TRUE(arena->GrowTo(64 * kMiB).ok());
  std::memset(At(*arena, 4 * kMiB), 2, 60 * kMiB);
  EXPECT_EQ(*At(*arena, 4 * kMiB - 1), 1);
  EXPECT_EQ(*At(*arena, 4 * kMiB), 2);
  ASSERT_TRUE(arena->GrowTo(kMiB).ok()) << "less than there is: nothing to do";
  EXPECT_EQ(arena->mapped_bytes(), 64 * kMiB);
}

TEST_F(ArenaTest, GrowthBeyondTheReservationIsInvalid) {
  const auto arena = MakeArena(4 * kMiB);
  EXPECT_EQ(arena->GrowTo(4 * kMiB + 1).code, DriverCode::kInvalid);
  EXPECT_EQ(arena->EnsureMapped(2 * kMiB, 4 * kMiB).code, DriverCode::kInvalid);
  EXPECT_EQ(arena->EnsureMapped(~Offset{0}, 4).code, DriverCode::kInvalid);
  EXPECT_EQ(arena->mapped_bytes(), 0u);
}

TEST_F(ArenaTest, ChunksAreCutAtMultiplesOfOneGiB) {
  const auto arena = MakeArena(16 * kGiB);
  ASSERT_TRUE(arena->GrowTo(700 * kMiB).ok());
  EXPECT_EQ(driver_.counts().handles, 1);
  ASSERT_TRUE(arena->GrowTo(700 * kMiB + 3 * kGiB + 512 * kMiB).ok());
  const auto chunks = arena->Chunks();
  ASSERT_EQ(chunks.size(), 6u);
  EXPECT_EQ(chunks[1].bytes, kGiB - 700 * kMiB);
  EXPECT_EQ(chunks[2].bytes, kGiB);
  EXPECT_EQ(chunks[4].bytes, kGiB);
  EXPECT_EQ(chunks[5].bytes, 700 * kMiB + 512 * kMiB - kGiB);
  EXPECT_EQ(arena->mapped_end(), arena->mapped_bytes());
}

TEST_F(ArenaTest, SmallerChunksAreTheCallersToAskFor) {
  DriverStatus status;
  const auto arena = Arena::Create(driver_, 100 * kMiB, &status, 8 * kMiB - 5);
  ASSERT_NE(arena, nullptr);
  ASSERT_TRUE(arena->GrowTo(100 * kMiB).ok());
  const auto chunks = arena->Chunks();
  ASSERT_EQ(chunks.size(), 13u);
  EXPECT_EQ(chunks[0].bytes, 8 * kMiB);
  EXPECT_EQ(chunks[12].bytes, 4 * kMiB);
  const Arena::Range idle{5 * kMiB, 20 * kMiB};
  EXPECT_EQ(arena->ReleaseIdle({&idle, 1}), 16 * kMiB);
}

TEST_F(ArenaTest, GrowthThatDoesNotFitTheDeviceChangesNothing) {
  const auto arena = MakeArena(64 * kGiB);
  ASSERT_TRUE(arena->GrowTo(2 * kGiB).ok());
  const auto before = driver_.counts();
  EXPECT_EQ(arena->GrowTo(20 * kGiB).code, DriverCode::kOutOfMemory);
  EXPECT_EQ(driver_.counts(), before);
  EXPECT_EQ(arena->mapped_bytes(), 2 * kGiB);
  EXPECT_TRUE(arena->GrowTo(16 * kGiB).ok());
}

TEST_F(ArenaTest, EveryFailedStepOfAGrowthRollsBack) {
  std::uint64_t n = 0;
  for (bool fired = true; fired; ++n) {
    const auto arena = MakeArena(8 * kGiB);
    ASSERT_TRUE(arena->GrowTo(100 * kMiB).ok());
    *At(*arena, 0) = 77;
    const auto before = driver_.counts();
    driver_.FailCall(n);
    const DriverStatus status = arena->GrowTo(5 * kGiB);  // five chunks: eleven calls
    fired = driver_.fired();
    driver_.FailNothing();
    ASSERT_EQ(status.ok(), !fired) << "call " << n;
    if (fired) {
      EXPECT_EQ(driver_.counts(), before) << "call " << n;
      EXPECT_EQ(arena->mapped_bytes(), 100 * kMiB);
      ASSERT_TRUE(arena->GrowTo(5 * kGiB).ok()) << "after the failure of call " << n;
    }
    *At(*arena, 5 * kGiB - 1) = 1;
    EXPECT_EQ(*At(*arena, 0), 77);
  }
  EXPECT_EQ(n, 12u) << "eleven calls failed one by one, then none";
  EXPECT_EQ(driver_.counts(), FaultyDriver::Counts{});
  EXPECT_EQ(host_->GetCounts().handles, 0u);
}

TEST_F(ArenaTest, EveryFailedStepOfEnsureMappedRollsBack) {
  std::uint64_t n = 0;
  for (bool fired = true; fired; ++n) {
    const auto arena = MakeArena(8 * kGiB);
    ASSERT_TRUE(arena->EnsureMapped(kGiB, 100 * kMiB).ok());
    const auto before = driver_.counts();
    driver_.FailCall(n);
    const DriverStatus status = arena->EnsureMapped(0, 4 * kGiB);  // a hole below and one above: four chunks
    fired = driver_.fired();
    driver_.FailNothing();
    ASSERT_EQ(status.ok(), !fired) << "call " << n;
    if (fired) {
      EXPECT_EQ(driver_.counts(), before) << "call " << n;
      EXPECT_EQ(arena->mapped_bytes(), 100 * kMiB);
      ASSERT_TRUE(arena->EnsureMapped(0, 4 * kGiB).ok());
    }
    EXPECT_EQ(arena->mapped_bytes(), 4 * kGiB);
  }
  EXPECT_EQ(n, 11u);
  EXPECT_EQ(driver_.counts(), FaultyDriver::Counts{});
}

TEST_F(ArenaTest, ADriverThatFailsFromSomePointOnNeverCrashesTheArena) {
  for (std::uint64_t n = 0; n < 16; ++n) {
    driver_.FailNothing();
    const auto arena = MakeArena(4 * kGiB);
    driver_.FailCall(n, DriverCode::kShuttingDown, FaultyDriver::kNever);
    (void)arena->GrowTo(4 * kGiB);
    (void)arena->ShrinkTo(0);
  }
}

TEST_F(ArenaTest, ShrinkGivesWholeChunksBackFromTheTop) {
  const auto arena = MakeArena(8 * kGiB);
  ASSERT_TRUE(arena->GrowTo(kGiB).ok());
  ASSERT_TRUE(arena->GrowTo(4 * kGiB).ok());
  EXPECT_EQ(arena->ShrinkTo(3 * kGiB + 1), 0u);
  EXPECT_EQ(arena->ShrinkTo(2 * kGiB), 2 * kGiB);
  EXPECT_EQ(arena->mapped_end(), 2 * kGiB);
  EXPECT_EQ(driver_.counts().handle_bytes, 2 * kGiB);
  ASSERT_TRUE(arena->GrowTo(3 * kGiB).ok());
  *At(*arena, 3 * kGiB - 1) = 1;
  EXPECT_EQ(arena->ShrinkTo(0), 3 * kGiB);
  EXPECT_EQ(driver_.counts().handles, 0);
}

TEST_F(ArenaTest, AShrinkThatTheDriverRefusesLeavesTheChunk) {
  const auto arena = MakeArena(4 * kMiB);
  ASSERT_TRUE(arena->GrowTo(4 * kMiB).ok());
  driver_.FailCall(0);
  EXPECT_EQ(arena->ShrinkTo(0), 0u);
  EXPECT_EQ(arena->mapped_bytes(), 4 * kMiB);
  *At(*arena, 0) = 1;
  EXPECT_EQ(arena->ShrinkTo(0), 4 * kMiB);
}

TEST_F(ArenaTest, IdleChunksInTheMiddleGoBackAndCanBeMappedAgain) {
  const auto arena = MakeArena(8 * kGiB);
  ASSERT_TRUE(arena->GrowTo(5 * kGiB).ok());  // 1, 1, 1, 1, 1
  *At(*arena, 0) = 1;
  *At(*arena, 4 * kGiB) = 5;
  // Two idle ranges that touch cover chunks 1 and 2 together; chunk 3 is covered in part only.
  const std::array<Arena::Range, 3> idle{
      {{2 * kGiB - 5 * kMiB, kGiB + 6 * kMiB}, {kGiB - kMiB, kGiB - 4 * kMiB}, {3 * kGiB + 2 * kMiB, 512 * kMiB}}};
  EXPECT_EQ(arena->ReleaseIdle(idle), 2 * kGiB);
  EXPECT_EQ(arena->mapped_bytes(), 3 * kGiB);
  EXPECT_EQ(arena->mapped_end(), 5 * kGiB);
  EXPECT_EQ(driver_.counts().handle_bytes, 3 * kGiB);
  EXPECT_EQ(*At(*arena, 0), 1);
  EXPECT_EQ(*At(*arena, 4 * kGiB), 5);
  // Growth at the top leaves the hole alone, and EnsureMapped fills what is asked for and no more.
  ASSERT_TRUE(arena->GrowTo(6 * kGiB).ok());
  EXPECT_EQ(arena->mapped_bytes(), 4 * kGiB);
  ASSERT_TRUE(arena->EnsureMapped(kGiB + 3 * kMiB, 2 * kMiB).ok());
  EXPECT_EQ(arena->mapped_bytes(), 4 * kGiB + 4 * kMiB);
  *At(*arena, kGiB + 4 * kMiB) = 9;
  ASSERT_TRUE(arena->EnsureMapped(0, 6 * kGiB).ok());
  EXPECT_EQ(arena->mapped_bytes(), 6 * kGiB);
  EXPECT_EQ(*At(*arena, kGiB + 4 * kMiB), 9);
  ASSERT_TRUE(arena->EnsureMapped(0, 6 * kGiB).ok());
  EXPECT_EQ(arena->mapped_bytes(), 6 * kGiB);
}

TEST_F(ArenaTest, HolesAreWhatIsNotBacked) {
  const auto arena = MakeArena(8 * kGiB);
  const auto holes = [&](Offset offset, Bytes bytes) {
    std::vector<Bytes> flat;
    for (const Arena::Range& hole : arena->HolesIn(offset, bytes)) flat.insert(flat.end(), {hole.offset, hole.bytes});
    return flat;
  };
  EXPECT_EQ(holes(kMiB, 5 * kGiB), (std::vector<Bytes>{kMiB, 5 * kGiB}));
  ASSERT_TRUE(arena->GrowTo(4 * kGiB).ok());
  EXPECT_EQ(holes(0, 4 * kGiB), std::vector<Bytes>{});
  const std::array<Arena::Range, 2> idle{{{kGiB, kGiB}, {3 * kGiB, kGiB}}};
  ASSERT_EQ(arena->ReleaseIdle(idle), 2 * kGiB);
  EXPECT_EQ(holes(0, 8 * kGiB), (std::vector<Bytes>{kGiB, kGiB, 3 * kGiB, 5 * kGiB}));
  EXPECT_EQ(holes(kGiB + kMiB, kMiB), (std::vector<Bytes>{kGiB + kMiB, kMiB}));
  EXPECT_EQ(holes(2 * kGiB, kGiB), std::vector<Bytes>{});
  EXPECT_EQ(holes(2 * kGiB + kMiB, kGiB), (std::vector<Bytes>{3 * kGiB, kMiB}));
}

TEST_F(ArenaTest, MemoryMovesAndNothingMoreIsHeld) {
  const auto arena = MakeArena(8 * kGiB);
  ASSERT_TRUE(arena->GrowTo(3 * kGiB).ok());
  *At(*arena, 2 * kGiB) = 3;
  const std::array<Arena::Range, 2> from{{{0, kGiB}, {kGiB, kGiB}}};
  const std::array<Arena::Range, 2> to{{{5 * kGiB, kGiB}, {3 * kGiB, kGiB}}};
  arena->Move(from, to);
  EXPECT_EQ(arena->HolesIn(0, 6 * kGiB).size(), 2u) << "the lower two GiB, and the fifth";
  *At(*arena, 5 * kGiB) = 1;
  *At(*arena, 3 * kGiB) = 2;
  EXPECT_EQ(*At(*arena, 2 * kGiB), 3);
  EXPECT_EQ(arena->mapped_bytes(), 3 * kGiB);
  EXPECT_EQ(arena->mapped_end(), 6 * kGiB);
  EXPECT_EQ(driver_.counts().handle_bytes, 3 * kGiB);
  // Nothing is at 4 GiB; what there is goes to the lowest place.
  const std::array<Arena::Range, 2> some{{{4 * kGiB, kGiB}, {5 * kGiB, kGiB}}};
  const std::array<Arena::Range, 1> back{{{0, 2 * kGiB}}};
  arena->Move(some, back);
  ASSERT_EQ(arena->Chunks().size(), 3u);
  EXPECT_EQ(arena->Chunks().front().offset, 0u);
  EXPECT_EQ(arena->mapped_end(), 4 * kGiB);
  EXPECT_EQ(driver_.counts().handle_bytes, 3 * kGiB);
}

TEST_F(ArenaTest, WhatMovesToPlacesThatTouchIsMadeUsableByOneCall) {
  const auto arena = MakeArena(12 * kGiB);
  ASSERT_TRUE(arena->GrowTo(4 * kGiB).ok());
  driver_.FailNothing();
  const std::array<Arena::Range, 3> from{{{3 * kGiB, kGiB}, {0, kGiB}, {kGiB, kGiB}}};
  const std::array<Arena::Range, 2> to{{{6 * kGiB, 2 * kGiB}, {10 * kGiB, kGiB}}};
  arena->Move(from, to);
  EXPECT_EQ(driver_.calls(), 8u) << "three unmapped, three mapped, one access for two, one for the third";
  for (const Offset place : {6 * kGiB, 7 * kGiB, 10 * kGiB}) *At(*arena, place) = 1;
  EXPECT_EQ(arena->mapped_bytes(), 4 * kGiB);
}

TEST_F(ArenaTest, WhatMovesIsCutAtMultiplesOfAChunkAndWhatIsLeftOfOneStays) {
  DriverStatus status;
  const auto arena = Arena::Create(driver_, kGiB, &status, 8 * kMiB);
  ASSERT_TRUE(arena->GrowTo(64 * kMiB, 32 * kMiB).ok());
  const std::array<Arena::Range, 1> large{{{0, 32 * kMiB}}};
  const std::array<Arena::Range, 1> to{{{78 * kMiB, 24 * kMiB}}};
  arena->Move(large, to);
  std::vector<Bytes> sizes;
  for (const Arena::Range& chunk : arena->Chunks()) {
    if (chunk.offset >= 78 * kMiB) sizes.push_back(chunk.bytes);
  }
  EXPECT_EQ(sizes, (std::vector<Bytes>{2 * kMiB, 8 * kMiB, 8 * kMiB, 6 * kMiB}));
  EXPECT_EQ(driver_.counts().handle_bytes, 64 * kMiB);
  EXPECT_TRUE(arena->HolesIn(0, 8 * kMiB).empty()) << "what is left of the chunk stays at its beginning";
  ASSERT_EQ(arena->HolesIn(0, 32 * kMiB).size(), 1u);
  for (const Offset place : {Offset{0}, 78 * kMiB, 80 * kMiB, 101 * kMiB}) *At(*arena, place) = 1;
}

TEST_F(ArenaTest, TheFirstGrowthMayBeInOtherChunksThanTheRest) {
  DriverStatus status;
  const auto arena = Arena::Create(driver_, kGiB, &status, 2 * kMiB);
  ASSERT_TRUE(arena->GrowTo(64 * kMiB, 16 * kMiB).ok());
  EXPECT_EQ(arena->Chunks().size(), 4u);
  ASSERT_TRUE(arena->GrowTo(72 * kMiB).ok());
  EXPECT_EQ(arena->Chunks().size(), 8u);
}

// Of three chunks two go to places that touch: each call of the driver fails, alone or with all that follow.
TEST_F(ArenaTest, AMoveThatTheDriverRefusesLosesNoTrackOfWhatIsHeld) {
  const std::array<Arena::Range, 3> from{{{0, 2 * kMiB}, {4 * kMiB, 2 * kMiB}, {2 * kMiB, 2 * kMiB}}};
  const std::array<Arena::Range, 2> to{{{12 * kMiB, 4 * kMiB}, {18 * kMiB, 2 * kMiB}}};
  for (const std::uint64_t failures : {1, 1000}) {
    bool fired = true;
    for (std::uint64_t call = 0; fired; ++call) {
      SCOPED_TRACE(testing::Message() << failures << " failures from call " << call);
      DriverStatus status;
      const auto before = driver_.counts();
      auto arena = Arena::Create(driver_, kGiB, &status, 2 * kMiB);
      ASSERT_TRUE(arena->GrowTo(8 * kMiB).ok());
      *At(*arena, 6 * kMiB) = 4;
      driver_.FailCall(call, DriverCode::kFailed, failures);
      arena->Move(from, to);
      fired = driver_.fired();
      driver_.FailNothing();
      EXPECT_EQ(*At(*arena, 6 * kMiB), 4) << "not part of it";
      Bytes bytes = 0;
      for (const Arena::Range& chunk : arena->Chunks()) {
        bytes += chunk.bytes;
        *At(*arena, chunk.offset + chunk.bytes - 1) = 1;
      }
      EXPECT_EQ(arena->mapped_bytes(), bytes);
      EXPECT_LE(bytes, 8 * kMiB);
      EXPECT_TRUE(fired || arena->HolesIn(12 * kMiB, 4 * kMiB).empty());
      if (failures > 1) continue;  // what it does not unmap either is lost
      EXPECT_EQ(driver_.counts().mapped_bytes, before.mapped_bytes + static_cast<std::int64_t>(bytes));
      EXPECT_TRUE(arena->EnsureMapped(0, 32 * kMiB).ok()) << "nothing is left where nobody knows of it";
      arena.reset();
      EXPECT_EQ(driver_.counts().mapped_bytes, before.mapped_bytes);
    }
  }
}

TEST_F(ArenaTest, RefreshAccessCoversEveryChunk) {
  const auto arena = MakeArena(8 * kGiB);
  ASSERT_TRUE(arena->GrowTo(3 * kGiB).ok());
  driver_.FailNothing();
  ASSERT_TRUE(arena->RefreshAccess().ok());
  EXPECT_EQ(driver_.calls(), 3u);
  driver_.FailCall(1);
  EXPECT_FALSE(arena->RefreshAccess().ok());
  EXPECT_EQ(driver_.calls(), 3u) << "one that fails keeps it from none of the others";
}

TEST_F(ArenaTest, ContainsIsTheReservation) {
  const auto arena = MakeArena(4 * kMiB);
  EXPECT_TRUE(arena->Contains(At(*arena, 0)));
  EXPECT_TRUE(arena->Contains(At(*arena, 4 * kMiB - 1)));
  EXPECT_FALSE(arena->Contains(At(*arena, 4 * kMiB)));
  EXPECT_FALSE(arena->Contains(At(*arena, 0) - 1));
}

TEST_F(ArenaTest, ThreadsThatGrowItAtOnceAgreeOnTheResult) {
  const auto arena = MakeArena(512 * kMiB);
  std::vector<std::thread> threads;
  for (Bytes t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (Bytes step = 1; step <= 32; ++step) {
        const Bytes target = (step * 4 + t) * kPage;
        ASSERT_TRUE(arena->GrowTo(target).ok());
        ASSERT_GE(arena->mapped_bytes(), target);
        *At(*arena, target - kPage + t) = 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(arena->mapped_bytes(), (32 * 4 + 3) * kPage);
  EXPECT_EQ(driver_.counts().handle_bytes, arena->mapped_bytes());
}

}  // namespace
}  // namespace stalloc
