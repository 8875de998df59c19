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

constexpr Bytes kMiB = Bytes{1} << 20;
constexpr Bytes kGiB = Bytes{1} << 30;
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

TEST_F(ArenaTest, ChunksAreOneGiBAndTheLastTakesTheRemainder) {
  const auto arena = MakeArena(16 * kGiB);
  ASSERT_TRUE(arena->GrowTo(700 * kMiB).ok());
  EXPECT_EQ(driver_.counts().handles, 1);
  ASSERT_TRUE(arena->GrowTo(700 * kMiB + 3 * kGiB + 512 * kMiB).ok());
  const auto chunks = arena->Chunks();
  ASSERT_EQ(chunks.size(), 4u);
  EXPECT_EQ(chunks[1].bytes, kGiB);
  EXPECT_EQ(chunks[2].bytes, kGiB);
  EXPECT_EQ(chunks[3].bytes, kGiB + 512 * kMiB);
  EXPECT_EQ(arena->mapped_end(), arena->mapped_bytes());
}

TEST_F(ArenaTest, SmallerChunksAreTheCallersToAskFor) {
  DriverStatus status;
  const auto arena = Arena::Create(driver_, 100 * kMiB, &status, 8 * kMiB - 5);
  ASSERT_NE(arena, nullptr);
  ASSERT_TRUE(arena->GrowTo(100 * kMiB).ok());
  const auto chunks = arena->Chunks();
  ASSERT_EQ(chunks.size(), 12u);
  EXPECT_EQ(chunks[0].bytes, 8 * kMiB);
  EXPECT_EQ(chunks[11].bytes, 12 * kMiB);
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
    const DriverStatus status = arena->GrowTo(5 * kGiB);  // four chunks: nine calls
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
  EXPECT_EQ(n, 10u) << "nine calls failed one by one, then none";
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
    const DriverStatus status = arena->EnsureMapped(0, 4 * kGiB);  // a hole below and one above: three chunks
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
  EXPECT_EQ(n, 9u);
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

TEST_F(ArenaTest, ChunksMoveWithTheirBytesAndNothingMoreIsHeld) {
  const auto arena = MakeArena(8 * kGiB);
  ASSERT_TRUE(arena->GrowTo(3 * kGiB).ok());
  for (Offset chunk = 0; chunk < 3; ++chunk) *At(*arena, chunk * kGiB) = static_cast<char>(chunk + 1);
  const std::array<Arena::Move, 2> up{{{0, 5 * kGiB}, {kGiB, 3 * kGiB}}};
  EXPECT_EQ(arena->MoveChunks(up), 2u);
  EXPECT_EQ(*At(*arena, 5 * kGiB), 1);
  EXPECT_EQ(*At(*arena, 3 * kGiB), 2);
  EXPECT_EQ(*At(*arena, 2 * kGiB), 3);
  EXPECT_EQ(arena->mapped_bytes(), 3 * kGiB);
  EXPECT_EQ(arena->mapped_end(), 6 * kGiB);
  EXPECT_EQ(driver_.counts().handle_bytes, 3 * kGiB);
  const std::array<Arena::Move, 3> back{{{5 * kGiB, 0}, {4 * kGiB, kGiB}, {3 * kGiB, kGiB}}};
  EXPECT_EQ(arena->MoveChunks(back), 1u) << "there is no chunk at 4 GiB, and what comes behind it stays";
  EXPECT_EQ(*At(*arena, 0), 1);
  EXPECT_EQ(arena->Chunks().size(), 3u);
}

TEST_F(ArenaTest, ChunksThatMoveToPlacesThatTouchAreMadeUsableByOneCall) {
  const auto arena = MakeArena(12 * kGiB);
  ASSERT_TRUE(arena->GrowTo(4 * kGiB).ok());
  for (Offset chunk = 0; chunk < 4; ++chunk) *At(*arena, chunk * kGiB) = static_cast<char>(chunk + 1);
  driver_.FailNothing();
  const std::array<Arena::Move, 3> moves{{{3 * kGiB, 6 * kGiB}, {0, 7 * kGiB}, {kGiB, 10 * kGiB}}};
  EXPECT_EQ(arena->MoveChunks(moves), 3u);
  EXPECT_EQ(driver_.calls(), 8u) << "three unmapped, three mapped, one access for two, one for the third";
  EXPECT_EQ(*At(*arena, 6 * kGiB), 4);
  EXPECT_EQ(*At(*arena, 7 * kGiB), 1);
  EXPECT_EQ(*At(*arena, 10 * kGiB), 2);
  EXPECT_EQ(*At(*arena, 2 * kGiB), 3);
  EXPECT_EQ(arena->mapped_bytes(), 4 * kGiB);
}

// A run of two and one alone: each call of the driver fails, alone or with all that follow.
TEST_F(ArenaTest, AMoveThatTheDriverRefusesLeavesTheChunksOrGivesThemBack) {
  const std::array<Arena::Move, 3> moves{{{0, 4 * kGiB}, {2 * kGiB, 5 * kGiB}, {kGiB, 7 * kGiB}}};
  for (const std::uint64_t failures : {1, 1000}) {
    bool succeeded = false;
    for (std::uint64_t call = 0; !succeeded; ++call) {
      SCOPED_TRACE(testing::Message() << failures << " failures from call " << call);
      const auto arena = MakeArena(8 * kGiB);
      ASSERT_TRUE(arena->GrowTo(3 * kGiB).ok());
      for (Offset chunk = 0; chunk < 3; ++chunk) *At(*arena, chunk * kGiB) = static_cast<char>(chunk + 1);
      driver_.FailCall(call, DriverCode::kFailed, failures);
      const std::size_t moved = arena->MoveChunks(moves);
      driver_.FailNothing();
      succeeded = moved == moves.size();
      EXPECT_TRUE(succeeded || moved == 0 || moved == 2);
      std::array<Offset, 3> places{0, kGiB, 2 * kGiB};
      for (std::size_t i = 0; i < moved; ++i) places[moves[i].from / kGiB] = moves[i].to;
      for (const Arena::Range& chunk : arena->Chunks()) {
        const auto place = std::find(places.begin(), places.end(), chunk.offset);
        ASSERT_NE(place, places.end());
        EXPECT_EQ(*At(*arena, chunk.offset), static_cast<char>(place - places.begin() + 1));
      }
      EXPECT_EQ(arena->mapped_bytes(), arena->Chunks().size() * kGiB);
      EXPECT_GE(arena->mapped_bytes(), failures == 1 ? 3 * kGiB : 0) << "one failure loses no chunk";
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
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(arena->mapped_bytes(), (32 * 4 + 3) * kPage);
  EXPECT_EQ(driver_.counts().handle_bytes, arena->mapped_bytes());
}

}  // namespace
}  // namespace stalloc
