#include "bench/replay/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/replay/runs.h"
#include "tests/analysis/corpus.h"
#include "tests/analysis/trace_script.h"
#include "tests/replay/run_text.h"
#include "tests/replay/scripted_recording.h"

namespace stalloc::bench {
namespace {

using ::testing::HasSubstr;

std::string Composed(const Recording& recording, const std::vector<std::size_t>& iterations,
                     MarkStyle style = MarkStyle::kRecorded) {
  return TextOf(ComposeRun(recording, Pieces(recording, iterations), style));
}

TEST(RecordingTest, PutTogetherAsRecordedItIsWhatWasRecorded) {
  const Recording recording =
      Cut("+w=4096 I F0 +a=512 +b=700@1 ~a@1 -a -b O I F0 +c=1024 (eval +e=9 -e ) -c I +d=8 -d");
  EXPECT_EQ(Composed(recording, {0, 1, 2}),
            "+0=4096 I0 microbatch +1=512 +2=700@1 ~1@1 -1 -2 optimizer "
            "I1 microbatch +3=1024 (eval +4=9 -4 ) -3 I2 +5=8 -5");
}

TEST(RecordingTest, IterationsCanBeLeftOutAndReordered) {
  const Recording recording = Cut("+w=4096 I +a=100 -a I +b=200 -b I +c=300 -c");
  EXPECT_EQ(Composed(recording, {2, 0}), "+0=4096 I0 +1=300 -1 I1 +2=100 -2");
  EXPECT_EQ(Composed(recording, {}), "+0=4096");
}

TEST(RecordingTest, ABlockThatCrossesIsFreedAtTheSamePlaceOfWhateverFollows) {
  // The loss outlives its iteration, and goes after the next one's first request.
  const Recording recording = Cut("I +a=100 +l=4 -a I +b=200 -l +m=4 -b I +c=300 -m +n=4 -c I +d=400 -n -d");
  EXPECT_EQ(Composed(recording, {0, 2, 1}), "I0 +0=100 +1=4 -0 I1 +2=300 -1 +3=4 -2 I2 +4=200 -3 +5=4 -4");
}

TEST(RecordingTest, WhatTheLastIterationLeavesIsFreedAsWhatTheOneBeforeLeft) {
  const Recording recording = Cut("I +a=100 +l=4 -a I +b=200 -l +m=4 -b I +c=300 -m +n=4 +k=8 -c");
  // As recorded n and k stay. In front of another iteration n goes, and k, which has no example, does not.
  EXPECT_EQ(Composed(recording, {0, 2, 1}), "I0 +0=100 +1=4 -0 I1 +2=300 -1 +3=4 +4=8 -2 I2 +5=200 -3 +6=4 -5");
}

TEST(RecordingTest, FreesAtTheProcessesEndAreNone) {
  const Recording recording = Cut("+w=4096 I +a=100 -a I +b=200 -b I +c=300 -c -w");
  EXPECT_EQ(Composed(recording, {0, 1}), "+0=4096 I0 +1=100 -1 I1 +2=200 -2");
  EXPECT_EQ(Composed(recording, {0, 1, 2}), "+0=4096 I0 +1=100 -1 I1 +2=200 -2 I2 +3=300 -3");
}

TEST(RecordingTest, OnlyTheBusiestDeviceIsKept) {
  const Recording recording = Cut("+w=16 D1 +v=4096 I +a=100 -a -w I +b=200 -b");
  EXPECT_EQ(recording.device, 1);
  EXPECT_EQ(Composed(recording, {0, 1}), "+0=4096 I0 +1=100 -1 I1 +2=200 -2");
}

TEST(RecordingTest, MarksOfAHookLeaveTheFirstIterationToTheSetUp) {
  const Recording recording = Cut("+w=16 I F0 +a=100 -a O I +b=200 -b I +c=300 -c");
  const ComposedRun run = ComposeRun(recording, Pieces(recording, {0, 1}), MarkStyle::kOptimizerStepsOnly);
  EXPECT_EQ(TextOf(run), "+0=16 +1=100 -1 I1? +2=200 -2");
  EXPECT_EQ(run.unmarked, 1u);
  const Trace trace = TraceOf(run, MarkStyle::kOptimizerStepsOnly);
  ASSERT_EQ(trace.events.back().kind, EventKind::kMark);  // behind the last optimizer step
  EXPECT_TRUE(trace.marks[trace.events.back().mark].automatic);
  EXPECT_EQ(TraceOf(run, MarkStyle::kRecorded).events.back().kind, EventKind::kFree);
}

TEST(RecordingTest, MarksThatWereAutomaticAlreadyStay) {
  const Recording recording = Cut("+w=16 +a=100 -a I? +b=200 -b I? +c=300 -c");
  const ComposedRun run = ComposeRun(recording, Pieces(recording, {0, 1}), MarkStyle::kOptimizerStepsOnly);
  EXPECT_EQ(TextOf(run), "+0=16 +1=100 -1 I0? +2=200 -2 I1? +3=300 -3");
  EXPECT_EQ(run.unmarked, 0u);
}

TEST(RecordingTest, PeakIsOfRoundedBytesBetweenSteps) {
  const Recording recording = Cut("+w=1 I +a=1000 +b=1 -a -b I +c=1 -c");
  const ComposedRun run = ComposeRun(recording, Pieces(recording, {0, 1}), MarkStyle::kRecorded);
  EXPECT_EQ(PeakLiveBytes(run, 0, run.steps.size()), 512u + 1024 + 512);
  EXPECT_EQ(PeakLiveBytes(run, run.begin[1], run.end(1)), 512u + 512);
  EXPECT_EQ(PeakLiveBytes(run, 0, run.begin[0]), 512u);
}

TEST(RecordingTest, TooShortOrEmptyTracesAreRefused) {
  const auto status = [](const std::string& script) {
    return std::string(CutRecording(planner::TraceFromScript(script), "script").status().message());
  };
  EXPECT_THAT(status("I I"), HasSubstr("no allocation"));
  EXPECT_THAT(status("+w=1 I +a=1 -a"), HasSubstr("expected at least two iterations, found 1"));
  EXPECT_THAT(std::string(ReadRecording("absent.txt.gz").status().message()), HasSubstr("absent.txt.gz"));
  EXPECT_THAT(std::string(ReadRecording("absent.trace").status().message()), HasSubstr("absent.trace"));
}

TEST(RecordingTest, SyntheticRunsAreRecordingsToo) {
  const Recording recording = ReadRecording("synth/varlen").value();
  EXPECT_EQ(recording.name, "synth/varlen");
  EXPECT_EQ(recording.iterations.size(), 4u);
  EXPECT_THAT(std::string(ReadRecording("synth/absent").status().message()), HasSubstr("absent"));
}

TEST(RecordingTest, ARecordedRunComesBackEventByEvent) {
  const Trace trace = planner::ReadCorpus("gpt_moe16");
  const Recording recording = CutRecording(trace, "moe").value();
  const Trace again =
      TraceOf(ComposeRun(recording, Pieces(recording, {0, 1, 2, 3}), MarkStyle::kRecorded), MarkStyle::kRecorded);
  ASSERT_EQ(again.events.size(), trace.events.size());
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    ASSERT_EQ(again.events[i].kind, trace.events[i].kind) << i;
    ASSERT_EQ(again.events[i].bytes, trace.events[i].bytes) << i;
  }
}

}  // namespace
}  // namespace stalloc::bench
