// The program as users meet it: exit codes, what goes to which stream, and that nothing is left half written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "proto/codec/plan_reader.h"
#include "tests/analysis/trace_script.h"
#include "tests/cli/plannable_trace.h"
#include "tests/cli/planner_process.h"

namespace stalloc::planner {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(PlannerTest, HelpAndVersionGoToStandardOutput) {
  const RunFolder folder;
  for (const char* flag : {"--help", "-h", "help", "--version"}) {
    const ProcessResult result = folder.RunTo(0, {flag});
    EXPECT_THAT(result.out, HasSubstr("stalloc-planner"));
    EXPECT_THAT(result.err, IsEmpty());
  }
  for (const char* command : {"plan", "dump", "check", "import", "pack", "synth"}) {
    const ProcessResult result = folder.RunTo(0, {command, "--help"});
    EXPECT_THAT(result.out, AllOf(HasSubstr(std::string("usage: stalloc-planner ") + command), HasSubstr("--json")));
  }
}

TEST(PlannerTest, WrongUsageIsCodeTwo) {
  const RunFolder folder;
  const std::vector<std::vector<std::string>> wrong{{},
                                                    {"nonsense"},
                                                    {"plan"},
                                                    {"plan", "a", "b"},
                                                    {"plan", "a", "--model-memory-dir=b"},
                                                    {"plan", "a", "--nonsense"},
                                                    {"plan", "a", "--device=x"},
                                                    {"plan", "a", "--device=-1"},
                                                    {"plan", "a", "--devices=0"},
                                                    {"plan", "a", "--device=0", "--devices=1"},
                                                    {"plan", "a", "--threads=-1"},
                                                    {"plan", "a", "--time-limit=-1"},
                                                    {"plan", "a", "--time-limit=nan"},
                                                    {"plan", "a", "--capacity=5"},
                                                    {"dump"},
                                                    {"plan", "a", "--headroom=-1"},
                                                    {"check", "a"},
                                                    {"pack"},
                                                    {"import"},
                                                    {"serve", "a", "b"},
                                                    {"serve", "a", "--beside=b", "--ratio=1"},
                                                    {"import", "a", "--output=a.txt"},
                                                    {"synth"},
                                                    {"synth", "--output=a.txt"},
                                                    {"synth", "--output=a.csv", "--preset=nonsense"},
                                                    {"synth", "--output=a.csv", "--recompute=nonsense"},
                                                    {"synth", "--output=a.csv", "--schedule=interleaved"},
                                                    {"synth", "--output=a.csv", "--stage=4"},
                                                    {"synth", "--output=a.csv", "--blocks=1"}};
  for (const auto& arguments : wrong) {
    const ProcessResult result = folder.RunTo(2, arguments);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, Not(IsEmpty()));
  }
}

TEST(PlannerTest, PlansAndPacksASyntheticRun) {
  const RunFolder folder;
  folder.WriteFile("trace/rank00000.trace", "");
  const ProcessResult trace =
      folder.RunTo(0, {"synth", "--layers=8", "--stages=2", "--micro-batches=4", "--iterations=4", "--state=full",
                       "--second-stream", "--output=" + folder.Path("trace/rank00000.trace")});
  const ProcessResult plan = folder.RunTo(0, {"plan", folder.path(), "--time-limit=1"});
  EXPECT_THAT(plan.out, HasSubstr("1.000"));
  EXPECT_THAT(plan.err, Not(HasSubstr("no micro-batch marks")));

  const std::string csv = folder.Path("instance.csv");
  const ProcessResult instance =
      folder.RunTo(0, {"synth", "--preset=moe", "--blocks=3000", "--json", "--output=" + csv});
  EXPECT_THAT(instance.out, HasSubstr("\"lower_bound\": "));
  const ProcessResult packed = folder.RunTo(0, {"pack", csv, "--time-limit=1", "--json"});
  EXPECT_THAT(packed.out, HasSubstr("\"valid\": true"));
}

TEST(PlannerTest, SaysOnceForAllRanksThatPassesAreNotMarkedWhereRequestsVary) {
  const RunFolder folder;
  std::string varying = "+w=4096";
  for (const int size : {1024, 8192, 3072, 1024, 5120, 2048, 1024})
    absl::StrAppend(&varying, " I +a=", size, " +b=2048 -a -b");
  for (std::uint32_t rank = 0; rank < 3; ++rank) folder.WriteTrace(rank, TraceFromScript(varying));
  const ProcessResult result = folder.RunTo(0, {"plan", folder.path()});
  EXPECT_THAT(result.err, HasSubstr("stalloc-planner plan: warning: requests vary"));
  EXPECT_THAT(result.err, HasSubstr("from their slots (rank 0-2)\n"));
}

TEST(PlannerTest, PlansAllRanks) {
  const RunFolder folder;
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    folder.WriteTrace(rank, TraceFromScript(absl::StrReplaceAll(kPlannableScript, {{"F0 ", ""}})));
  const ProcessResult result = folder.RunTo(0, {"plan", folder.path()});
  EXPECT_THAT(result.out, AllOf(HasSubstr("predicted E"), HasSubstr("1.0000")));
  EXPECT_THAT(result.err, AllOf(HasSubstr("[3/3]"), Not(HasSubstr("warning"))));
  for (const char* rank : {"00000", "00001", "00002"}) {
    const auto plan = ReadPlan(folder.Path(std::string("output/plan/rank") + rank + ".plan"));
    ASSERT_TRUE(plan.ok()) << plan.error();
    EXPECT_EQ(plan.value().devices[0].arena_bytes, 4096u + 512u + 1024u + 2048u);
    EXPECT_THAT(folder.ReadFile(std::string("output/trace_analysis/rank") + rank + ".txt"),
                HasSubstr("theoretical peak"));
    EXPECT_THAT(folder.ReadFile(std::string("output/trace_analysis/rank") + rank + ".json"),
                HasSubstr("\"arena_bytes\""));
  }
  EXPECT_EQ(folder.Files().size(), 12u);  // no temporary file stays behind
}

TEST(PlannerTest, ImportsEventsInText) {
  const RunFolder folder;
  folder.WriteFile("events", "stalloc-events 1\na 1 1000 0 0 5\nf 1 6\n");
  const std::string trace = folder.Path("trace/rank00000.trace");
  const ProcessResult result = folder.RunTo(0, {"import", folder.Path("events"), "--output", trace, "--json"});
  EXPECT_EQ(result.out, "{\"allocations\": 1, \"events\": 2}\n");
  EXPECT_THAT(folder.Run({"dump", trace}).out, HasSubstr("1 0 1000 0\n0 0 1000 0\n"));
  folder.WriteFile("broken", "stalloc-events 1\nf 1 6\n");
  const ProcessResult broken = folder.RunTo(1, {"import", folder.Path("broken"), "--output=" + folder.Path("b.trace")});
  EXPECT_THAT(broken.err, HasSubstr("broken: line 2: expected the id of a live block, found '1'"));
  EXPECT_EQ(folder.Run({"import", folder.Path("no"), "--output=" + folder.Path("b.trace")}).exit_code, 1);
}

TEST(PlannerTest, ImportsStacksAndDumpsThem) {
  const RunFolder folder;
  folder.WriteFile("events", "stalloc-events 1\nt my model.py\nt f\nc 0 7 0 1\nc 1 9 0 1\na 1 1000 0 0 5 2\nf 1 6\n");
  const std::string trace = folder.Path("trace/rank00000.trace");
  ASSERT_EQ(folder.Run({"import", folder.Path("events"), "--output", trace}).exit_code, 0);
  const std::string dumped = folder.Run({"dump", trace, "--json"}).out;
  EXPECT_THAT(dumped, HasSubstr("{\"event\": \"call\", \"id\": 2, \"parent\": 1, \"file\": \"my model.py\", "
                                "\"line\": 9, \"function\": \"f\"}\n"));
  EXPECT_THAT(dumped, HasSubstr("\"stack\": 2"));
  for (const auto& [text, told] : std::vector<std::pair<std::string, std::string>>{
           {"c 0 7 0 0", "line 2: expected numbers of texts, found '0'"},
           {"t f\nc 1 7 0 0", "line 3: expected a call, found '1'"},
           {"t f\nc 0 7 0 0\na 1 1000 0 0 5 2", "line 4: expected a call, found '2'"}}) {
    folder.WriteFile("broken", "stalloc-events 1\n" + text + "\n");
    const ProcessResult broken =
        folder.RunTo(1, {"import", folder.Path("broken"), "--output=" + folder.Path("b.trace")});
    EXPECT_THAT(broken.err, HasSubstr(told));
  }
}

TEST(PlannerTest, ReportsATraceWithAndWithoutItsPlan) {
  const RunFolder folder(MakeTrace());
  const std::string plan = folder.Path("output/plan/rank00000.plan");
  const std::string with_plan = absl::StrCat("{\"request\": \"view\", \"plan\": \"", plan, "\"}");
  EXPECT_EQ(folder.Run({"plan", folder.path(), "--trace-only"}).exit_code, 0);
  EXPECT_THAT(folder.ReadFile("output/trace_analysis/rank00000.txt"), HasSubstr("theoretical peak: 7.5 KiB live"));
  EXPECT_THAT(folder.Ask(0, {R"({"request": "view"})"}), HasSubstr("\"plan\": null"));
  EXPECT_THAT(folder.Ask(0, {with_plan}), AllOf(HasSubstr("{\"error\": "), HasSubstr(plan)));
  EXPECT_EQ(folder.Run({"plan", folder.path()}).exit_code, 0);
  EXPECT_THAT(folder.Ask(0, {with_plan}), HasSubstr("\"idle_share\""));
}

TEST(PlannerTest, ReportRefusesThePlanOfAnotherRank) {
  const RunFolder folder(MakeTrace());
  folder.WriteTrace(1, MakeTrace());
  EXPECT_EQ(folder.Run({"plan", folder.path()}).exit_code, 0);
  const std::string plan = folder.Path("output/plan/rank00001.plan");
  EXPECT_THAT(folder.Ask(0, {absl::StrCat("{\"request\": \"view\", \"plan\": \"", plan, "\"}")}),
              HasSubstr("expected 0, found 1"));
}

// The layer is away at the peak, which is then in the backward pass.
TEST(PlannerTest, ASessionAnswersEachLineAndOutlivesErrors) {
  const RunFolder folder(
      TraceFromScript("+w=4096 " + Repeat("I F0 L:m.0 +a=8192 LE:m.0=0 L:m.1 +b=8192 LE:m.1=0 +l=2048 "
                                          "B0 +d=2048 LB:m.1 -b -l LBE:m.1 LB:m.0 -a -d LBE:m.0 O ",
                                          4)));
  const std::string answers = folder.Ask(
      0, {R"({"request": "play", "device": 0, "recompute": ["m.0", "m.1"]})", R"({"request": "play", "scale": 2})",
          R"({"request": "plan", "recompute": ["m.0", "m.1"], "plans": true, "time_limit": 1})",
          R"({"request": "search", "memory": 20480, "sizes": [{}, {"scale": 0.5}]})", "nonsense",
          R"({"request": "play", "recompute": ["m.7"]})", R"({"request": "play", "scale": "2"})",
          R"({"request": "play", "scale": 0})", R"({"request": "play", "colour": 2})", R"({"request": "dance"})",
          R"({"request": "play", "device": 7})", R"({"request": "traced"})"});
  const std::vector<std::string> lines = absl::StrSplit(answers, '\n');
  ASSERT_EQ(lines.size(), 13u) << answers;
  EXPECT_THAT(lines[0], HasSubstr("{\"peak\": 16384, "));
  EXPECT_THAT(lines[1], HasSubstr("{\"peak\": 45056, "));
  EXPECT_THAT(lines[2], AllOf(HasSubstr("{\"live\": 16384, "), HasSubstr("\"stalloc\": ")));
  EXPECT_THAT(lines[3], AllOf(HasSubstr("{\"results\": [{\"untouched_peak\": 24576"), HasSubstr("\"fits\": true")));
  for (const auto& [line, told] :
       std::vector<std::pair<std::size_t, std::string>>{{4, "expected a JSON object, found: nonsense"},
                                                        {5, "no layer that could be recomputed called m.7"},
                                                        {6, "scale: expected a number"},
                                                        {7, "must be above 0, found: 0"},
                                                        {8, "unknown key: colour"},
                                                        {9, "found 'dance'"},
                                                        {10, "no allocation on device 7"}}) {
    EXPECT_THAT(lines[line], AllOf(HasSubstr("{\"error\": "), HasSubstr(told)));
  }
  EXPECT_THAT(lines[11], AllOf(HasSubstr("\"peak\": 24576"), HasSubstr("\"step_ns\": "), HasSubstr("\"layers\": [")));
}

TEST(PlannerTest, ASessionWithoutATraceTellsThePeriodOfAHistory) {
  const RunFolder folder;
  std::string sizes;
  std::string live;
  for (int i = 0; i < 80; ++i) {
    absl::StrAppend(&sizes, i == 0 ? "" : ", ", i % 20);
    absl::StrAppend(&live, i == 0 ? "" : ", ", i % 20 == 4 ? 1 : 9);
  }
  const auto ask = [&](const std::string& of_live) {
    return folder
        .Run({"serve"}, absl::StrCat("{\"request\": \"period\", \"sizes\": [", sizes, "], \"live_before\": [", of_live,
                                     "]}\n{\"request\": \"view\"}\n"))
        .out;
  };
  EXPECT_THAT(ask(live), HasSubstr("{\"begins\": [4, 24, 44, 64], \"pile\": null}\n{\"error\": "));
  EXPECT_THAT(ask("1"), HasSubstr("live_before: expected at least 80 numbers"));
}

TEST(PlannerTest, RanksWithEqualProblemsArePlannedAlikeAndNamedAfterTheLowest) {
  const std::string other = absl::StrReplaceAll(kPlannableScript, {{"+b=2048", "+b=4096"}});
  for (const char* threads : {"--threads=1", "--threads=4"}) {
    const RunFolder folder;
    for (const std::uint32_t rank : {0u, 2u}) folder.WriteTrace(rank, MakeTrace());
    folder.WriteTrace(1, TraceFromScript(other));
    folder.WriteTrace(3, TraceFromScript(kPlannableScript + " H=4096"));  // the same problem, of another trace
    const ProcessResult result = folder.Run({"plan", folder.path(), threads});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("\nequal to rank 0: 2 (1)\n"));
    const auto text = [&](int rank) {
      return folder.ReadFile("output/trace_analysis/rank0000" + std::to_string(rank) + ".txt");
    };
    for (const int rank : {0, 1}) EXPECT_THAT(text(rank), Not(HasSubstr("same as rank")));
    for (const int rank : {2, 3}) EXPECT_THAT(text(rank), HasSubstr("packing: same as rank 0\n"));
    EXPECT_THAT(folder.ReadFile("output/trace_analysis/rank00003.json"), HasSubstr("\"same_as_rank\": 0"));
    EXPECT_THAT(folder.ReadFile("output/trace_analysis/rank00001.json"), HasSubstr("\"same_as_rank\": null"));
    const auto first = ReadPlan(folder.Path("output/plan/rank00000.plan"));
    const auto last = ReadPlan(folder.Path("output/plan/rank00003.plan"));
    EXPECT_EQ(last.value().fingerprint.rank, 3u);
    ASSERT_EQ(first.value().devices[0].slots.size(), last.value().devices[0].slots.size());
    for (std::size_t i = 0; i < first.value().devices[0].slots.size(); ++i) {
      EXPECT_EQ(first.value().devices[0].slots[i].offset, last.value().devices[0].slots[i].offset);
    }
  }
}

// Each is told of its own, since a path is in it.
TEST(PlannerTest, RanksWithEqualTracesThatCannotBePlannedFailEachForItself) {
  const RunFolder folder;
  for (const std::uint32_t rank : {0u, 1u, 2u}) folder.WriteTrace(rank, TraceFromScript("INIT"));
  const ProcessResult result = folder.RunTo(1, {"plan", folder.path()});
  for (const char* rank : {"00000", "00001", "00002"}) {
    EXPECT_THAT(result.err, HasSubstr(std::string("rank") + rank + ".trace: the trace has no allocation"));
  }
  EXPECT_THAT(result.err, HasSubstr("[3/3]"));
}

TEST(PlannerTest, ManyEqualRanksAreOneRowAndOneLine) {
  const RunFolder folder;
  const std::string other = absl::StrReplaceAll(kPlannableScript, {{"+b=2048", "+b=4096"}});
  for (std::uint32_t rank = 0; rank < 40; ++rank) {
    folder.WriteTrace(rank, rank % 4 == 3 ? TraceFromScript(other) : MakeTrace());
  }
  const ProcessResult result = folder.RunTo(0, {"plan", folder.path(), "--threads=2"});
  EXPECT_THAT(result.out, AllOf(HasSubstr("equal to rank 0: 1, 2, 4-6, 8-10, "), HasSubstr("36-38 (29)\n"),
                                HasSubstr("equal to rank 3: 7-39 by 4 (9)\n")));
  EXPECT_LT(std::count(result.err.begin(), result.err.end(), '\n'), 20);
  const ProcessResult json = folder.Run({"plan", folder.path(), "--json"});
  EXPECT_THAT(json.out, AllOf(HasSubstr("\"equal_to_rank\": null"), HasSubstr("\"equal_to_rank\": 3")));
  for (const int rank : {5, 39}) {
    char name[64];
    std::snprintf(name, sizeof(name), "output/plan/rank%05d.plan", rank);
    const auto plan = ReadPlan(folder.Path(name));
    ASSERT_TRUE(plan.ok()) << plan.error();
    EXPECT_EQ(plan.value().fingerprint.rank, static_cast<std::uint32_t>(rank));
    EXPECT_EQ(plan.value().devices[0].arena_bytes, 4096u + 512u + 1024u + (rank % 4 == 3 ? 4096u : 2048u));
  }
}

TEST(PlannerTest, JsonGoesToStandardOutputAlone) {
  const RunFolder folder(MakeTrace());
  const ProcessResult result = folder.RunTo(0, {"plan", "--model-memory-dir", folder.path(), "--json"});
  EXPECT_EQ(result.out.front(), '{');
  EXPECT_THAT(result.out, HasSubstr("\"trial\": null"));  // nothing varies
  EXPECT_THAT(result.out, AllOf(HasSubstr("\"ranks\": ["), HasSubstr("\"ok\": true"), HasSubstr("\"ratio\": 1")));
}

TEST(PlannerTest, WhatVariesIsPlannedAsATrialSays) {
  const RunFolder folder;
  folder.WriteFile("trace/rank00000.trace", "");
  const std::string trace = "--output=" + folder.Path("trace/rank00000.trace");
  const ProcessResult made = folder.Run({"synth", "--preset=moe", "--layers=8", "--stages=2", "--micro-batches=4",
                                         "--iterations=4", "--state=full", trace});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  ASSERT_EQ(folder.Run({"plan", folder.path(), "--time-limit=1"}).exit_code, 0);
  EXPECT_THAT(folder.ReadFile("output/trace_analysis/rank00000.txt"),
              AllOf(HasSubstr("by trial"), HasSubstr("no slots"), HasSubstr("slots of the largest sizes"),
                    HasSubstr("taken"), HasSubstr("held out and served: iteration 3")));
  EXPECT_THAT(folder.ReadFile("output/trace_analysis/rank00000.json"),
              AllOf(HasSubstr("\"trial\": {"), HasSubstr("\"slots\": \"slots of the template's sizes\""),
                    HasSubstr("\"taken\": true"), HasSubstr("\"taken\": false")));

  ASSERT_EQ(folder.Run({"plan", folder.path(), "--time-limit=1", "--headroom=25"}).exit_code, 0);
  EXPECT_THAT(folder.ReadFile("output/trace_analysis/rank00000.txt"),
              AllOf(HasSubstr("slots of the largest sizes + 25 %"), Not(HasSubstr("no slots"))));
  const auto plan = ReadPlan(folder.Path("output/plan/rank00000.plan"));
  ASSERT_TRUE(plan.ok()) << plan.error();
  std::size_t roomy = 0;
  for (const Entry& entry : plan.value().devices[0].cycle[0].entries) {
    if (entry.entry_class != EntryClass::kDynamic) continue;
    ASSERT_NE(entry.slot, kNoSlot);
    const Bytes capacity = plan.value().devices[0].slots[entry.slot].capacity;
    EXPECT_GE(capacity * 100, entry.max_bytes * 125);
    ++roomy;
  }
  EXPECT_GT(roomy, 10u);
}

TEST(PlannerTest, RefinesByWhatLaterRunsSaw) {
  const RunFolder folder(TraceFromScript("+w=4096 " + Repeat("I +a=4096 +d=2048 -d +b=512 -b -a ", 3)));
  const ProcessResult without = folder.RunTo(1, {"plan", folder.path(), "--refine"});
  EXPECT_THAT(without.err, AllOf(HasSubstr("output/observed/rank00000.observed"), HasSubstr("STALLOC_MODE=Alloc")));
  folder.WriteFile("output/observed/rank00000.observed",
                   "stalloc-observed 1\ndevice 0 1 3\nentry 1 1 512 8192 1 9 4\n");
  const ProcessResult refined = folder.RunTo(0, {"plan", folder.path(), "--refine"});
  const auto plan = ReadPlan(folder.Path("output/plan/rank00000.plan"));
  ASSERT_TRUE(plan.ok()) << plan.error();
  const Entry& entry = plan.value().devices[0].cycle[0].entries[1];
  EXPECT_EQ(entry.entry_class, EntryClass::kDynamic);
  EXPECT_EQ(entry.max_bytes, 8192u);
  EXPECT_THAT(folder.ReadFile("output/trace_analysis/rank00000.txt"), HasSubstr("1 requests of other sizes"));
  folder.WriteFile("output/observed/rank00000.observed", "stalloc-observed 1\ndevice 0 2 3\n");
  const ProcessResult foreign = folder.RunTo(1, {"plan", folder.path(), "--refine"});
  EXPECT_THAT(foreign.err, HasSubstr("of the plan of another trace"));
}

TEST(PlannerTest, TraceOnlyWritesNoPlan) {
  const RunFolder folder(MakeTrace());
  const ProcessResult result = folder.RunTo(0, {"plan", folder.path(), "--trace-only"});
  EXPECT_THAT(result.out, HasSubstr("<= "));
  EXPECT_THAT(folder.Files(), ElementsAre("output/trace_analysis/rank00000.json", "output/trace_analysis/rank00000.txt",
                                          "trace/rank00000.trace"));
}

TEST(PlannerTest, TraceOnlyIsContentWithoutIterations) {
  const RunFolder folder(TraceFromScript("+a=4096 +b=512 -a -b"));
  const ProcessResult result = folder.Run({"plan", folder.path(), "--trace-only"});
  EXPECT_THAT(folder.ReadFile("output/trace_analysis/rank00000.txt"), HasSubstr("4.5 KiB"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST(PlannerTest, OneRankOrTheFirstRanksCanBeChosen) {
  const RunFolder folder;
  for (std::uint32_t rank = 0; rank < 3; ++rank) folder.WriteTrace(rank, MakeTrace());
  EXPECT_EQ(folder.Run({"plan", folder.path(), "--device=1"}).exit_code, 0);
  EXPECT_TRUE(folder.Exists("output/plan/rank00001.plan"));
  EXPECT_FALSE(folder.Exists("output/plan/rank00000.plan"));
  EXPECT_EQ(folder.Run({"plan", folder.path(), "--devices", "2"}).exit_code, 0);
  EXPECT_TRUE(folder.Exists("output/plan/rank00000.plan"));
  EXPECT_FALSE(folder.Exists("output/plan/rank00002.plan"));
  const ProcessResult missing = folder.RunTo(1, {"plan", folder.path(), "--devices=4"});
  EXPECT_THAT(missing.err, HasSubstr("rank 3 has no trace"));
  EXPECT_FALSE(folder.Exists("output/plan/rank00002.plan"));
}

TEST(PlannerTest, APlanForTheRunThatGoesOnLiesBesideTheOther) {
  const RunFolder folder(MakeTrace());
  const ProcessResult result = folder.Run({"plan", folder.path(), "--running"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(folder.Exists("output/plan/rank00000.plan"));
  const Plan plan = ReadPlan(folder.Path("output/plan/rank00000.running.plan")).value();
  const DevicePlan& device = plan.devices.at(0);
  EXPECT_FALSE(device.prologue.empty()) << "its iterations count";
  for (const Script& script : device.prologue) EXPECT_TRUE(script.entries.empty()) << "they are over";
  for (const Entry& entry : device.cycle.at(0).entries) EXPECT_NE(entry.slot, kNoSlot);
  EXPECT_EQ(device.arena_bytes, 3072u);
}

TEST(PlannerTest, ThePlanOfARunThatGoesOnDoesNotWaitForItsReport) {
  const RunFolder folder(MakeTrace());
  folder.WriteFile("output/trace_analysis", "in the way of reports");
  const ProcessResult result = folder.RunTo(1, {"plan", folder.path(), "--running"});
  EXPECT_THAT(result.err, AllOf(HasSubstr("trace_analysis"), Not(HasSubstr("of an earlier run"))));
  EXPECT_TRUE(ReadPlan(folder.Path("output/plan/rank00000.running.plan")).ok());
}

TEST(PlannerTest, ARunThatGoesOnNeverFindsThePlanOfAnotherTrace) {
  const RunFolder folder(MakeTrace());
  ASSERT_EQ(folder.Run({"plan", folder.path(), "--running"}).exit_code, 0);
  folder.WriteTrace(0, TraceFromScript("+a=4096 -a"));  // cannot be planned
  EXPECT_EQ(folder.Run({"plan", folder.path(), "--running"}).exit_code, 1);
  EXPECT_FALSE(folder.Exists("output/plan/rank00000.running.plan"));
}

TEST(PlannerTest, PlanningTwiceGivesTheSamePlan) {
  const RunFolder folder(MakeTrace());
  ASSERT_EQ(folder.Run({"plan", folder.path(), "--threads=1"}).exit_code, 0);
  const std::string first = folder.ReadFile("output/plan/rank00000.plan");
  ASSERT_EQ(folder.Run({"plan", folder.path(), "--threads=3"}).exit_code, 0);
  EXPECT_EQ(folder.ReadFile("output/plan/rank00000.plan"), first);
}

TEST(PlannerTest, CheckAcceptsAPlanAndRefusesAForeignOne) {
  const RunFolder folder(MakeTrace());
  ASSERT_EQ(folder.Run({"plan", folder.path()}).exit_code, 0);
  const std::string plan = folder.Path("output/plan/rank00000.plan");
  const std::string trace = folder.Path("trace/rank00000.trace");
  EXPECT_THAT(folder.Run({"check", plan, trace}).out, HasSubstr("the plan holds"));
  EXPECT_THAT(folder.Run({"check", plan, trace, "--json"}).out, HasSubstr("\"valid\": true"));
  folder.WriteTrace(0, TraceFromScript("+w=8192 " + Repeat("I +a=1024 +b=2048 -a -b", 4)));
  const ProcessResult foreign = folder.RunTo(1, {"check", plan, trace});
  EXPECT_THAT(foreign.err, HasSubstr("does not hold"));
  EXPECT_EQ(folder.Run({"check", trace, plan}).exit_code, 1);
  EXPECT_EQ(folder.Run({"check", folder.Path("none"), trace}).exit_code, 1);
}

TEST(PlannerTest, DumpPrintsTheTraceAndWhatIsMissing) {
  const RunFolder folder(TraceFromScript("+w=100 I? +a=512 -a I? +a=512 -a"));
  const ProcessResult result = folder.RunTo(0, {"dump", folder.Path("trace/rank00000.trace")});
  EXPECT_EQ(result.out,
            "1 0 100 0\nIteration Index : 0 (automatic)\n1 1 512 0\n0 1 512 0\n"
            "Iteration Index : 1 (automatic)\n1 2 512 0\n0 2 512 0\n");
  EXPECT_THAT(result.err, AllOf(HasSubstr("optimizer steps"), HasSubstr("no micro-batch marks")));
  EXPECT_EQ(folder.Run({"dump", folder.Path("none")}).exit_code, 1);
}

TEST(PlannerTest, PackSolvesACsvInstance) {
  const RunFolder folder;
  folder.WriteFile("in.csv", "id,lower,upper,size\n0,0,2,10\n1,1,3,20\n2,2,4,10\n");
  const ProcessResult result =
      folder.RunTo(0, {"pack", "--input=" + folder.Path("in.csv"), "--json", "--output=" + folder.Path("out.csv")});
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("\"blocks\""), HasSubstr("\"height\""), HasSubstr("30"), HasSubstr("\"valid\"")));
  EXPECT_THAT(folder.ReadFile("out.csv"), HasSubstr("offset"));
  EXPECT_EQ(folder.Run({"pack", "--input=" + folder.Path("in.csv"), "--capacity=29"}).exit_code, 1);
  EXPECT_EQ(folder.Run({"pack", "--input=" + folder.Path("none.csv")}).exit_code, 1);
}

}  // namespace
}  // namespace stalloc::planner
