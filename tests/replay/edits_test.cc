#include "bench/replay/edits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "bench/replay/runs.h"
#include "tests/replay/run_text.h"
#include "tests/replay/scripted_recording.h"

namespace stalloc::bench {
namespace {

using ::testing::HasSubstr;

std::string Written(const Recording& recording, const std::vector<std::size_t>& iterations) {
  return TextOf(ComposeRun(recording, Pieces(recording, iterations), MarkStyle::kRecorded));
}

TEST(EditsTest, TheCommonTailGoesAndTheStateThatItSetsUpStays) {
  Recording recording =
      Cut("I +a=4096 +x=10000 -x +t=512 +state=8192 -t -a "
          "I +b=4096 +y=20000 -y +u=512 -u -b "
          "I +c=4096 +z=30000 -z +v=512 -v -c");
  ASSERT_TRUE(CutCommonTail(&recording).ok());
  EXPECT_EQ(Written(recording, {0, 1, 2}),
            "I0 +0=4096 +1=10000 -1 +2=8192 -0 I1 +3=4096 +4=20000 -4 -3 I2 +5=4096 +6=30000 -6 -5");
}

TEST(EditsTest, IterationsThatEndOtherwiseHaveNoTail) {
  Recording recording = Cut("I +a=512 -a I +b=1024 -b I +c=2048 -c");
  EXPECT_THAT(std::string(CutCommonTail(&recording).message()), HasSubstr("no tail to cut"));
}

TEST(EditsTest, AnEvaluationBehindAnIterationIsFenced) {
  const std::string iteration = "+a=1 -a +b=2 -b +c=3 -c +d=4 -d +e=5 -e +f=6 -f +g=7 -g +h=8 -h ";
  Recording recording = Cut("I " + iteration + "I " + iteration + "+a=1 -a +b=2 -b +c=3 -c +d=4 -d +e=9 -e");
  FenceEvaluations(&recording);
  EXPECT_THAT(Written(recording, {1}), HasSubstr("+7=8 -7 (eval +8=1 -8 +9=2 -9 +10=3 -10 +11=4 -11 +12=9 -12 )"));
  EXPECT_THAT(Written(recording, {0}), ::testing::Not(HasSubstr("eval")));
}

TEST(EditsTest, TheRecordedEvaluationIsFoundWhereItBegins) {
  const char* const root = std::getenv("STALLOC_SOURCE_DIR");
  const std::string path = std::string(root == nullptr ? "." : root) + "/bench/corpus/megatron_moe_ep2_rank0.txt.gz";
  const Recording recording = ReadRecording(path).value();
  std::vector<std::size_t> fenced_after;
  for (const Piece& piece : recording.iterations) {
    std::size_t requests = 0;
    for (const Step& step : piece.steps) {
      if (step.kind == StepKind::kAllocate) ++requests;
      if (step.kind == StepKind::kMark && recording.marks[step.index].edge == MarkEdge::kBegin) {
        fenced_after.push_back(requests);
      }
    }
  }
  // The iterations before have 14095 and 14081 requests; only the last one is followed by an evaluation.
  EXPECT_THAT(fenced_after, ::testing::ElementsAre(14097u));
}

// Each block is allocated once, freed at most once, and not before; requests are numbered in order.
void ExpectWellFormed(const Piece& piece) {
  std::vector<int> state(piece.blocks.size());
  std::uint32_t next = 0;
  for (const Step& step : piece.steps) {
    if (step.kind == StepKind::kMark) continue;
    ASSERT_LT(step.index, piece.blocks.size());
    if (step.kind == StepKind::kAllocate) {
      EXPECT_EQ(step.index, next++);
      EXPECT_EQ(state[step.index]++, 0);
    } else {
      EXPECT_EQ(state[step.index], 1);
      if (step.kind == StepKind::kFree) ++state[step.index];
    }
  }
  EXPECT_EQ(next, piece.blocks.size());
  for (const LateFree& late : piece.late_frees) EXPECT_EQ(state[late.block], 1);
}

Piece LongPiece() {
  std::string script = "I +first=1 -first I +keep=77 O ";
  for (int i = 0; i < 200; ++i) {
    script += "+a=" + std::to_string(512 * (i + 1)) + " +b=100000 ~a@1 -b -a ";
  }
  return Cut(script + "I -keep +last=1 -last").iterations[1];
}

TEST(EditsTest, InsertedAndDroppedRequestsLeaveAPieceWellFormed) {
  const Piece original = LongPiece();
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    Piece piece = original;
    InsertAndDrop(&piece, 0.1, seed);
    ExpectWellFormed(piece);
    // A block may be drawn twice to be dropped, none twice to be inserted.
    EXPECT_GE(piece.blocks.size(), original.blocks.size());
    EXPECT_LE(piece.blocks.size(), original.blocks.size() + 10);
    EXPECT_EQ(piece.late_frees.size(), 1u);
    const auto marks = std::count_if(piece.steps.begin(), piece.steps.end(),
                                     [](const Step& step) { return step.kind == StepKind::kMark; });
    EXPECT_EQ(marks, 1);
    const auto differ =
        std::mismatch(piece.blocks.begin(), piece.blocks.end(), original.blocks.begin(), original.blocks.end(),
                      [](const Block& a, const Block& b) { return a.requested == b.requested; });
    EXPECT_NE(differ.first, piece.blocks.end());
  }
}

TEST(EditsTest, EditsAreTheSameForTheSameSeed) {
  const auto sizes = [](std::uint64_t seed) {
    Piece piece = LongPiece();
    InsertAndDrop(&piece, 0.05, seed);
    std::vector<Bytes> result;
    for (const Block& block : piece.blocks) result.push_back(block.requested);
    return result;
  };
  EXPECT_EQ(sizes(7), sizes(7));
  EXPECT_NE(sizes(7), sizes(8));
}

TEST(EditsTest, ScaledRequestsAreThatManyTimesAsLarge) {
  Recording recording = Cut("+w=100 I +a=1 -a I +b=600 -b");
  Scale(&recording, 3);
  EXPECT_EQ(Written(recording, {0, 1}), "+0=300 I0 +1=3 -1 I1 +2=1800 -2");
}

// Requests before each block's free; the number of all of them if it is not freed.
std::vector<std::size_t> FreedBefore(const Piece& piece) {
  std::vector<std::size_t> freed(piece.blocks.size(), piece.blocks.size());
  std::size_t requests = 0;
  for (const Step& step : piece.steps) {
    if (step.kind == StepKind::kAllocate) ++requests;
    if (step.kind == StepKind::kFree) freed[step.index] = requests;
  }
  return freed;
}

TEST(EditsTest, AShareOfFreesComesLaterByUpToSoManyRequests) {
  const Piece original = LongPiece();
  const std::vector<std::size_t> before = FreedBefore(original);
  std::vector<std::size_t> last;
  for (const std::uint64_t seed : {1u, 1u, 2u}) {
    Piece piece = original;
    DelayFrees(&piece, 0.2, 5, seed);
    ExpectWellFormed(piece);
    EXPECT_EQ(piece.steps.size(), original.steps.size());
    const std::vector<std::size_t> after = FreedBefore(piece);
    std::size_t late = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      EXPECT_GE(after[i], before[i]);
      EXPECT_LE(after[i], before[i] + 5);
      late += after[i] > before[i] ? 1 : 0;
    }
    EXPECT_GT(late, 40u);  // of 400
    EXPECT_LT(late, 120u);
    EXPECT_EQ(after == last, seed == 1 && !last.empty());
    last = after;
  }
}

TEST(EditsTest, NoShareIsNoEdit) {
  Piece piece = LongPiece();
  const std::size_t steps = piece.steps.size();
  InsertAndDrop(&piece, 0, 1);
  EXPECT_EQ(piece.steps.size(), steps);
  DelayFrees(&piece, 0, 64, 1);
  EXPECT_EQ(FreedBefore(piece), FreedBefore(LongPiece()));
}

}  // namespace
}  // namespace stalloc::bench
