#include "planner/packing/pipeline/room_trails.h"

#include <gtest/gtest.h>

namespace stalloc::planner {
namespace {

// Groups of `stages` micro-batches go forward through one chunk after the other and backward in reverse; in each round
// one pass comes and one goes, from when `in_flight` passes are alive.
std::vector<std::uint32_t> InterleavedChains(std::uint32_t stages, std::uint32_t chunks, std::uint32_t in_flight,
                                             std::uint32_t rounds) {
  const std::uint32_t group = stages * chunks;
  const auto round_of = [&](std::uint32_t pass) {
    const std::uint32_t chunk = pass % group / stages;
    return pass / group * group + (chunks - 1 - chunk) * stages + pass % stages;
  };
  std::vector<std::uint32_t> chain_of_round(rounds + 4 * group);
  for (std::uint32_t pass = 0; pass < in_flight; ++pass) chain_of_round[round_of(pass)] = pass;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const std::uint32_t later = round_of(round + in_flight);
    if (later < chain_of_round.size()) chain_of_round[later] = chain_of_round[round];
  }
  chain_of_round.resize(rounds);
  return chain_of_round;
}

TrailProblem Interleaved(std::uint32_t rounds) {
  return {.chains = 19,
          .pass = 68,
          .room = 7,
          .critical = 1,
          .odd_tensors = 4,
          .odd_critical = 1,
          .chain_of_round = InterleavedChains(4, 4, 19, rounds)};
}

// Plays the rounds again: each round's room lies beside the critical piece of what it frees.
void ExpectServed(const TrailProblem& problem, const Trails& trails) {
  ASSERT_EQ(trails.moves.size(), problem.chain_of_round.size());
  std::vector<std::uint32_t> of_chain(problem.chains + 1, 0);
  std::vector<std::uint32_t> length;
  for (std::size_t i = 0; i < trails.segments.size(); ++i) {
    const TrailSegment& segment = trails.segments[i];
    of_chain[segment.chain] += segment.length;
    length.push_back(segment.length);
    if (segment.right != kNoSegment) {
      EXPECT_EQ(trails.segments[segment.right].left, i);
    }
  }
  for (std::uint32_t chain = 0; chain < problem.chains; ++chain) EXPECT_LE(of_chain[chain], problem.pass);
  EXPECT_EQ(of_chain[problem.chains], problem.room);
  std::uint32_t before = problem.chains;
  for (std::size_t round = 0; round < trails.moves.size(); ++round) {
    const auto [from, to] = trails.moves[round];
    ASSERT_EQ(trails.segments[from].chain, before) << "round " << round;
    before = problem.chain_of_round[round];
    ASSERT_EQ(trails.segments[to].chain, before) << "round " << round;
    ASSERT_TRUE(trails.segments[from].left == to || trails.segments[from].right == to) << "round " << round;
    ASSERT_GE(length[from], problem.room) << "round " << round;
    ASSERT_GE(length[to], problem.critical) << "round " << round;
    length[from] -= problem.room;
    length[to] += problem.room;
    std::uint32_t odd = 0;
    for (std::size_t i = 0; i < length.size(); ++i) {
      if (trails.segments[i].chain == trails.segments[from].chain) odd += length[i] & 1;
    }
    ASSERT_LE(odd, problem.odd_tensors) << "round " << round;
  }
}

TEST(RoomTrailsTest, ServesEveryRoundOfShortAndLongRuns) {
  for (const std::uint32_t rounds : {8u, 126u, 1102u}) {
    SCOPED_TRACE(rounds);
    const TrailProblem problem = Interleaved(rounds);
    const std::optional<Trails> trails = FindTrails(problem, {.effort = 2'000'000}, 1);
    ASSERT_TRUE(trails.has_value());
    ExpectServed(problem, *trails);
  }
}

TEST(RoomTrailsTest, TheSameForTheSameSeed) {
  const TrailProblem problem = Interleaved(700);
  const std::optional<Trails> a = FindTrails(problem, {.effort = 2'000'000}, 7);
  const std::optional<Trails> b = FindTrails(problem, {.effort = 2'000'000}, 7);
  ASSERT_TRUE(a && b);
  ASSERT_EQ(a->segments.size(), b->segments.size());
  for (std::size_t i = 0; i < a->moves.size(); ++i) {
    ASSERT_EQ(a->moves[i].from, b->moves[i].from);
    ASSERT_EQ(a->moves[i].to, b->moves[i].to);
  }
}

TEST(RoomTrailsTest, GivesUpWherePassesAreSmallerThanTheRoom) {
  TrailProblem problem = Interleaved(126);
  problem.pass = 6;
  EXPECT_FALSE(FindTrails(problem, {.effort = 100'000}, 1).has_value());
}

TEST(RoomTrailsTest, KeepsWhatIsLateBesideACriticalPieceWhereTheRoomHasLeft) {
  TrailProblem problem = Interleaved(100);
  problem.late = 12;
  const std::optional<Trails> trails = FindTrails(problem, {.effort = 2'000'000}, 1);
  ASSERT_TRUE(trails.has_value());
  ExpectServed(problem, *trails);
  std::vector<std::uint32_t> length;
  for (const TrailSegment& segment : trails->segments) length.push_back(segment.length);
  for (std::size_t round = 0; round < trails->moves.size(); ++round) {
    const auto [from, to] = trails->moves[round];
    length[from] -= problem.room;
    length[to] += problem.room;
    // The first round's room is nobody's.
    if (round == 0) continue;
    ASSERT_GE(length[from], problem.late + problem.critical) << "round " << round;
  }
}

TEST(RoomTrailsTest, EndsWithItsBudget) {
  TrailProblem problem = Interleaved(126);
  problem.pass = 6;
  Budget budget(10'000'000, nullptr);
  EXPECT_FALSE(FindTrails(problem, {.effort = 1'000'000'000'000, .budget = &budget}, 1).has_value());
  EXPECT_TRUE(budget.IsOver());
  EXPECT_LT(budget.spent(), 11'000'000u);
}

}  // namespace
}  // namespace stalloc::planner
