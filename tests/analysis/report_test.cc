#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "planner/analysis/rank_planner.h"
#include "planner/report/json_writer.h"
#include "planner/report/quantities.h"
#include "planner/report/rank_text.h"
#include "planner/report/run_summary.h"
#include "planner/report/text_table.h"
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
  EXPECT_THAT(text, HasSubstr("held when traced: 16.0 KiB, E 43.75 %"));
  EXPECT_THAT(text, HasSubstr("arena:            7.0 KiB"));
  EXPECT_THAT(text, HasSubstr("ratio:            1.00000"));
  EXPECT_THAT(text, HasSubstr("iteration 1"));
  EXPECT_THAT(text, HasSubstr("no micro-batch marks"));
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
