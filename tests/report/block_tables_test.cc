#include "planner/report/block_tables.h"

#include <gtest/gtest.h>

#include <numeric>

#include "planner/analysis/peak.h"
#include "tests/report/facts_fixture.h"

namespace stalloc::planner {
namespace {

const std::string kTabledRun =
    "+v=4096 +w=4096 " + Repeat("I F0 L:mlp +a=1024 +b=1024 B0 +g=2048 -a -b O -g ", 3) + "+x=8192 -x";

Bytes SumOf(const PeakView& view) {
  Bytes sum = view.omitted_bytes;
  for (const PeakGroup& group : view.groups) sum += group.bytes * group.count;
  return sum;
}

TEST(BlockTablesTest, ThePeakIsThatOfTheAnalysis) {
  const ScriptFacts facts(kTabledRun);
  const PeakView view = GroupPeak(*facts, 100);
  EXPECT_EQ(view.live_bytes, FindPeak(facts->device, nullptr, facts->phases).live_bytes);
  EXPECT_EQ(SumOf(view), view.live_bytes);
}

TEST(BlockTablesTest, BlocksThatAreAlikeShareARow) {
  const ScriptFacts facts("+v=4096 +w=4096 " + Repeat("I F0 L:mlp +a=1024 +b=1024 B0 +g=2048 -a -b O -g ", 3));
  const PeakView view = GroupPeak(*facts, 100);
  ASSERT_EQ(view.groups.size(), 3u);
  EXPECT_EQ(view.groups[0].bytes, 4096u);
  EXPECT_EQ(view.groups[0].count, 2u);
  EXPECT_EQ(view.groups[0].fact.memory_class, MemoryClass::kWeights);
  EXPECT_EQ(view.groups[1].count * view.groups[1].bytes, 2048u);
  const PeakGroup& activations = view.groups[1].count == 2 ? view.groups[1] : view.groups[2];
  EXPECT_EQ(activations.fact.memory_class, MemoryClass::kActivations);
  EXPECT_EQ(facts->layers.names()[activations.fact.layer], "mlp");
}

TEST(BlockTablesTest, WhatIsLeftOutIsCounted) {
  const ScriptFacts facts(kTabledRun);
  const PeakView view = GroupPeak(*facts, 1);
  EXPECT_EQ(view.groups.size(), 1u);
  EXPECT_GT(view.omitted_blocks, 0u);
  EXPECT_EQ(SumOf(view), view.live_bytes);
}

TEST(BlockTablesTest, TopHasTheLargestAndTheMostExpensive) {
  // x is largest and gone at once; the weights stay.
  const ScriptFacts facts(kTabledRun);
  const std::vector<RunGroup> top = TopGroups(*facts, 1).groups;
  ASSERT_EQ(top.size(), 2u);
  EXPECT_EQ(top[0].bytes, 4096u);
  EXPECT_EQ(top[0].count, 2u);
  const auto us = static_cast<double>(facts->clock.end_ns()) * 1e-9;
  EXPECT_NEAR(top[0].byte_seconds, 4096 * (2 * us - 1e-6), 1e-9);  // to the end; the second comes one event later
  EXPECT_EQ(top[1].bytes, 8192u);
  EXPECT_EQ(top[1].longest_ns, 1000);
}

TEST(BlockTablesTest, RunGroupsCoverIterations) {
  const ScriptFacts facts(kTabledRun);
  std::uint64_t blocks = 0;
  for (const RunGroup& group : TopGroups(*facts, 100).groups) blocks += group.count;
  EXPECT_EQ(blocks, facts->device.allocations.size());
}

// Three iterations' activations a, of which the last comes from another line, and named weights.
Trace NamedAndCalled() {
  Trace trace = TraceFromScript("+v=4096 +w=4096 " + Repeat("I F0 +a=1024 B0 -a O ", 3));
  trace.texts = {"GPT.weight", "GPT.bias", "/site/torch/nn/linear.py", "/home/me/model.py", "forward"};
  trace.tensors = {{0, 0, 512, 0, TensorRole::kParameter},
                   {0, 512, 512, 1, TensorRole::kParameter},
                   {1, 0, 512, 1, TensorRole::kParameter}};
  trace.calls = {{0, 4, 3, 10}, {1, 4, 2, 99}, {0, 4, 3, 20}};
  std::uint32_t left = 3;
  for (TraceEvent& event : trace.events) {
    if (event.kind == EventKind::kAlloc && event.bytes == 1024) event.stack_plus_one = --left > 0 ? 2 : 3;
  }
  return trace;
}

TEST(BlockTablesTest, RunGroupsAreApartByStackAndSayWhichTensorsTheyHold) {
  const ScriptFacts facts(NamedAndCalled());
  const std::vector<RunGroup> groups = TopGroups(*facts, 100).groups;
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(facts->names.Text(groups[0].names), "GPT.weight and 2 more");
  EXPECT_EQ(facts->names.Text(groups[1].names), "");
  EXPECT_EQ(facts->calls.Site(groups[1].stack), "model.py:10 forward") << "the call outside of torch";
  EXPECT_EQ(groups[1].count, 2u);
  EXPECT_EQ(facts->calls.Site(groups[2].stack), "model.py:20 forward");
}

TEST(BlockTablesTest, SharesAreOfTheWholeRun) {
  const ScriptFacts facts(kTabledRun);
  double sum = 0;
  for (const RunGroup& group : TopGroups(*facts, 100).groups) sum += group.byte_seconds;
  EXPECT_GT(sum, 0);
  EXPECT_NEAR(TopGroups(*facts, 1).all_byte_seconds, sum, sum * 1e-12);
}

TEST(CallSitesTest, FramesOfTorchAndStallocAreNoSite) {
  Trace trace;
  trace.texts = {"step", "/x/site-packages/torch/optim/adam.py", "/x/site-packages/stalloc/train/frameworks/around.py",
                 "/home/me/stalloc/train.py", "/x/site-packages/stalloc/_hooks.py"};
  trace.calls = {{0, 0, 3, 7}, {1, 0, 2, 19}, {2, 0, 4, 5}, {3, 0, 1, 80}, {0, 0, 1, 33}};
  const CallSites sites(trace);
  EXPECT_EQ(sites.Site(4), "train.py:7 step");
  EXPECT_EQ(sites.Site(5), "adam.py:33 step") << "nothing else is there";
  EXPECT_EQ(sites.Site(0), "");
  EXPECT_EQ(sites.Stack(2), "/home/me/stalloc/train.py:7 step");
}

TEST(CallSitesTest, StacksEndWhereTheProgramBegins) {
  Trace trace;
  trace.texts = {"main",
                 "/x/site-packages/stalloc/cli.py",
                 "/x/site-packages/stalloc/_runner.py",
                 "/home/me/train.py",
                 "/x/site-packages/stalloc/_core/_patching.py",
                 "/home/me/model.py"};
  trace.calls = {{0, 0, 1, 104}, {1, 0, 2, 57}, {2, 0, 3, 7}, {3, 0, 4, 141}, {4, 0, 5, 30}};
  EXPECT_EQ(CallSites(trace).Stack(5), "/home/me/model.py:30 main\n/home/me/train.py:7 main");
}

}  // namespace
}  // namespace stalloc::planner
