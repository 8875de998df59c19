#include "allocator/sleep/host_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <vector>

#include "tests/sleep/faulty_copies.h"

namespace stalloc {
namespace {

Bytes Sum(const std::vector<HostPool::Piece>& pieces) {
  Bytes bytes = 0;
  for (const HostPool::Piece& piece : pieces) bytes += piece.bytes;
  return bytes;
}

std::vector<HostPool::Piece> Taken(HostPool& pool, Bytes bytes) {
  Result<std::vector<HostPool::Piece>> taken = pool.Take(bytes);
  EXPECT_TRUE(taken.ok()) << taken.error();
  return taken.ok() ? taken.value() : std::vector<HostPool::Piece>{};
}

TEST(HostPoolTest, MemoryIsTakenOnceAndUsedAgain) {
  FaultyCopies copies;
  HostPool pool(copies);
  for (int sleep = 0; sleep < 3; ++sleep) {
    const auto pieces = Taken(pool, 5 * kMiB);
    ASSERT_EQ(pieces.size(), 1u) << "one segment, one piece";
    std::memset(pieces[0].at, 1, pieces[0].bytes);
    pool.Give(pieces[0]);
  }
  EXPECT_EQ(copies.times_taken(), 1);
  EXPECT_EQ(pool.bytes(), 6 * kMiB) << "in units of 2 MiB";
  EXPECT_EQ(pool.Release(), 6 * kMiB);
  EXPECT_EQ(copies.held(), 0u);
  EXPECT_EQ(pool.bytes(), 0u);
}

TEST(HostPoolTest, MuchIsTakenBySeveralThreadsOrNotAtAll) {
  FaultyCopies copies;
  HostPool pool(copies, 2 * kMiB);
  copies.SetHostLimit(25 * kMiB);
  const Result<std::vector<HostPool::Piece>> refused = pool.Take(31 * kMiB);
  EXPECT_THAT(refused.error(), ::testing::HasSubstr("32 MiB of page-locked memory are needed"));
  EXPECT_EQ(copies.held(), 0u);
  EXPECT_EQ(pool.bytes(), 0u);
  copies.SetHostLimit(64 * kMiB);
  const auto pieces = Taken(pool, 31 * kMiB);
  EXPECT_EQ(pieces.size(), 16u);
  EXPECT_EQ(Sum(pieces), 31 * kMiB);
  for (std::size_t i = 0; i < pieces.size(); ++i) std::memset(pieces[i].at, static_cast<int>(i + 1), pieces[i].bytes);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].at[0], static_cast<std::byte>(i + 1)) << "none overlaps another";
    EXPECT_EQ(pieces[i].at[pieces[i].bytes - 1], static_cast<std::byte>(i + 1));
    pool.Give(pieces[i]);
  }
  EXPECT_EQ(pool.Release(), 32 * kMiB);
  EXPECT_EQ(copies.held(), 0u);
}

TEST(HostPoolTest, GrowsByWhatIsMissingAndKeepsWhatIsUsed) {
  FaultyCopies copies;
  HostPool pool(copies);
  const auto first = Taken(pool, 3 * kMiB);  // of 4
  const auto second = Taken(pool, 3 * kMiB);
  EXPECT_EQ(Sum(second), 3 * kMiB);
  EXPECT_EQ(second.size(), 2u);
  EXPECT_EQ(pool.bytes(), 6 * kMiB);
  for (const auto& piece : second) pool.Give(piece);
  EXPECT_EQ(pool.Release(), 2 * kMiB) << "the first segment is in use";
  pool.Give(first[0]);
  EXPECT_EQ(pool.Release(), 4 * kMiB);
}

TEST(HostPoolTest, TooLittleMemoryIsAnErrorThatChangesNothing) {
  FaultyCopies copies;
  copies.SetHostLimit(4 * kMiB);
  HostPool pool(copies);
  const auto held = Taken(pool, 2 * kMiB);
  const auto more = pool.Take(10 * kMiB);
  ASSERT_FALSE(more.ok());
  EXPECT_THAT(more.error(), testing::AllOf(testing::HasSubstr("10 MiB of page-locked memory are needed"),
                                           testing::HasSubstr("2 MiB that are held"), testing::HasSubstr("TakeHost")));
  EXPECT_EQ(pool.bytes(), 2 * kMiB);
  EXPECT_EQ(Sum(Taken(pool, 2 * kMiB)), 2 * kMiB);
}

// More than any machine has: nothing is tried that the system would kill the process for.
TEST(HostPoolTest, AHostThatHasLessIsNotAsked) {
  HostCopies copies;
  HostPool pool(copies);
  const auto taken = pool.Take(Bytes{1} << 46);
  ASSERT_FALSE(taken.ok());
  EXPECT_THAT(taken.error(), testing::HasSubstr("are available"));
}

// Or a fork would have the kernel copy all of it, or a device write where the parent does not look.
TEST(HostPoolTest, ForkedChildrenDoNotHaveTheMemory) {
  HostCopies copies;
  HostPool pool(copies);
  const auto piece = Taken(pool, 4 * kMiB)[0];
  const pid_t child = fork();
  if (child == 0) {
    unsigned char there = 0;
    _exit(mincore(piece.at, 4096, &there) != 0 && errno == ENOMEM ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(HostPoolTest, PiecesNeverOverlapAndNothingIsLost) {
  FaultyCopies copies;
  HostPool pool(copies);
  std::mt19937_64 random(7);
  std::vector<HostPool::Piece> held;
  for (int step = 0; step < 3000; ++step) {
    if (random() % 2 == 0 || held.empty()) {
      for (const auto& piece : Taken(pool, (1 + random() % 2000) * kBlockAlignment)) {
        for (const auto& other : held) {
          EXPECT_TRUE(piece.at + piece.bytes <= other.at || other.at + other.bytes <= piece.at);
        }
        held.push_back(piece);
      }
      continue;
    }
    std::swap(held[random() % held.size()], held.back());
    HostPool::Piece& piece = held.back();
    const Bytes part = random() % 3 == 0 ? piece.bytes : RoundUp(piece.bytes / 2, kBlockAlignment);
    pool.Give({piece.at, part});
    piece = {piece.at + part, piece.bytes - part};
    if (piece.bytes == 0) held.pop_back();
    ASSERT_EQ(pool.free_bytes() + Sum(held), pool.bytes());
  }
  for (const auto& piece : held) pool.Give(piece);
  const Bytes all = pool.bytes();
  EXPECT_EQ(pool.Release(), all);
  EXPECT_EQ(copies.held(), 0u);
}

}  // namespace
}  // namespace stalloc
