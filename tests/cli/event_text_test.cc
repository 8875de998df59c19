#include "planner/cli/event_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace stalloc::planner {
namespace {

using testing::HasSubstr;

absl::StatusOr<Trace> Read(const std::string& lines) {
  std::istringstream in("stalloc-events 1\n" + lines);
  return ReadEventText(in);
}

TEST(EventTextTest, ReadsEveryKindOfLine) {
  const Trace trace = Read(
                          "= device_name NVIDIA H200\n= rank 3\n"
                          "a 70 1000 0 77 105\nm iteration begin - 0 4 106\na 9 2000 -1 0 107\nr 70 78 108\nf 70 109\n"
                          "a 70 512 0 78 110\nh 0 4096 111\nm layer end B 1 2 112 the mlp\n")
                          .value();
  EXPECT_EQ(trace.fingerprint.device_name, "NVIDIA H200");
  EXPECT_EQ(trace.fingerprint.rank, 3u);
  ASSERT_EQ(trace.events.size(), 8u);
  EXPECT_EQ(trace.allocations, 3u);
  EXPECT_TRUE(trace.complete);
  const TraceEvent alloc{.kind = EventKind::kAlloc, .device = 0, .allocation = 0, .bytes = 1000};
  EXPECT_EQ(trace.events[0], alloc);
  EXPECT_EQ(trace.events[2].device, kCpuDevice);
  EXPECT_EQ(trace.events[3].kind, EventKind::kRecordStream);
  EXPECT_EQ(trace.streams[trace.events[3].stream].handle, 78u);
  EXPECT_EQ(trace.events[4].allocation, 0u);
  EXPECT_EQ(trace.events[5].allocation, 2u) << "an id may be used again";
  EXPECT_EQ(trace.events[6].bytes, 4096u);
  EXPECT_EQ(trace.events[6].time_ns, 6);
  const Mark layer{.kind = MarkKind::kLayer,
                   .edge = MarkEdge::kEnd,
                   .pass = Pass::kBackward,
                   .chunk = 1,
                   .index = 2,
                   .name = "the mlp"};
  EXPECT_EQ(trace.marks.back(), layer);
  EXPECT_EQ(trace.marks.front().index, 4);
}

TEST(EventTextTest, AStreamIsOneOfItsDevice) {
  const Trace trace = Read("a 1 1 0 5 0\na 2 1 1 5 0\na 3 1 0 5 0\n").value();
  ASSERT_EQ(trace.streams.size(), 2u);
  EXPECT_EQ(trace.events[0].stream, trace.events[2].stream);
  EXPECT_EQ(trace.streams[trace.events[1].stream].device, 1);
}

TEST(EventTextTest, NamesLineExpectationAndValue) {
  const std::vector<std::pair<std::string, std::string>> wrong{
      {"x 1\n", "line 2: expected =, a, c, f, r, h, m, n, p or t, found 'x'"},
      {"a 1 1 0 0 0\na 1 1 0 0 0\n", "line 3: expected an id that no live block has, found '1'"},
      {"f 1 0\n", "line 2: expected the id of a live block, found '1'"},
      {"a 1 many 0 0 0\n", "line 2: expected bytes, found 'many'"},
      {"a 1 1 0 0\n", "line 2: expected a time, found ''"},
      {"a 1 1 0 0 0 0 0\n", "line 2: expected the end of the line, found '0'"},
      {"m tea begin - 0 0 0\n", "line 2: expected a kind of mark, found 'tea'"},
      {"m layer middle - 0 0 0\n", "line 2: expected begin or end, found 'middle'"},
      {"m layer begin X 0 0 0\n", "line 2: expected a pass, found 'X'"},
      {"= colour red\n", "line 2: expected a key of the fingerprint, found 'colour'"},
      {"a 1 1 0 0 0\nn 2 0 - 0\n", "line 3: expected the id of a live block, found '2'"},
      {"a 1 1 0 0 0\nn 1 0 weight 0\n",
       "line 3: expected parameter, gradient, optimizer_state, buffer, input or -, found"},
      {"a 1 1 0 0 0\nn 1 0 - 0\n", "line 3: expected the number of a text, found '0'"},
      {"t x\na 1 1 0 0 0\nn 1 0 - 0 0\n", "line 4: expected the end of the line, found '0'"},
      {"a 1 1 0 0 0\np 2 1 0\n", "line 3: expected the id of a live block, found '2'"},
      {"a 1 1 0 0 0\np 1 0 0\n", "line 3: expected a pool from 1 to 16777215, found '0'"},
      {"a 1 1 0 0 0\np 1 1\n", "line 3: expected an address, found ''"},
      {"a 1 1 0 0 0\np 1 1 4 4\n", "line 3: expected the end of the line, found '4'"},
      {"= rank many\n", "line 2: expected a number, found 'many'"},
  };
  for (const auto& [lines, told] : wrong) {
    const auto trace = Read(lines);
    ASSERT_FALSE(trace.ok()) << lines;
    EXPECT_THAT(std::string(trace.status().message()), HasSubstr(told));
  }
  std::istringstream other("something else\n");
  EXPECT_THAT(std::string(ReadEventText(other).status().message()),
              HasSubstr("line 1: expected 'stalloc-events 1', found 'something else'"));
}

TEST(EventTextTest, BlocksOfGraphsPoolsHaveAddresses) {
  const Trace trace = Read("a 70 1000 0 0 1\np 70 3 4096\nf 70 2\na 70 1000 0 0 3\n").value();
  EXPECT_EQ(trace.events[0].flags & kAllocCaptured, kAllocCaptured);
  EXPECT_EQ(PoolPlusOne(trace.events[0].flags), 3u);
  EXPECT_EQ(trace.events[0].address, 4096u);
  EXPECT_EQ(trace.events[2].flags, 0u);
}

TEST(EventTextTest, TensorsLieInTheBlockThatIsLive) {
  const Trace trace = Read(
                          "t a weight\nt its moment\na 70 1000 0 0 1\nn 70 0 parameter 0\nf 70 2\na 70 2000 0 0 3\n"
                          "n 70 512 optimizer_state 1\n")
                          .value();
  const NamedTensor weight{.allocation = 0, .offset = 0, .bytes = 0, .name = 0, .role = TensorRole::kParameter};
  const NamedTensor moment{.allocation = 1, .offset = 512, .bytes = 0, .name = 1, .role = TensorRole::kOptimizerState};
  EXPECT_THAT(trace.tensors, testing::ElementsAre(weight, moment));
}

}  // namespace
}  // namespace stalloc::planner
