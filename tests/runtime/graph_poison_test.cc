// STALLOC_GRAPHS=poison: what graphs leave idle is filled, and nothing else; so whoever reads it is found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/runtime/graph_program.h"

namespace stalloc {
namespace graph_poison_test {

using ::testing::HasSubstr;
using ::testing::Not;
using Verdict = GraphProgram::Verdict;
using Block = GraphProgram::Block;
constexpr GraphId kA = GraphProgram::kA;
constexpr GraphId kB = GraphProgram::kB;
constexpr Bytes kDead = GraphProgram::kDead;
constexpr Bytes kCarried = GraphProgram::kCarried;
constexpr Bytes kKept = GraphProgram::kKept;
constexpr StreamHandle kStream = 7;
constexpr StreamHandle kOther = 8;

class GraphPoisonTest : public GraphProgramTest {
 protected:
  void Start(GraphProgram::Options options = {}) {
    options.poisons = true;
    GraphProgramTest::Start(options);
  }
  // Without kernels.
  void LaunchIdly(GraphId graph) {
    ASSERT_EQ(program_->pool().LaunchWith(graph, kStream, /*captured=*/false, [] {}).verdict, Verdict::kLaunch);
  }
  [[nodiscard]] Bytes DeadFilled() { return program_->FilledAt(program_->dead(), kDead); }
  [[nodiscard]] Bytes CarriedFilled() { return program_->FilledAt(program_->carried(), kCarried); }
};

TEST_F(GraphPoisonTest, BehindALaunchIsFilledWhatItLeavesIdle) {
  Start();
  program_->Iteration();
  ASSERT_EQ(program_->Launch(kA, kStream), Verdict::kLaunch);
  EXPECT_EQ(DeadFilled(), kDead);
  EXPECT_LT(CarriedFilled(), kCarried / 64) << "B is to read it";
  ASSERT_EQ(program_->Launch(kB, kStream), Verdict::kLaunch);
  EXPECT_EQ(DeadFilled(), kDead);
  EXPECT_EQ(CarriedFilled(), kCarried) << "B took it";
  EXPECT_LT(program_->FilledAt(program_->kept(), kKept), kKept / 64);
  EXPECT_EQ(Graphs().filled_bytes, 3 * kDead + kCarried) << "once before it was lent";
  EXPECT_THAT(program_->log().text(), HasSubstr("STALLOC_GRAPHS=poison: what graphs leave idle"));
  Begin();
  EXPECT_EQ(Graphs().times_lent, 1u);
}

TEST_F(GraphPoisonTest, BeforeAPoolIsLentIsFilledWhatNoGraphGives) {
  Start();
  program_->Iteration();
  const auto launch = [this] {
    EXPECT_EQ(DeadFilled(), kDead);
    EXPECT_EQ(CarriedFilled(), 0u) << "a launch that was not seen may have given it";
  };
  EXPECT_EQ(program_->pool().LaunchWith(kB, kStream, /*captured=*/false, launch).verdict, Verdict::kLaunch);
  EXPECT_EQ(Graphs().times_lent, 1u);
}

TEST_F(GraphPoisonTest, AlsoWhatIsNotLentIsFilled) {
  Start({.requests_off = 1});
  Begin();
  EXPECT_EQ(Graphs().times_lent, 0u);
  EXPECT_EQ(DeadFilled(), kDead);
  EXPECT_EQ(CarriedFilled(), kCarried);
}

// Without expandable segments a pool's bytes are several allocations of the driver's, which may touch.
TEST_F(GraphPoisonTest, AFillThatTheDriverRefusesAsAWholeIsMadeInParts) {
  Start();
  const Address second = program_->carried();
  program_->device().OnFill(
      [second](Address address, Bytes bytes) { return address >= second || address + bytes <= second; });
  Begin();
  EXPECT_EQ(DeadFilled(), kDead);
  EXPECT_EQ(CarriedFilled(), kCarried);
  EXPECT_THAT(program_->log().text(), Not(HasSubstr("proves nothing")));
}

// A launch that does not need the bytes of a block leaves it alone.
TEST_F(GraphPoisonTest, ABlockInThePoolKeepsItsBytes) {
  Start({.carries = false});
  program_->Iteration();
  LaunchIdly(kA);
  LaunchIdly(kB);
  program_->Free(program_->Allocate(kDead, kStream));
  const Block block = program_->Allocate(kCarried, kStream);
  ASSERT_TRUE(program_->IsLent(block));
  ASSERT_TRUE(program_->device().Synchronize().ok());
  std::memset(block.pointer, 1, kCarried);
  LaunchIdly(kB);
  EXPECT_EQ(DeadFilled(), kDead);
  EXPECT_EQ(CarriedFilled(), 0u);
  program_->Free(block);
  EXPECT_EQ(Graphs().surprises, 0u);
}

TEST_F(GraphPoisonTest, NobodyHasTheBytesBeforeTheyAreFilled) {
  Start();
  Begin();
  int asked = 0;
  program_->device().OnFill([&](Address, Bytes) {
    const Block block = program_->Allocate(kDead, kStream);
    EXPECT_FALSE(program_->IsLent(block));
    program_->Free(block);
    ++asked;
    return true;
  });
  ASSERT_EQ(program_->Launch(kA, kStream), Verdict::kLaunch);
  EXPECT_EQ(asked, 1);
  program_->device().OnFill(nullptr);
  program_->Iteration();
  EXPECT_TRUE(program_->IsLent(program_->Allocate(kDead, kStream)));
}

TEST_F(GraphPoisonTest, ABlockThatHadToLeaveKeepsItsBytes) {
  Start();
  Begin();
  Block dead = program_->Allocate(kDead, kStream);
  ASSERT_TRUE(program_->IsLent(dead));
  ASSERT_EQ(program_->Launch(kA, kOther), Verdict::kLaunch);
  EXPECT_EQ(Graphs().surprises, 1u);
  EXPECT_EQ(DeadFilled(), kDead);
  program_->Use(&dead);
  program_->Free(dead);
}

TEST_F(GraphPoisonTest, ATakerWithoutItsGiverIsRefusedAlsoWhereNobodyWas) {
  Start();
  Begin();
  const LaunchListener::Answer answer = program_->Ask(kB, kStream);
  EXPECT_EQ(answer.verdict, Verdict::kCarriedGone);
  EXPECT_EQ(answer.giver, kA);
  Begin();
}

TEST_F(GraphPoisonTest, APoolThatCannotBeFilledIsNotLent) {
  Start();
  program_->device().OnFill([](Address, Bytes) { return false; });
  Begin();
  EXPECT_EQ(Graphs().times_lent, 0u);
  EXPECT_EQ(Graphs().filled_bytes, 0u);
  EXPECT_THAT(program_->log().text(),
              HasSubstr("graphs of pool 1 leave idle is not filled, and not lent: Fill gave 719"));
  EXPECT_THAT(program_->log().text(), Not(HasSubstr("is filled with 0xff")));
  program_->device().OnFill(nullptr);
  Begin();
  EXPECT_FALSE(program_->IsLent(program_->Allocate(kDead, kStream)));
}

TEST_F(GraphPoisonTest, APoolThatCannotBeFilledAnyMoreIsTakenBack) {
  Start();
  Begin();
  ASSERT_EQ(program_->Launch(kA, kStream), Verdict::kLaunch);
  program_->device().OnFill([](Address, Bytes) { return false; });
  ASSERT_EQ(program_->Launch(kB, kStream), Verdict::kLaunch);
  EXPECT_EQ(Graphs().lent_bytes, 0u);
  program_->device().OnFill(nullptr);
  EXPECT_FALSE(program_->IsLent(program_->Allocate(kDead, kStream)));
  Begin();
  EXPECT_EQ(Graphs().times_lent, 1u) << "for good";
}

// What the mode is for. Without it nothing shows, as no block happens to lie there.
TEST(GraphPoisonFindsTest, AReaderOfADeadBlock) {
  for (const bool poisons : {false, true}) {
    GraphProgram program({.poisons = poisons});
    program.WriteKept(kStream);
    program.Iteration();
    ASSERT_EQ(program.Launch(kA, kStream), Verdict::kLaunch);
    program.ReadDead(kStream);
    ASSERT_TRUE(program.device().Synchronize().ok());
    EXPECT_EQ(program.device().GetFindings().damaged, poisons ? 1u : 0u);
  }
}

// B reads what A seems to have freed.
TEST(GraphPoisonFindsTest, ABlockThatIsTakenForDead) {
  for (const bool poisons : {false, true}) {
    GraphProgram program({.carries = false, .poisons = poisons});
    program.WriteKept(kStream);
    program.Iteration();
    ASSERT_EQ(program.Launch(kA, kStream), Verdict::kLaunch);
    ASSERT_EQ(program.Launch(kB, kStream), Verdict::kLaunch);
    ASSERT_TRUE(program.device().Synchronize().ok());
    EXPECT_EQ(program.device().GetFindings().damaged, poisons ? 1u : 0u);
  }
}

}  // namespace graph_poison_test
}  // namespace stalloc
