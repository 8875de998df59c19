// Blocks that lie half in a graphs' pool, half in memory of the arena's own next to it or instead of it.
#include <gtest/gtest.h>

#include "tests/runtime/graph_program.h"

namespace stalloc {
namespace graph_own_memory_test {

using Own = GraphProgram::Own;
using Verdict = GraphProgram::Verdict;
using Block = GraphProgram::Block;
constexpr GraphId kA = GraphProgram::kA;
constexpr GraphId kB = GraphProgram::kB;
constexpr StreamHandle kStream = 7;
constexpr StreamHandle kOther = 8;
constexpr Bytes kHeldWithOwn = GraphProgram::kArena + GraphProgram::kOwn;

class GraphOwnMemoryTest : public GraphProgramTest {};

TEST_F(GraphOwnMemoryTest, ABlockLiesInThePoolAndInOwnMemory) {
  Start({.own = Own::kAfter});
  Begin();
  EXPECT_EQ(program_->runtime().Stats().arena_bytes, GraphProgram::kArena) << "nobody needs own memory yet";
  const Block half = program_->Allocate(GraphProgram::kHalf, kStream);
  ASSERT_TRUE(program_->IsLent(half));
  EXPECT_EQ(Graphs().hits, 1u);
  EXPECT_EQ(Graphs().lent_bytes, GraphProgram::kDead + GraphProgram::kCarried) << "own memory is not lent";
  EXPECT_EQ(program_->runtime().Stats().arena_bytes, kHeldWithOwn);
  ASSERT_TRUE(program_->device().Synchronize().ok());
  const auto* const last =
      reinterpret_cast<const std::uint64_t*>(program_->address() + PoolLayout::kExtentUnit - GraphProgram::kHalfInPool);
  EXPECT_EQ(*last, half.key) << "its first bytes are the pool's last";
  program_->Free(half);
  Begin();
  const Block again = program_->Allocate(GraphProgram::kHalf, kStream);
  EXPECT_EQ(again.pointer, half.pointer);
  program_->Free(again);
  EXPECT_EQ(Graphs().surprises, 0u);
  EXPECT_EQ(Graphs().times_lent, 1u);
}

// A block there lives through launches.
TEST_F(GraphOwnMemoryTest, OwnMemoryIsInNoLaunchsWay) {
  Start({.own = Own::kAfter});
  const Block filler = program_->Allocate(GraphProgram::kArena, kStream);
  ASSERT_FALSE(program_->IsLent(filler));
  for (int iteration = 0; iteration < 4; ++iteration) Begin();
  const Block half = program_->Allocate(GraphProgram::kHalf, kStream);
  ASSERT_TRUE(program_->IsLent(half));
  program_->Free(half);
  Begin();
  const Block dead = program_->Allocate(GraphProgram::kDead, kStream);
  Block own = program_->Allocate(GraphProgram::kHalf - GraphProgram::kHalfInPool, kStream);
  ASSERT_EQ(GraphProgram::AddressOf(own), GraphProgram::AddressOf(half) + GraphProgram::kHalfInPool);
  program_->Free(dead);
  Begin();
  program_->Use(&own);
  EXPECT_EQ(Graphs().surprises, 0u);
  EXPECT_EQ(program_->runtime().Stats().arena_bytes, kHeldWithOwn);
  program_->Free(own);
}

TEST_F(GraphOwnMemoryTest, OwnMemoryGoesBackWithTheCachesAndComesAgain) {
  Start({.own = Own::kAfter});
  Begin();
  program_->Free(program_->Allocate(GraphProgram::kHalf, kStream));
  program_->runtime().EmptyCache();
  EXPECT_EQ(program_->runtime().Stats().arena_bytes, 0u);
  Begin();
  Block half = program_->Allocate(GraphProgram::kHalf, kStream);
  ASSERT_TRUE(program_->IsLent(half));
  EXPECT_EQ(program_->runtime().Stats().arena_bytes, GraphProgram::kOwn);
  program_->runtime().EmptyCache();
  program_->Use(&half);
  EXPECT_EQ(program_->runtime().Stats().arena_bytes, GraphProgram::kOwn) << "a block lies there";
  program_->Free(half);
}

TEST_F(GraphOwnMemoryTest, ASurpriseUnderABlockHalfInThePoolReplacesThePoolsPartAlone) {
  for (const bool poisons : {false, true}) {
    SCOPED_TRACE(poisons);
    const StreamHandle stream = poisons ? kStream : kOther;  // the poisoned pool is not lent around the block: no wait
    Start({.poisons = poisons, .own = Own::kAfter});
    Begin();
    Block half = program_->Allocate(GraphProgram::kHalf, kStream);
    ASSERT_TRUE(program_->IsLent(half));
    EXPECT_EQ(program_->Launch(kA, stream), Verdict::kLaunch);
    EXPECT_EQ(Graphs().surprises, 1u);
    EXPECT_EQ(program_->runtime().Stats().arena_bytes, kHeldWithOwn + GraphProgram::kGranularity);
    program_->Use(&half);  // finds what its kernels wrote
    ASSERT_EQ(program_->Launch(kB, stream), Verdict::kLaunch);
    Begin();
    program_->Use(&half);
    EXPECT_EQ(program_->runtime().Stats().arena_bytes, kHeldWithOwn + GraphProgram::kGranularity);
    program_->Free(half);
    EXPECT_TRUE(program_->pool().Opens());
    program_->pool().Closes();
    Begin();
    Begin();
    EXPECT_EQ(program_->runtime().Stats().arena_bytes, GraphProgram::kArena);
    EXPECT_EQ(Graphs().surprises, 1u);
  }
}

TEST_F(GraphOwnMemoryTest, OwnMemoryGoesWhenThePoolIsTakenBack) {
  Start({.own = Own::kAfter});
  Begin();
  program_->Free(program_->Allocate(GraphProgram::kHalf, kStream));
  EXPECT_EQ(program_->runtime().Stats().arena_bytes, kHeldWithOwn);
  EXPECT_TRUE(program_->pool().Opens());
  EXPECT_EQ(program_->runtime().Stats().arena_bytes, GraphProgram::kArena);
  program_->pool().Closes();
  Begin();
  const Block half = program_->Allocate(GraphProgram::kHalf, kStream);
  EXPECT_TRUE(program_->IsLent(half));
  EXPECT_TRUE(program_->pool().SetUnfollowable("the program has its handle"));
  EXPECT_EQ(program_->runtime().Stats().arena_bytes, kHeldWithOwn + GraphProgram::kGranularity) << "it keeps its own";
  program_->Free(half);
}

TEST_F(GraphOwnMemoryTest, WithoutMemoryForWhatIsOwnTheBlockLiesElsewhere) {
  const Bytes others = GraphProgram::kArena + PoolLayout::kExtentUnit;
  Start({.capacity = others + GraphProgram::kOwn - GraphProgram::kGranularity, .own = Own::kAfter});
  Begin();
  const Block all = program_->Allocate(GraphProgram::kArena, kStream);
  ASSERT_TRUE(program_->runtime().Owns(all.pointer));
  Block half = program_->Allocate(GraphProgram::kHalf, kStream);
  EXPECT_FALSE(program_->IsLent(half));
  EXPECT_EQ(program_->runtime().Stats().arena_bytes, GraphProgram::kArena);
  EXPECT_TRUE(program_->IsLent(program_->Allocate(GraphProgram::kDead, kStream))) << "the pool serves as before";
  program_->Use(&half);
  program_->Free(half);
  program_->Free(all);
}

TEST_F(GraphOwnMemoryTest, WhatTheCycleHasNoUseForMakesWayForOwnMemory) {
  Start({.capacity = GraphProgram::kArena + PoolLayout::kExtentUnit, .own = Own::kAfter});
  Begin();
  Block half = program_->Allocate(GraphProgram::kHalf, kStream);
  EXPECT_TRUE(program_->IsLent(half));
  EXPECT_LE(program_->runtime().Stats().arena_bytes, GraphProgram::kArena);
  program_->Use(&half);
  program_->Free(half);
}

TEST_F(GraphOwnMemoryTest, ALimitCountsWhatIsOwn) {
  Start({.own = Own::kAfter});
  Begin();
  program_->runtime().SetHeldLimit(kHeldWithOwn - 1);
  const Block elsewhere = program_->Allocate(GraphProgram::kHalf, kStream);
  EXPECT_FALSE(program_->IsLent(elsewhere));
  program_->Free(elsewhere);
  program_->runtime().SetHeldLimit(kHeldWithOwn);
  Begin();
  const Block half = program_->Allocate(GraphProgram::kHalf, kStream);
  EXPECT_TRUE(program_->IsLent(half)) << "it is tried anew";
  EXPECT_EQ(program_->runtime().Stats().arena_bytes, kHeldWithOwn);
  program_->Free(half);
}

TEST_F(GraphOwnMemoryTest, ABlockHalfInThePoolSleepsAndWakes) {
  Start({.own = Own::kAfter});
  Begin();
  Block half = program_->Allocate(GraphProgram::kHalf, kStream);
  ASSERT_TRUE(program_->IsLent(half));
  const Result<SleepFigures> slept = program_->runtime().Sleep({});
  ASSERT_TRUE(slept.ok()) << slept.error();
  EXPECT_EQ(program_->runtime().Stats().arena_bytes, 0u);
  const Result<SleepFigures> woken = program_->runtime().Wake(std::nullopt);
  ASSERT_TRUE(woken.ok()) << woken.error();
  program_->Use(&half);  // finds what its kernels wrote
  program_->Free(half);
  Begin();
  Begin();
  const Block again = program_->Allocate(GraphProgram::kHalf, kStream);
  EXPECT_TRUE(program_->IsLent(again));
  program_->Free(again);
}

// The slot would reach over bytes that nothing backs.
TEST_F(GraphOwnMemoryTest, WhereThePoolIsMappedLessFarTheBlockLiesElsewhere) {
  Start({.own = Own::kAfter, .unmapped = GraphProgram::kGranularity});
  Begin();
  Block half = program_->Allocate(GraphProgram::kHalf, kStream);
  EXPECT_FALSE(program_->IsLent(half));
  EXPECT_EQ(program_->runtime().Stats().arena_bytes, GraphProgram::kArena);
  EXPECT_FALSE(program_->IsLent(program_->Allocate(GraphProgram::kDead, kStream)));
  EXPECT_TRUE(program_->IsLent(program_->Allocate(GraphProgram::kCarried, kStream)));
  program_->Free(half);
}

TEST_F(GraphOwnMemoryTest, APoolThatThePlanDoesNotKnowHasNoOwnMemory) {
  Start({.requests_off = 1, .own = Own::kAfter});
  for (int iteration = 0; iteration < 6; ++iteration) {
    Begin();
    const Block half = program_->Allocate(GraphProgram::kHalf, kStream);
    EXPECT_FALSE(program_->IsLent(half));
    program_->Free(half);
  }
  EXPECT_EQ(Graphs().times_lent, 1u);
  EXPECT_EQ(program_->runtime().Stats().arena_bytes, GraphProgram::kArena);
}

// The launch writes the pool's bytes of these addresses, and the block has others.
TEST_F(GraphOwnMemoryTest, OwnMemoryInsteadOfThePoolsIsInNoLaunchsWay) {
  Start({.own = Own::kInstead});
  Begin();
  Block own = program_->Allocate(GraphProgram::kHalf, kStream);
  ASSERT_TRUE(program_->IsLent(own));
  EXPECT_EQ(program_->runtime().Stats().arena_bytes, kHeldWithOwn);
  ASSERT_EQ(program_->Launch(kA, kOther), Verdict::kLaunch);
  ASSERT_EQ(program_->Launch(kB, kOther), Verdict::kLaunch);
  program_->Use(&own);
  EXPECT_EQ(Graphs().surprises, 0u);
  program_->Free(own);
  Block both = program_->Allocate(GraphProgram::kDead, kStream);
  ASSERT_TRUE(program_->IsLent(both));
  EXPECT_EQ(Graphs().lent_bytes, GraphProgram::kDead - GraphProgram::kHalfInPool);
  EXPECT_EQ(program_->Launch(kA, kStream), Verdict::kLaunch);
  EXPECT_EQ(Graphs().surprises, 1u) << "its second part is the pool's";
  program_->Use(&both);
  program_->Free(both);
}

}  // namespace graph_own_memory_test
}  // namespace stalloc
