// Trace, plan, Alloc, plan --refine: what the run saw of an entry widens it in the next plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "allocator/driver/host_driver.h"
#include "allocator/runtime/session.h"
#include "proto/codec/observed_text.h"
#include "proto/codec/plan_reader.h"
#include "tests/cli/planner_process.h"
#include "tests/runtime/fake_upstream.h"

namespace stalloc::planner {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

// Before the one that varies, it, and after it.
constexpr std::array kBefore = {6 * kMiB, 7 * kMiB};
constexpr std::array kAfter = {2 * kMiB, 3 * kMiB};
constexpr std::size_t kVaries = kBefore.size();

class RefineTest : public testing::Test {
 protected:
  std::unique_ptr<Session> Open(Mode mode) {
    Config config;
    config.mode = mode;
    config.model_info_path = folder_.path();
    config.trace_fast = true;
    auto opened = Session::Open({config, {}});
    EXPECT_TRUE(opened.ok()) << opened.error();
    return std::move(opened).value();
  }
  // An iteration for each size of the one that varies. `late`: its block stays over the requests after it.
  void Train(Session& session, const std::vector<Bytes>& sizes, bool late) {
    DeviceRuntime& device = *session.AddDevice(kCpuDevice, &upstream_, driver_.get(), nullptr, {});
    const auto take = [&](Bytes bytes) { return device.Allocate(bytes, 0, Origin::kProgram); };
    int index = 0;
    for (const Bytes size : sizes) {
      session.Mark({.kind = MarkKind::kIteration, .edge = MarkEdge::kBegin, .index = index++, .name = {}});
      for (const Bytes bytes : kBefore) device.Free(take(bytes));
      void* const varying = take(size);
      if (!late) device.Free(varying);
      for (const Bytes bytes : kAfter) device.Free(take(bytes));
      if (late) device.Free(varying);
    }
    session.Finish();
  }
  Entry Plan(const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {"plan", folder_.path()};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const ProcessResult planned = folder_.Run(arguments);
    EXPECT_EQ(planned.exit_code, 0) << planned.err;
    const auto plan = ReadPlan(folder_.Path("output/plan/rank00000.plan"));
    return plan.ok() ? plan.value().devices.at(0).cycle.at(0).entries.at(kVaries) : Entry();
  }

  RunFolder folder_;
  FakeUpstream upstream_;
  std::unique_ptr<HostDriver> driver_ = HostDriver::Create({.capacity = 0, .granularity = 64 * 1024});
};

TEST_F(RefineTest, WhatARunSawWidensTheNextPlan) {
  Train(*Open(Mode::kTrace), {4 * kMiB, 5 * kMiB, 4 * kMiB, 5 * kMiB + 512}, /*late=*/false);
  const Entry traced = Plan({});
  EXPECT_EQ(traced.entry_class, EntryClass::kDynamic);
  EXPECT_EQ(traced.min_bytes, 4 * kMiB);
  EXPECT_EQ(traced.max_bytes, 5 * kMiB + 512);
  EXPECT_EQ(traced.expected_life, 1u);

  Train(*Open(Mode::kAlloc), {4 * kMiB, 9 * kMiB, 3 * kMiB, 5 * kMiB}, /*late=*/true);
  const Result<Observed> observed = DecodeObserved(folder_.ReadFile("output/observed/rank00000.observed"));
  ASSERT_TRUE(observed.ok()) << observed.error();
  ASSERT_THAT(observed.value().devices, SizeIs(1));
  EXPECT_EQ(observed.value().devices[0].device, kCpuDevice);

  const Entry refined = Plan({"--refine"});
  EXPECT_EQ(refined.entry_class, EntryClass::kDynamic);
  EXPECT_EQ(refined.min_bytes, 3 * kMiB);
  EXPECT_EQ(refined.max_bytes, 9 * kMiB);
  EXPECT_EQ(refined.expected_life, 3u);
  EXPECT_THAT(folder_.ReadFile("output/trace_analysis/rank00000.txt"), HasSubstr("1 requests of other sizes"));
}

}  // namespace
}  // namespace stalloc::planner
