// Graphs' pools that serve eager blocks between launches: on real bytes at two addresses, with kernels that run later.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <thread>

#include "tests/runtime/graph_program.h"

namespace stalloc {
namespace graph_lending_test {

using Own = GraphProgram::Own;
using Verdict = GraphProgram::Verdict;
using Block = GraphProgram::Block;
constexpr GraphId kA = GraphProgram::kA;
constexpr GraphId kB = GraphProgram::kB;
constexpr StreamHandle kStream = 7;
constexpr StreamHandle kOther = 8;

class GraphLendingTest : public GraphProgramTest {};

TEST_F(GraphLendingTest, EagerBlocksLieInThePoolBetweenLaunches) {
  Start();
  Begin();
  const Block dead = program_->Allocate(GraphProgram::kDead, kStream);
  const Block carried = program_->Allocate(GraphProgram::kCarried, kStream);
  EXPECT_TRUE(program_->IsLent(dead));
  EXPECT_TRUE(program_->IsLent(carried));
  EXPECT_EQ(Graphs().hits, 2u);
  EXPECT_EQ(program_->runtime().Stats().arena_bytes, GraphProgram::kArena) << "nothing more is held";
  ASSERT_TRUE(program_->device().Synchronize().ok());
  EXPECT_EQ(*static_cast<const std::uint64_t*>(dead.pointer), dead.key);
  EXPECT_EQ(*reinterpret_cast<const std::uint64_t*>(program_->address()), dead.key) << "one memory, two addresses";
  program_->Free(dead);
  program_->Free(carried);
  Begin();
  EXPECT_EQ(Graphs().surprises, 0u);
  EXPECT_EQ(Graphs().times_lent, 1u);
}

// All is captured that the plan has: what is carried to a launch is free, too.
TEST_F(GraphLendingTest, BeforeItsFirstLaunchAPoolServesSlots) {
  Start();
  program_->Iteration();
  Block dead = program_->Allocate(GraphProgram::kDead, kStream);
  Block carried = program_->Allocate(GraphProgram::kCarried, kStream);
  EXPECT_TRUE(program_->IsLent(dead));
  EXPECT_TRUE(program_->IsLent(carried));
  program_->Use(&dead);
  program_->Use(&carried);
  program_->Free(dead);
  program_->Free(carried);
  Begin(kOther);
  EXPECT_EQ(Graphs().surprises, 0u);
  EXPECT_EQ(Graphs().times_lent, 1u);
}

TEST_F(GraphLendingTest, ABlockInTheFirstLaunchsWayGetsMemoryOfItsOwn) {
  Start();
  program_->Iteration();
  Block dead = program_->Allocate(GraphProgram::kDead, kStream);
  ASSERT_TRUE(program_->IsLent(dead));
  EXPECT_EQ(program_->Launch(kA, kOther), Verdict::kLaunch);
  EXPECT_EQ(Graphs().surprises, 1u);
  program_->Use(&dead);
  program_->Free(dead);
}

TEST_F(GraphLendingTest, BeforeItsFirstLaunchAPoolServesTheThreadThatCaptured) {
  Start();
  program_->Iteration();
  std::thread other([this] {
    EXPECT_FALSE(program_->IsLent(program_->Allocate(GraphProgram::kDead, kStream))) << "a launch may come meanwhile";
  });
  other.join();
}

// Kernels of the thread that captured may come to its block at any time: another thread's first launch waits.
TEST_F(GraphLendingTest, AnotherThreadsFirstLaunchWaitsForBlocksBeforeIt) {
  Start();
  program_->Iteration();
  Block dead = program_->Allocate(GraphProgram::kDead, kStream);
  ASSERT_TRUE(program_->IsLent(dead));
  std::atomic<bool> freed{false};
  std::thread launcher([&] {
    EXPECT_EQ(program_->Launch(kA, kOther), Verdict::kLaunch);
    EXPECT_TRUE(freed);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  program_->Use(&dead);
  freed = true;
  program_->Free(dead);
  launcher.join();
  EXPECT_EQ(Graphs().surprises, 0u);
  program_->Iteration();
  EXPECT_FALSE(program_->IsLent(program_->Allocate(GraphProgram::kDead, kStream))) << "this thread launches nothing";
}

TEST_F(GraphLendingTest, AnotherThreadsFirstLaunchOverABlockThatStaysIsAnError) {
  Start();
  program_->Iteration();
  Block dead = program_->Allocate(GraphProgram::kDead, kStream);
  ASSERT_TRUE(program_->IsLent(dead));
  std::thread launcher([&] { EXPECT_EQ(program_->Launch(kA, kOther), Verdict::kNotOrdered); });
  launcher.join();
  program_->Use(&dead);
  program_->Free(dead);
  EXPECT_EQ(program_->Launch(kA, kOther), Verdict::kLaunch);
}

// What may be captured yet, and what is to be filled first, waits for a launch.
TEST_F(GraphLendingTest, OnlyThePlansWholePoolServesBeforeItsFirstLaunch) {
  for (const GraphProgram::Options& options : {GraphProgram::Options{.requests_off = 1}, {.poisons = true}}) {
    Start(options);
    program_->Iteration();
    EXPECT_FALSE(program_->IsLent(program_->Allocate(GraphProgram::kDead, kStream)));
    EXPECT_EQ(Graphs().times_lent, 0u);
  }
}

// The second of the layout's pieces comes first, and is lent at that offset.
TEST_F(GraphLendingTest, PiecesLieInTheOrderOfThePlan) {
  Start({.gathers = true});
  Begin();
  const Block dead = program_->Allocate(GraphProgram::kDead, kStream);
  const Arena& arena = *program_->runtime().arena();
  EXPECT_EQ(GraphProgram::AddressOf(dead), arena.base() + arena.borrow_begin());
  EXPECT_EQ(Graphs().hits, 1u);
  ASSERT_TRUE(program_->device().Synchronize().ok());
  EXPECT_EQ(*reinterpret_cast<const std::uint64_t*>(program_->dead()), dead.key) << "one memory, two addresses";
  program_->Free(dead);
  Begin();
  EXPECT_EQ(Graphs().surprises, 0u);
}

TEST_F(GraphLendingTest, APoolOfOtherRequestsIsNotThePlans) {
  Start({.requests_off = 1});
  Begin();
  EXPECT_FALSE(program_->IsLent(program_->Allocate(GraphProgram::kDead, kStream)));
  EXPECT_EQ(Graphs().times_lent, 0u);
}

// Captures that free in another order have blocks elsewhere.
TEST_F(GraphLendingTest, InAnotherLayoutSlotsAreTriedUntilABlockWasInTheWay) {
  Start({.layout_off = 1});
  Begin();
  const Block dead = program_->Allocate(GraphProgram::kDead, kStream);
  EXPECT_TRUE(program_->IsLent(dead));
  EXPECT_EQ(program_->Launch(kA, kStream), Verdict::kLaunch);
  EXPECT_EQ(Graphs().surprises, 1u);
  program_->Free(dead);
  for (int iteration = 0; iteration < 4; ++iteration) {
    Begin();
    const Block carried = program_->Allocate(GraphProgram::kCarried, kStream);
    EXPECT_FALSE(program_->IsLent(carried));
    program_->Free(carried);
  }
}

// Once it has shown what lives at its launches.
TEST_F(GraphLendingTest, APoolThatThePlanDoesNotKnowServesWhatHasNoRoom) {
  Start({.requests_off = 1});
  const Block filler = program_->Allocate(GraphProgram::kArena, kStream);
  ASSERT_FALSE(program_->IsLent(filler));
  for (int iteration = 0; iteration < 4; ++iteration) Begin();
  EXPECT_EQ(Graphs().times_lent, 1u);
  Block block = program_->Allocate(2048 * kBlockAlignment, kStream);
  EXPECT_TRUE(program_->IsLent(block));
  program_->Use(&block);
  program_->Free(block);
  Begin();
  EXPECT_EQ(program_->runtime().Stats().arena_bytes, GraphProgram::kArena);
}

TEST_F(GraphLendingTest, WhatIsCarriedIsNotLentMeanwhile) {
  Start();
  Begin();
  program_->Iteration();
  ASSERT_EQ(program_->Launch(kA, kStream), Verdict::kLaunch);
  const Block dead = program_->Allocate(GraphProgram::kDead, kStream);
  const Block carried = program_->Allocate(GraphProgram::kCarried, kStream);
  EXPECT_TRUE(program_->IsLent(dead));
  EXPECT_FALSE(program_->IsLent(carried));
  program_->Free(dead);
  ASSERT_EQ(program_->Launch(kB, kStream), Verdict::kLaunch);
  program_->Free(carried);
}

// A block that is still there gets memory of its own, with its bytes; the graph has the pool's.
TEST_F(GraphLendingTest, ASurpriseCostsMemory) {
  Start();
  Begin();
  Block dead = program_->Allocate(GraphProgram::kDead, kStream);
  ASSERT_TRUE(program_->IsLent(dead));
  EXPECT_EQ(program_->Launch(kA, kOther), Verdict::kLaunch);
  EXPECT_EQ(Graphs().surprises, 1u);
  EXPECT_EQ(program_->runtime().Stats().arena_bytes, GraphProgram::kArena + GraphProgram::kPool);
  program_->Use(&dead);  // finds what its kernels wrote
  program_->Free(dead);
  ASSERT_EQ(program_->Launch(kB, kOther), Verdict::kLaunch);
  Begin();
  EXPECT_FALSE(program_->IsLent(program_->Allocate(GraphProgram::kDead, kStream))) << "its size stays too long";
  EXPECT_TRUE(program_->IsLent(program_->Allocate(GraphProgram::kCarried, kStream)));
}

// What has no slot lies in the pool rather than that the arena grows, and so it does again after a surprise: up to the
// third one.
TEST_F(GraphLendingTest, WhatHasNoRoomInTheArenaLiesInThePool) {
  Start();
  const Block filler = program_->Allocate(GraphProgram::kArena, kStream);
  ASSERT_FALSE(program_->IsLent(filler));
  for (std::uint64_t surprise = 0; surprise < 3; ++surprise) {
    Begin();
    Begin();
    Begin();
    const Bytes bytes = (2048 + surprise) * kBlockAlignment;
    Block block = program_->Allocate(bytes, kStream);
    ASSERT_TRUE(program_->IsLent(block)) << surprise;
    EXPECT_EQ(program_->runtime().Stats().arena_bytes, GraphProgram::kArena);
    program_->Free(block);
    block = program_->Allocate(bytes, kStream);
    ASSERT_TRUE(program_->IsLent(block)) << surprise;
    EXPECT_EQ(program_->Launch(kA, kOther), Verdict::kLaunch);
    EXPECT_EQ(Graphs().surprises, surprise + 1);
    program_->Use(&block);
    program_->Free(block);
    ASSERT_EQ(program_->Launch(kB, kOther), Verdict::kLaunch);
  }
  Begin();
  Begin();
  EXPECT_FALSE(program_->IsLent(program_->Allocate(3000 * kBlockAlignment, kStream))) << "no more";
}

// It lies in memory of its own, amid the pool's addresses, and stays: the rest is lent again.
TEST_F(GraphLendingTest, ThePoolIsLentAgainAroundABlockThatWasInTheWay) {
  Start();
  const Block filler = program_->Allocate(GraphProgram::kArena, kStream);
  ASSERT_FALSE(program_->IsLent(filler));
  Begin();
  Begin();
  Block stays = program_->Allocate(2048 * kBlockAlignment, kStream);
  ASSERT_TRUE(program_->IsLent(stays));
  ASSERT_EQ(program_->Launch(kA, kOther), Verdict::kLaunch);
  EXPECT_EQ(Graphs().surprises, 1u);
  const Bytes held = program_->runtime().Stats().arena_bytes;
  ASSERT_EQ(program_->Launch(kB, kOther), Verdict::kLaunch);
  Begin();
  EXPECT_EQ(Graphs().times_lent, 2u);
  Begin();
  Block other = program_->Allocate(2100 * kBlockAlignment, kStream);
  EXPECT_TRUE(program_->IsLent(other));
  EXPECT_EQ(program_->runtime().Stats().arena_bytes, held);
  program_->Use(&stays);  // finds what its kernels wrote
  program_->Use(&other);
  program_->Free(other);
  Begin();
  EXPECT_EQ(Graphs().surprises, 1u);
  program_->Use(&stays);
  program_->Free(stays);
}

// Blocks of that size have been seen to live at a launch, elsewhere.
TEST_F(GraphLendingTest, WhatLivesAtALaunchStaysOutOfThePool) {
  Start();
  Begin();
  const Block early = program_->Allocate(2048 * kBlockAlignment, kStream);
  EXPECT_FALSE(program_->IsLent(early));
  Begin();
  const Block filler = program_->Allocate(GraphProgram::kArena - 2048 * kBlockAlignment, kStream);
  ASSERT_FALSE(program_->IsLent(filler));
  EXPECT_FALSE(program_->IsLent(program_->Allocate(2048 * kBlockAlignment, kStream)));
  EXPECT_EQ(Graphs().surprises, 0u);
}

TEST_F(GraphLendingTest, ASurpriseWithoutMemoryIsAnErrorBeforeTheLaunch) {
  Start({.capacity = GraphProgram::kArena + GraphProgram::kPool});
  Begin();
  Block dead = program_->Allocate(GraphProgram::kDead, kStream);
  ASSERT_TRUE(program_->IsLent(dead));
  Block large = program_->Allocate(GraphProgram::kArena, kStream);  // all that the arena has
  EXPECT_EQ(program_->Launch(kA, kStream), Verdict::kOutOfMemory);
  program_->Use(&dead);
  program_->Free(large);
  EXPECT_EQ(program_->Launch(kA, kStream), Verdict::kLaunch) << "what the arena has idle serves";
  program_->Use(&dead);
  program_->Free(dead);
}

TEST_F(GraphLendingTest, AGraphWhoseCarriedBytesAreGoneIsNotLaunched) {
  Start();
  Begin();
  program_->Free(program_->Allocate(GraphProgram::kDead, kStream));
  program_->Free(program_->Allocate(GraphProgram::kCarried, kStream));
  const LaunchListener::Answer answer = program_->Ask(kB, kStream);
  EXPECT_EQ(answer.verdict, Verdict::kCarriedGone);
  EXPECT_EQ(answer.giver, kA);
  EXPECT_EQ(program_->Launch(kA, kStream), Verdict::kLaunch);
  EXPECT_EQ(program_->Launch(kB, kStream), Verdict::kLaunch);
  EXPECT_EQ(program_->Launch(kB, kStream), Verdict::kLaunch) << "nobody was there";
}

// The launch's stream cannot wait: the host does, and takes the pool back.
TEST_F(GraphLendingTest, AWaitThatCannotBeGivenIsTheHosts) {
  Start({.habits = {.refuses = 1}});
  Begin();
  program_->Free(program_->Allocate(GraphProgram::kDead, kStream));
  EXPECT_EQ(program_->Launch(kA, kOther), Verdict::kLaunch);
  EXPECT_EQ(Graphs().surprises, 0u);
  EXPECT_EQ(Graphs().lent_bytes, 0u);
}

// A capture, or a warm-up in the pool, may write all of it.
TEST_F(GraphLendingTest, OpeningThePoolTakesItBack) {
  Start();
  Begin();
  Block dead = program_->Allocate(GraphProgram::kDead, kStream);
  ASSERT_TRUE(program_->IsLent(dead));
  EXPECT_TRUE(program_->pool().Opens());
  EXPECT_EQ(Graphs().lent_bytes, 0u);
  program_->device().Launch(kOther, {.address = program_->address(), .bytes = GraphProgram::kDead, .writes = 1});
  program_->Use(&dead);
  program_->Free(dead);
  program_->pool().Closes();
  EXPECT_EQ(Graphs().lent_bytes, 0u) << "it was launched: what it gave may be needed yet";
  Begin();
  EXPECT_TRUE(program_->IsLent(program_->Allocate(GraphProgram::kDead, kStream))) << "nothing was captured";
  EXPECT_EQ(Graphs().surprises, 0u);
}

// A plan is taken up while a block lies in the pool: no block of the new arena's is put over it.
TEST_F(GraphLendingTest, ThePoolIsLentByOneArenaAtATime) {
  Start();
  Begin();
  Block before = program_->Allocate(GraphProgram::kDead, kStream);
  ASSERT_TRUE(program_->IsLent(before));
  ASSERT_EQ(program_->runtime().TakePlan(program_->plan(), 0), "");
  Begin();
  Block behind = program_->Allocate(GraphProgram::kDead, kStream);
  EXPECT_TRUE(program_->IsLent(behind)) << "the new arena has its own addresses for it";
  program_->Use(&before);
  program_->Use(&behind);
  program_->Free(before);
  program_->Free(behind);
  Begin();
  EXPECT_EQ(Graphs().surprises, 0u);
}

TEST_F(GraphLendingTest, ThePoolsMemoryMayGo) {
  Start();
  Begin();
  Block dead = program_->Allocate(GraphProgram::kDead, kStream);
  ASSERT_TRUE(program_->IsLent(dead));
  program_->pool().Left();
  program_->LeavePool();
  program_->Use(&dead);
  program_->Free(dead);
}

TEST_F(GraphLendingTest, LaunchesThatAreNotSeenEndIt) {
  Start();
  Begin();
  Block dead = program_->Allocate(GraphProgram::kDead, kStream);
  ASSERT_TRUE(program_->IsLent(dead));
  EXPECT_TRUE(program_->pool().SetUnfollowable("the program has its handle"));
  program_->device().Launch(kOther, {.address = program_->address(), .bytes = GraphProgram::kDead, .writes = 1});
  program_->Use(&dead);
  program_->Free(dead);
}

// Memory that another process is to map is the block's own.
TEST_F(GraphLendingTest, ASharedBlockLeavesThePool) {
  Start();
  Begin();
  Block dead = program_->Allocate(GraphProgram::kDead, kStream);
  ASSERT_TRUE(program_->IsLent(dead));
  const Result<ExportedBlock> exported = program_->runtime().Export(dead.pointer);
  ASSERT_TRUE(exported.ok()) << exported.error();
  EXPECT_EQ(Graphs().lent_bytes, 0u);
  program_->Use(&dead);
  program_->Free(dead);
}

// Random programs ---------------------------------------------------------------------------------------------------

struct Outcome {
  QueuedDevice::Findings findings;
  RuntimeStats::Graphs graphs;
  std::uint64_t refused = 0;
  std::uint64_t launches = 0;
};

// Launches and requests in any order, on either stream; another thread asks and frees meanwhile.
Outcome RunRandomly(const GraphProgram::Options& options) {
  Outcome outcome;
  GraphProgram program(options);
  std::mt19937_64 random(options.seed);
  const auto stream = [&] { return random() % 4 == 0 ? kOther : kStream; };
  std::atomic<bool> stop{false};
  std::thread meddler([&] {
    std::mt19937_64 chance(options.seed + 1);
    while (!stop) {
      void* const block = program.runtime().Allocate(GraphProgram::kDead, 9, Origin::kParallel);
      if (chance() % 8 == 0) program.runtime().EmptyCache();
      (void)program.runtime().Stats();
      program.runtime().Free(block, 9);
      std::this_thread::yield();
    }
  });
  program.WriteKept(kStream);
  program.device().OrderBehind(kOther, kStream);
  program.Iteration();
  const Block filler = program.Allocate(GraphProgram::kArena - GraphProgram::kGranularity, kStream);
  const auto launch = [&](GraphId graph) {
    // Launches of one pool are in order: so says PyTorch, whatever the streams.
    const StreamHandle at = stream();
    program.device().OrderBehind(at, at == kStream ? kOther : kStream);
    const Verdict verdict = program.Launch(graph, at);
    ++(verdict == Verdict::kLaunch ? outcome.launches : outcome.refused);
    return verdict;
  };
  std::vector<Block> staying;
  if (random() % 2 != 0) {  // before anything is launched
    Block early = program.Allocate(random() % 2 != 0 ? GraphProgram::kDead : GraphProgram::kCarried, stream());
    program.Use(&early);
    if (random() % 4 != 0) {
      program.Free(early);
    } else {
      staying.push_back(early);
    }
  }
  for (int iteration = 0; iteration < 60 && program.device().GetFindings().count() == 0; ++iteration) {
    program.Iteration();
    const auto odd = random() % 12;
    if (odd != 0) launch(kA);
    if (odd != 1) launch(kB);
    if (odd == 2) launch(kB);
    std::vector<Block> blocks;
    const StreamHandle eager = stream();
    for (const Bytes bytes : {GraphProgram::kHalf, GraphProgram::kDead, GraphProgram::kCarried}) {
      if (bytes == GraphProgram::kHalf && options.own == Own::kNone) continue;
      if (random() % 8 != 0) blocks.push_back(program.Allocate(bytes, eager));
    }
    // Without a slot, and of a size that was seldom there before.
    if (random() % 2 != 0) blocks.push_back(program.Allocate((2048 + random() % 256) * kBlockAlignment, eager));
    if (odd == 3) launch(kA);           // a surprise
    if (odd == 5 && !blocks.empty()) {  // stays, in the way of the next launch
      staying.push_back(blocks.back());
      blocks.pop_back();
    }
    for (Block& block : staying) program.Use(&block);
    if (odd == 6 && !staying.empty()) {
      program.Free(staying.back());
      staying.pop_back();
    }
    for (Block& block : blocks) {
      program.Use(&block);
      program.Free(block);
    }
    if (odd == 4 && program.pool().Opens()) program.pool().Closes();
  }
  stop = true;
  meddler.join();
  for (const Block& block : staying) program.Free(block);
  program.Free(filler);
  outcome.graphs = program.runtime().Stats().graphs;
  EXPECT_TRUE(program.device().Synchronize().ok());
  outcome.findings = program.device().GetFindings();
  return outcome;
}

TEST(GraphLendingProgramsTest, NoByteIsWrong) {
  Outcome sum;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Outcome outcome = RunRandomly({.seed = seed,
                                         .habits = {.refuses = seed % 5 == 0 ? 0.1 : 0},
                                         .poisons = seed % 4 == 0,
                                         .own = static_cast<Own>(seed % 3),
                                         .gathers = seed % 3 == 0 && seed % 2 == 0});
    ASSERT_EQ(outcome.findings.count(), 0u) << "seed " << seed << ": " << outcome.findings.first;
    sum.graphs.hits += outcome.graphs.hits;
    sum.graphs.surprises += outcome.graphs.surprises;
    sum.graphs.times_lent += outcome.graphs.times_lent;
    sum.refused += outcome.refused;
    sum.launches += outcome.launches;
  }
  std::printf("%llu launches, %llu refused; %llu requests in the pool, lent %llu times, %llu surprises\n",
              static_cast<unsigned long long>(sum.launches), static_cast<unsigned long long>(sum.refused),
              static_cast<unsigned long long>(sum.graphs.hits), static_cast<unsigned long long>(sum.graphs.times_lent),
              static_cast<unsigned long long>(sum.graphs.surprises));
  EXPECT_GT(sum.graphs.hits, 100u);
  EXPECT_GT(sum.graphs.surprises, 0u);
  EXPECT_GT(sum.graphs.times_lent, 40u);
  EXPECT_GT(sum.refused, 0u);
}

// The check itself: what is taken for dead and is carried is found, and so are waits that do nothing.
TEST(GraphLendingProgramsTest, AMistakeIsFound) {
  const auto found = [](GraphProgram::Options options) {
    for (options.seed = 1; options.seed < 1000; ++options.seed) {  // a busy host leaves little to find
      if (RunRandomly(options).findings.count() > 0) return true;
    }
    return false;
  };
  EXPECT_TRUE(found({.carries = false}));
  EXPECT_TRUE(found({.habits = {.waits_do_nothing = true}}));
  EXPECT_TRUE(found({.habits = {.never_synchronizes = true}}));
}

}  // namespace graph_lending_test
}  // namespace stalloc
