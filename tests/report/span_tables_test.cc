#include "planner/report/span_tables.h"

#include <gtest/gtest.h>

#include <numeric>

#include "planner/analysis/peak.h"
#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

TEST(SpanTablesTest, PhasesAgreeWithTheAnalysis) {
  const ScriptFacts facts("+w=4096 " + Repeat("I F0 +a=1024 +t=512 -t B0 +g=2048 -a O -g (eval +e=9000 -e ) ", 3));
  const auto rows = TabulatePhases(*facts);
  const auto reports = SummarizePhases(facts->device, facts->phases);
  ASSERT_EQ(rows.size(), reports.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].begin_live, reports[i].begin_live_bytes) << reports[i].name;
    EXPECT_EQ(std::accumulate(rows[i].begin_by_class.begin(), rows[i].begin_by_class.end(), Bytes{0}),
              rows[i].begin_live);
    EXPECT_EQ(rows[i].peak_live, reports[i].peak_live_bytes) << reports[i].name;
    if (i + 1 < rows.size()) {
      EXPECT_EQ(rows[i].end_live, rows[i + 1].begin_live);
    }
  }
}

TEST(SpanTablesTest, ASpikeIsAboveBothEnds) {
  const ScriptFacts facts("+w=4096 " + Repeat("I F0 +a=1024 +t=512 -t B0 -a ", 3));
  const auto rows = TabulatePhases(*facts);
  std::size_t forward = 0;
  while (facts->roles[facts->role_of[forward]] != "F 0") ++forward;
  EXPECT_EQ(rows[forward].spike(), 512u);
  EXPECT_EQ(rows[forward].end_live - rows[forward].begin_live, 1024u);
  EXPECT_EQ(rows[forward].requests, 2u);
  EXPECT_EQ(rows[forward].requested, 1536u);
}

TEST(SpanTablesTest, LayersCountWhatIsInsideThem) {
  // Without ends: "a" lasts until the backward pass, "b" inside it.
  const ScriptFacts facts("+w=4096 " + Repeat("I F0 L:a +a=1024 L:b +t=2048 -t B0 -a ", 3));
  const auto rows = TabulateLayers(*facts);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(facts->layers.names()[rows[0].name], "a");
  EXPECT_EQ(rows[0].visits, 3u);
  EXPECT_EQ(rows[0].most_rise, 3072u);
  EXPECT_EQ(rows[0].most_net, 1024);
  EXPECT_EQ(rows[0].most_spike, 2048u);
  EXPECT_EQ(rows[0].peak_live, 4096u + 3072u);
  EXPECT_EQ(rows[0].requests, 6u);
  EXPECT_EQ(rows[1].most_rise, 2048u);
  EXPECT_EQ(rows[1].most_net, 0);
  EXPECT_EQ(rows[1].requests, 3u);
}

TEST(SpanTablesTest, ALayersPeakIsKnownByClass) {
  const ScriptFacts facts("+w=4096 " + Repeat("I F0 L:a +a=1024 L:b +t=2048 -t B0 -a ", 3));
  const auto rows = TabulateLayers(*facts);
  ASSERT_EQ(rows.size(), 2u);
  const auto of = [](const LayerRow& row, MemoryClass memory_class) {
    return row.peak_by_class[static_cast<std::size_t>(memory_class)];
  };
  for (const LayerRow& row : rows) {  // the peak of "a" is inside "b"
    EXPECT_EQ(of(row, MemoryClass::kWeights), 4096u);
    EXPECT_EQ(of(row, MemoryClass::kActivations), 1024u);
    EXPECT_EQ(of(row, MemoryClass::kTemporaries), 2048u);
    EXPECT_EQ(std::accumulate(row.peak_by_class.begin(), row.peak_by_class.end(), Bytes{0}), row.peak_live);
  }
}

}  // namespace
}  // namespace stalloc::planner
