#include "planner/facts/layer_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/analysis/trace_script.h"

namespace stalloc::planner {
namespace {

using testing::ElementsAre;

void AddMark(Trace* trace, MarkKind kind, MarkEdge edge, const std::string& name = "") {
  Mark mark;
  mark.kind = kind;
  mark.edge = edge;
  mark.name = name;
  mark.pass = Pass::kForward;
  TraceEvent event;
  event.kind = EventKind::kMark;
  event.mark = static_cast<std::uint32_t>(trace->marks.size());
  trace->marks.push_back(mark);
  trace->events.push_back(event);
}

LayerMap MapOf(const Trace& trace) { return {CutAtMarks(trace), trace.marks}; }

TEST(LayerMapTest, NamesTheInnermostLayer) {
  Trace trace;
  AddMark(&trace, MarkKind::kIteration, MarkEdge::kBegin);       // 0
  AddMark(&trace, MarkKind::kLayer, MarkEdge::kBegin, "a");      // 1
  AddMark(&trace, MarkKind::kLayer, MarkEdge::kBegin, "a.mlp");  // 2
  AddMark(&trace, MarkKind::kLayer, MarkEdge::kEnd, "a.mlp");    // 3
  AddMark(&trace, MarkKind::kLayer, MarkEdge::kEnd, "a");        // 4
  const LayerMap map = MapOf(trace);
  EXPECT_THAT(map.names(), ElementsAre("", "a", "a.mlp"));
  std::vector<std::uint32_t> at;
  for (std::uint64_t event = 0; event < trace.events.size(); ++event) at.push_back(map.At(event));
  EXPECT_THAT(at, ElementsAre(0, 1, 2, 1, 0));
}

TEST(LayerMapTest, AnEndClosesWhatBeganInside) {
  Trace trace;
  AddMark(&trace, MarkKind::kLayer, MarkEdge::kBegin, "a");
  AddMark(&trace, MarkKind::kLayer, MarkEdge::kBegin, "b");
  AddMark(&trace, MarkKind::kLayer, MarkEdge::kEnd, "a");
  AddMark(&trace, MarkKind::kLayer, MarkEdge::kEnd, "b");  // closed already
  const LayerMap map = MapOf(trace);
  EXPECT_EQ(map.At(2), 0u);
  std::vector<bool> begins;
  for (const LayerEdge& edge : map.edges()) begins.push_back(edge.begin);
  EXPECT_THAT(begins, ElementsAre(true, true, false, false));
}

TEST(LayerMapTest, ALayerWithoutAnEndEndsWithItsPass) {
  Trace trace;
  AddMark(&trace, MarkKind::kIteration, MarkEdge::kBegin);
  AddMark(&trace, MarkKind::kLayer, MarkEdge::kBegin, "a");
  AddMark(&trace, MarkKind::kMicrobatch, MarkEdge::kBegin);
  AddMark(&trace, MarkKind::kLayer, MarkEdge::kBegin, "b");
  AddMark(&trace, MarkKind::kIteration, MarkEdge::kBegin);
  const LayerMap map = MapOf(trace);
  EXPECT_EQ(map.names()[map.At(1)], "a");
  EXPECT_EQ(map.names()[map.At(2)], "");
  EXPECT_EQ(map.names()[map.At(3)], "b");
  EXPECT_EQ(map.names()[map.At(4)], "");
}

}  // namespace
}  // namespace stalloc::planner
