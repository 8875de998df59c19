// Which differences make a plan unusable, and how they read.
#include "allocator/runtime/fingerprint_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace stalloc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Fingerprint Known() {
  return {.torch_version = "2.11.0+cu130",
          .device_name = "NVIDIA H200",
          .device_bytes = Bytes{140} << 30,
          .driver_version = "13.0",
          .world_size = 2,
          .rank = 1,
          .local_rank = 1,
          .command_line = {"python", "/a/train.py", "--layers", "4"},
          .stalloc_version = "0.1.0",
          .trace_mode = "exact"};
}

std::vector<std::string> After(const std::function<void(Fingerprint&)>& change) {
  Fingerprint run = Known();
  change(run);
  return Differences(Known(), run);
}

TEST(FingerprintCheckTest, TheSameRunHasNoDifference) { EXPECT_THAT(Differences(Known(), Known()), IsEmpty()); }

TEST(FingerprintCheckTest, EachDifferenceIsNamedWithBothValues) {
  EXPECT_THAT(After([](Fingerprint& run) { run.rank = 0; }), ElementsAre("rank: plan 1, this run 0"));
  EXPECT_THAT(After([](Fingerprint& run) { run.world_size = 4; }), ElementsAre("world size: plan 2, this run 4"));
  EXPECT_THAT(After([](Fingerprint& run) { run.torch_version = "2.12.0"; }),
              ElementsAre("torch: plan 2.11.0+cu130, this run 2.12.0"));
  EXPECT_THAT(After([](Fingerprint& run) { run.device_name = "NVIDIA A100"; }),
              ElementsAre("device: plan NVIDIA H200, this run NVIDIA A100"));
  EXPECT_THAT(After([](Fingerprint& run) { run.device_bytes = Bytes{80} << 30; }),
              ElementsAre("device memory, bytes: plan 150323855360, this run 85899345920"));
}

TEST(FingerprintCheckTest, AllDifferencesAreListed) {
  const std::vector<std::string> found = After([](Fingerprint& run) {
    run.rank = 0;
    run.world_size = 1;
    run.torch_version = "2.7.1";
  });
  EXPECT_EQ(Join(found),
            "rank: plan 1, this run 0; world size: plan 2, this run 1; torch: plan 2.11.0+cu130, this run 2.7.1");
}

TEST(FingerprintCheckTest, WhatOneSideDoesNotKnowIsNoDifference) {
  EXPECT_THAT(After([](Fingerprint& run) {
                run.torch_version.clear();
                run.device_name.clear();
                run.device_bytes = 0;
              }),
              IsEmpty());
  EXPECT_THAT(Differences(Fingerprint(), Known()), IsEmpty());
}

TEST(FingerprintCheckTest, PatchVersionsAndSmallDifferencesOfMemoryPass) {
  EXPECT_THAT(After([](Fingerprint& run) { run.torch_version = "2.11.3+cu128"; }), IsEmpty());
  EXPECT_THAT(After([](Fingerprint& run) { run.device_bytes -= run.device_bytes / 100; }), IsEmpty());
  EXPECT_THAT(After([](Fingerprint& run) { run.torch_version = "2.1"; }),
              ElementsAre("torch: plan 2.11.0+cu130, this run 2.1"));
}

TEST(FingerprintCheckTest, HostMemoryIsNotCompared) {
  Fingerprint plan = Known();
  plan.device_name = "cpu";
  Fingerprint run = plan;
  run.device_bytes /= 8;
  EXPECT_THAT(Differences(plan, run), IsEmpty());
}

TEST(FingerprintCheckTest, APlanForAnotherDeviceSaysWhichItHas) {
  Plan plan;
  EXPECT_EQ(DeviceDifference(plan, 0), "device: plan none, this run cuda:0");
  plan.devices.resize(2);
  plan.devices[0].device = kCpuDevice;
  plan.devices[1].device = 1;
  EXPECT_EQ(DeviceDifference(plan, 0), "device: plan cpu, cuda:1, this run cuda:0");
  EXPECT_EQ(DeviceDifference(plan, 1), "");
  EXPECT_EQ(DeviceDifference(plan, kCpuDevice), "");
}

TEST(FingerprintCheckTest, AnotherScriptIsFoundBehindLaunchers) {
  const auto with = [](std::vector<std::string> line) {
    Fingerprint fingerprint;
    fingerprint.command_line = std::move(line);
    return fingerprint;
  };
  const Fingerprint plan = with({"python", "/a/train.py", "--lr", "1"});
  EXPECT_EQ(ScriptDifference(plan, with({"python3", "-m", "stalloc", "run", "/b/train.py", "--lr", "2"})), "");
  EXPECT_EQ(ScriptDifference(plan, with({"python3", "/usr/bin/stalloc", "run", "eval.py"})),
            "script: plan train.py, this run eval.py");
  EXPECT_EQ(ScriptDifference(with({"python", "-m", "pkg.train"}), with({"python", "-m", "pkg.other"})),
            "script: plan pkg.train, this run pkg.other");
  EXPECT_EQ(ScriptDifference(plan, with({})), "");
}

}  // namespace
}  // namespace stalloc
