#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "planner/analysis/rank_planner.h"
#include "planner/report/json_writer.h"
#include "planner/report/quantities.h"
#include "planner/report/rank_json.h"
#include "planner/report/rank_text.h"
#include "planner/report/run_summary.h"
#include "planner/report/text_table.h"
#include "planner/report/wrap_text.h"
#include "tests/analysis/trace_script.h"

namespace stalloc::planner {
namespace {

using testing::HasSubstr;

TEST(QuantitiesTest, BytesHaveTheLargestUnitThatFits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(Bytes{96} << 20), "96.0 MiB");
  EXPECT_EQ(FormatBytes(37503263232), "34.93 GiB");
  EXPECT_EQ(FormatShare(0.9987), "99.87 %");
  EXPECT_EQ(FormatShare(0), "-");
}

TEST(TextTableTest, AlignsTheFirstColumnLeftAndTheOthersRight) {
  TextTable table({"rank", "bytes"});
  table.AddRow({"0", "9 B"});
  table.AddRow({"100", "12345 B"});
  EXPECT_EQ(table.Render(),
            "rank    bytes\n"
            "-------------\n"
            "0         9 B\n"
            "100   12345 B\n");
}

TEST(JsonWriterTest, WritesNestedValuesOnOneLine) {
  JsonWriter json(JsonWriter::Style::kLine);
  json.BeginObject().Key("a").BeginArray().Value(1).Value(-2).Value(true).Null().EndArray().Key("b").BeginObject();
  json.EndObject().EndObject();
  EXPECT_EQ(json.Take(), "{\"a\": [1, -2, true, null], \"b\": {}}\n");
}

TEST(JsonWriterTest, IndentsByTwo) {
  JsonWriter json;
  json.BeginObject().Key("a").BeginArray().Value(0.5).EndArray().Key("e").BeginArray().EndArray().EndObject();
  EXPECT_EQ(json.Take(), "{\n  \"a\": [\n    0.5\n  ],\n  \"e\": []\n}\n");
}

TEST(JsonWriterTest, EscapesWhatJsonCannotHold) {
  JsonWriter json(JsonWriter::Style::kLine);
  json.BeginArray()
      .Value("q\"b\\n\n\x01")
      .Value("\xff-\xc3\xa4")
      .Value(std::numeric_limits<double>::infinity())
      .EndArray();
  EXPECT_EQ(json.Take(), "[\"q\\\"b\\\\n\\u000a\\u0001\", \"\\ufffd-\xc3\xa4\", null]\n");
}

RankReport ReportOf(const std::string& script) {
  const auto solver = MakePortfolio();
  return PlanRank(TraceFromScript(script), {}, *solver).value().report;
}

TEST(RankTextTest, SaysWhatPeopleAskFor) {
  const std::string text = RankText(ReportOf("+w=4096 H=16384 " + Repeat("I +a=1024 +b=2048 -a -b", 3)));
  EXPECT_THAT(text, HasSubstr("theoretical peak: 7.0 KiB live, in iteration 0 at request 1"));
  EXPECT_THAT(text, testing::ContainsRegex("when traced +16.0 KiB +43.75 %"));
  EXPECT_THAT(text, HasSubstr("arena:            7.0 KiB"));
  EXPECT_THAT(text, HasSubstr("packing:          optimal"));
  EXPECT_THAT(text, HasSubstr("iteration 1"));
  EXPECT_THAT(text, HasSubstr("no micro-batch marks"));
}

TEST(RankTextTest, SaysWhatCapturedGraphsNeed) {
  const RankReport report =
      ReportOf("+w=4096 H=16384 I C0 +a=4096!1 -a C0- +b=2048 R0 -b I +b=2048 R0 -b I +b=2048 R0 -b");
  const std::string text = RankText(report);
  EXPECT_THAT(text,
              HasSubstr("captured graphs: the device needs 10.0 KiB at most, of which PyTorch counts 6.0 KiB as live"));
  EXPECT_THAT(text, HasSubstr("E of the device when traced: 62.50 %"));
  const std::string json = RankJson(report);
  EXPECT_THAT(json, HasSubstr("\"needed_bytes\": 10240"));
  EXPECT_THAT(json, HasSubstr("\"dead_bytes\": 4096"));
  EXPECT_THAT(RankJson(ReportOf("+w=4096 I +a=512 -a I +a=512 -a")), HasSubstr("\"graphs\": null"));
}

TEST(RankTextTest, SaysWhatPoolsServeBetweenLaunches) {
  const RankReport report = ReportOf("+w=4194304 C0 +d=8388608!1^0 -d C0- " + Repeat("I R0 +t=6291456 -t", 4));
  EXPECT_THAT(RankText(report),
              HasSubstr("  of their pools 6.0 MiB serve eager requests between launches (1 request)\n"));
  EXPECT_THAT(RankJson(report), HasSubstr("\"lent_bytes\": 6291456"));
  EXPECT_THAT(RankJson(report), HasSubstr("\"lent_requests\": 1"));
}

TEST(RankTextTest, WithoutAPlanSaysWhatNoneCanBeBetterThan) {
  // 4 MiB and 4 KiB live at the peak; a device maps whole units of 2 MiB.
  const std::string script = "+w=4096 " + Repeat("I +a=1048576 +b=3145728 -a -b", 3);
  const auto solver = MakePortfolio();
  const DeviceReport planned = PlanRank(TraceFromScript(script), {}, *solver).value().report.devices[0];
  ASSERT_TRUE(planned.packing.has_value());
  EXPECT_FALSE(planned.forecast.has_value());
  RankPlannerOptions analysis_only;
  analysis_only.plan = false;
  const RankReport report = PlanRank(TraceFromScript(script), analysis_only, *solver).value().report;
  const DeviceReport& device = report.devices[0];
  EXPECT_FALSE(device.packing.has_value());
  ASSERT_TRUE(device.forecast.has_value());
  EXPECT_EQ(device.forecast->arena_bytes, planned.packing->arena_bytes);
  EXPECT_EQ(device.forecast->held_bytes, planned.packing->held_bytes);
  EXPECT_THAT(RankText(report), HasSubstr("arena:            at least 4.0 MiB\n"));
  EXPECT_THAT(RankText(report), testing::ContainsRegex("with a plan, at best +6.0 MiB +66.7"));
  EXPECT_THAT(RankJson(report), HasSubstr("\"arena_lower_bound_bytes\": 4198400"));
}

TEST(RankTextTest, SaysOptimalOnlyAtTheProvedBound) {
  RankReport report = ReportOf(Repeat("I +a=1024 +b=2048 -a -b", 3));
  PackingReport& packing = *report.devices[0].packing;
  EXPECT_TRUE(packing.optimal());
  EXPECT_THAT(RankText(report), HasSubstr("packing:          optimal\n"));
  packing.arena_bytes = packing.lower_bound_bytes + 512;
  EXPECT_FALSE(packing.optimal());
  EXPECT_THAT(RankText(report), HasSubstr("packing:          within 512 B (17 %) of the bound 3.0 KiB\n"));
}

TEST(RankTextTest, FitsIntoAHundredColumns) {
  Trace trace = TraceFromScript("INIT +w=4096 " + Repeat("I F0 +a=1024 +b=2048 -a B0 -b (eval +e=9 -e ) O", 30));
  trace.fingerprint.command_line = std::vector<std::string>(20, "--some-argument");
  for (Mark& mark : trace.marks) {
    mark.index += 1000;
    mark.chunk = 3;
  }
  const auto solver = MakePortfolio();
  const std::string text = RankText(PlanRank(trace, {}, *solver).value().report);
  EXPECT_THAT(text, HasSubstr("iter 1000, F 1000 chunk 3"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), kReportWidth) << line;
  }
}

TEST(RankJsonTest, HasWhatTheTextHasAndMore) {
  const std::string json = RankJson(ReportOf("+w=4096 " + Repeat("I F0 +a=1024 B0 -a +b=2048 O -b", 3)));
  for (const char* key :
       {"by_class", "gradients", "optimizer state", "by_phase", "largest_blocks", "life_requests", "simulated",
        "expandable_segments_bytes", "phases", "begin_live_bytes", "optimal", "lower_bound_bytes", "stability"}) {
    EXPECT_THAT(json, HasSubstr(absl::StrCat("\"", key, "\": "))) << key;
  }
}

TEST(WrapTextTest, BreaksAtBlanksAndKeepsLongWords) {
  EXPECT_EQ(WrapText("a b"), "a b\n");
  const std::string word(60, 'x');
  EXPECT_EQ(WrapText(word + " " + word), word + "\n  " + word + "\n");
  const std::string longer(120, 'y');
  EXPECT_EQ(WrapText("a " + longer + " b"), "a\n  " + longer + "\n  b\n");
}

TEST(RunSummaryTest, AFailedRankIsOneRowAndDoesNotHideTheOthers) {
  std::vector<RankOutcome> outcomes(2);
  outcomes[0].report = ReportOf(Repeat("I +a=1024 +b=2048 -a -b", 3));
  outcomes[1].rank = 1;
  outcomes[1].error = "no \"luck\"";
  const std::string table = SummaryTable(outcomes);
  EXPECT_THAT(table, HasSubstr("1.0000"));
  EXPECT_THAT(table, HasSubstr("failed"));
  const std::string json = SummaryJson(outcomes);
  EXPECT_THAT(json, HasSubstr("\"error\": \"no \\\"luck\\\"\""));
  EXPECT_THAT(json, HasSubstr("\"arena_bytes\": 3072"));
  EXPECT_THAT(json, HasSubstr("\"ok\": false"));
}

}  // namespace
}  // namespace stalloc::planner
