#include "planner/cli/trace_text.h"

#include <gtest/gtest.h>

#include "tests/analysis/trace_script.h"

namespace stalloc::planner {
namespace {

std::string Print(const Trace& trace, TraceTextWriter::Format format) {
  TraceTextWriter writer(format);
  std::string text;
  for (const TraceEvent& event : trace.events) text += writer.Line(event, trace.marks);
  return text;
}

TEST(TraceTextTest, PrintsInTheWordsOfThePublishedTool) {
  const Trace trace = TraceFromScript("INIT +w=100 I F0 L:mlp +a=512@1 ~a@0 -a B0 O? (eval ) H=77 D1 +b=9 E");
  EXPECT_EQ(Print(trace, TraceTextWriter::Format::kText),
            "Init : start\n"
            "1 0 100 0\n"
            "Iteration Index : 0\n"
            "micro-batch : F chunk 0 index 0\n"
            "mlp Layer : F-start\n"
            "1 1 512 1\n"
            "2 1 512 0\n"
            "0 1 512 1\n"
            "micro-batch : B chunk 0 index 0\n"
            "Optimizer : start (automatic)\n"
            "Fence eval : start\n"
            "Fence  : end\n"
            "3 0 77\n"
            "# device 1\n"
            "1 2 9 0\n"
            "Iteration End : 0\n");
}

TEST(TraceTextTest, MarksOfEveryPassHaveAName) {
  Mark mark{.kind = MarkKind::kLayer, .edge = MarkEdge::kEnd, .pass = Pass::kBackward, .name = "attn"};
  EXPECT_EQ(MarkText(mark), "attn Layer : B-end");
  mark = {.kind = MarkKind::kMicrobatch, .pass = Pass::kWeight, .chunk = 3, .index = 9, .name = ""};
  EXPECT_EQ(MarkText(mark), "micro-batch : W chunk 3 index 9");
  mark.edge = MarkEdge::kEnd;
  EXPECT_EQ(MarkText(mark), "micro-batch : W-end chunk 3 index 9");
}

TEST(TraceTextTest, JsonHasOneObjectALine) {
  const Trace trace = TraceFromScript("I +a=512! -a");
  EXPECT_EQ(Print(trace, TraceTextWriter::Format::kJson),
            "{\"time_ns\": 0, \"thread\": 0, \"event\": \"mark\", \"kind\": \"iteration\", \"edge\": \"begin\", "
            "\"pass\": \"-\", "
            "\"chunk\": 0, \"index\": 0, \"name\": \"\", \"automatic\": false}\n"
            "{\"time_ns\": 1000, \"thread\": 0, \"event\": \"alloc\", \"id\": 0, \"device\": 0, \"bytes\": 512, "
            "\"stream\": 0, "
            "\"captured\": true}\n"
            "{\"time_ns\": 2000, \"thread\": 0, \"event\": \"free\", \"id\": 0, \"device\": 0, \"bytes\": 512, "
            "\"stream\": 0}\n");
}

}  // namespace
}  // namespace stalloc::planner
