// What the program says of input that it cannot use, and that nothing is lost or half written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "proto/codec/frame.h"
#include "proto/codec/trace_writer.h"
#include "tests/analysis/trace_script.h"
#include "tests/cli/plannable_trace.h"
#include "tests/cli/planner_process.h"

namespace stalloc::planner {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(PlannerBadInputTest, AMissingDirectoryOrTraceSaysWhatToDo) {
  const RunFolder folder;
  ProcessResult result = folder.Run({"plan", folder.Path("nowhere")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("nowhere/trace"), HasSubstr("STALLOC_MODE=Trace")));
  std::filesystem::create_directories(folder.Path("trace"));
  result = folder.Run({"plan", folder.path()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("no trace in"));
}

TEST(PlannerBadInputTest, ABadRankDoesNotLoseTheOthers) {
  const RunFolder folder(MakeTrace());
  folder.WriteTrace(2, MakeTrace());
  folder.WriteFile("trace/rank00001.trace", "this is no trace at all, is it?");
  const ProcessResult result = folder.RunTo(1, {"plan", folder.path()});
  EXPECT_THAT(result.err, AllOf(HasSubstr("rank 1: error"), HasSubstr("expected a stalloc trace")));
  EXPECT_THAT(result.out, HasSubstr("failed"));
  EXPECT_TRUE(folder.Exists("output/plan/rank00000.plan"));
  EXPECT_TRUE(folder.Exists("output/plan/rank00002.plan"));
  EXPECT_FALSE(folder.Exists("output/plan/rank00001.plan"));
}

TEST(PlannerBadInputTest, EachBadTraceIsAnErrorAndLeavesNoPlan) {
  const std::string good = EncodeTrace(MakeTrace());
  std::string corrupt = good;
  corrupt[corrupt.size() / 2] = static_cast<char>(corrupt[corrupt.size() / 2] ^ 0x55);  // its one chunk
  const std::vector<std::string> bad{"", good.substr(0, 4), good.substr(0, 12), corrupt, std::string(1000, 'x')};
  for (const std::string& bytes : bad) {
    const RunFolder folder;
    folder.WriteFile("trace/rank00000.trace", bytes);
    const ProcessResult result = folder.RunTo(1, {"plan", folder.path()});
    EXPECT_THAT(result.err, HasSubstr("rank00000.trace"));
    EXPECT_FALSE(folder.Exists("output/plan/rank00000.plan"));
    EXPECT_NE(folder.Run({"dump", folder.Path("trace/rank00000.trace")}).exit_code, 2);
  }
}

TEST(PlannerBadInputTest, ATraceOfAnUnknownVersionIsRefusedByItsNumber) {
  const RunFolder folder;
  std::string bytes(kTraceMagic);
  const std::size_t frame = BeginFrame(&bytes);
  bytes += {0x08, 0x63};  // TraceChunk.format_version = 99
  FinishFrame(frame, &bytes);
  folder.WriteFile("trace/rank00000.trace", bytes);
  for (const char* command : {"plan", "dump"}) {
    const std::string target = command == std::string("plan") ? folder.path() : folder.Path("trace/rank00000.trace");
    const ProcessResult result = folder.RunTo(1, {command, target});
    EXPECT_THAT(result.err, HasSubstr("version 99")) << command;
  }
  EXPECT_FALSE(folder.Exists("output/plan/rank00000.plan"));
}

TEST(PlannerBadInputTest, ATraceWithoutIterationsSaysWhatToDo) {
  const RunFolder folder(TraceFromScript("+a=4096 -a"));
  const ProcessResult result = folder.RunTo(1, {"plan", folder.path()});
  EXPECT_THAT(result.err, HasSubstr("stalloc.iteration()"));
  EXPECT_FALSE(folder.Exists("output/plan/rank00000.plan"));
  EXPECT_TRUE(folder.Exists("output/trace_analysis/rank00000.txt"));
}

TEST(PlannerBadInputTest, WithoutIterationsNothingIsFitted) {
  const RunFolder folder(TraceFromScript("+a=4096 -a"));
  EXPECT_THAT(folder.Ask(0, {R"({"request": "search", "memory": 1000000})"}),
              AllOf(HasSubstr("rank00000.trace: no iteration is marked"), HasSubstr("micro-batch")));
}

TEST(PlannerBadInputTest, AFailureLeavesTheEarlierPlanAndSaysSo) {
  const RunFolder folder(MakeTrace());
  ASSERT_EQ(folder.Run({"plan", folder.path()}).exit_code, 0);
  const std::string before = folder.ReadFile("output/plan/rank00000.plan");
  folder.WriteTrace(0, TraceFromScript("+a=4096 -a"));
  const ProcessResult result = folder.RunTo(1, {"plan", folder.path()});
  EXPECT_THAT(result.err, HasSubstr("the plan of an earlier run stays"));
  EXPECT_EQ(folder.ReadFile("output/plan/rank00000.plan"), before);
}

TEST(PlannerBadInputTest, ATruncatedTraceIsPlannedFromItsValidPart) {
  const RunFolder folder(TraceFromScript("+w=4096 " + Repeat("I F0 +a=1024 +b=2048 -a +c=1024 -b -c", 20)));
  const std::string whole = folder.ReadFile("trace/rank00000.trace");
  folder.WriteFile("trace/rank00000.trace", whole.substr(0, whole.size() * 3 / 4));
  const ProcessResult result = folder.RunTo(0, {"plan", folder.path()});
  EXPECT_THAT(result.err, AllOf(HasSubstr("warning: the trace was not ended in order"),
                                HasSubstr("Figures are of these events alone: the run's peak is at least as high")));
  EXPECT_TRUE(folder.Exists("output/plan/rank00000.plan"));
}

TEST(PlannerBadInputTest, AnotherRanksTraceIsRefused) {
  const RunFolder folder;
  folder.WriteTrace(5, MakeTrace());
  std::filesystem::rename(folder.Path("trace/rank00005.trace"), folder.Path("trace/rank00000.trace"));
  const ProcessResult result = folder.RunTo(1, {"plan", folder.path()});
  EXPECT_THAT(result.err, HasSubstr("trace of another rank: expected 0, found 5"));
}

TEST(PlannerBadInputTest, AnUnwritableOutputIsAnErrorThatNamesIt) {
  const RunFolder folder(MakeTrace());
  folder.WriteFile("output", "a file where the directory should be");
  const ProcessResult result = folder.RunTo(1, {"plan", folder.path()});
  EXPECT_THAT(result.err, HasSubstr("output"));
  EXPECT_THAT(folder.Files(), ElementsAre("output", "trace/rank00000.trace"));
}

}  // namespace
}  // namespace stalloc::planner
