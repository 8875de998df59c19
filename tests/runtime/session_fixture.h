// SessionTest: a directory, a CPU device, and the rule for everything that stands in a session's way.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "allocator/driver/host_driver.h"
#include "allocator/runtime/session.h"
#include "proto/codec/plan_writer.h"
#include "tests/base/test_files.h"
#include "tests/runtime/fake_upstream.h"
#include "tests/runtime/log_capture.h"
#include "tests/runtime/plan_builder.h"

namespace stalloc {

class SessionTest : public ::testing::Test {
 protected:
  [[nodiscard]] Config ConfigFor(Mode mode) const {
    Config config;
    config.mode = mode;
    config.model_info_path = directory_.path();
    config.trace_fast = true;
    return config;
  }
  static Fingerprint Known() {
    Fingerprint fingerprint;
    fingerprint.torch_version = "2.11.0+cu130";
    fingerprint.command_line = {"python", "train.py"};
    return fingerprint;
  }
  static Fingerprint Cpu() {
    Fingerprint fingerprint;
    fingerprint.device_name = "cpu";
    return fingerprint;
  }
  static Plan PlanFor(const DevicePlan& device) {
    Plan plan;
    plan.fingerprint = Known();
    plan.fingerprint.world_size = 1;
    plan.fingerprint.device_name = "cpu";
    plan.devices.push_back(device);
    return plan;
  }
  static Plan SmallPlan() { return PlanFor(PlanBuilder().Each(100 * kKiB).Each(200 * kKiB).Build()); }
  void Write(const Plan& plan) {
    const absl::Status written = WritePlanFile(ConfigFor(Mode::kAlloc).PlanPath(), plan);
    ASSERT_TRUE(written.ok()) << written;
  }

  static Result<std::unique_ptr<Session>> Open(Config config) { return Session::Open({std::move(config), Known()}); }
  static std::unique_ptr<Session> MustOpen(Config config) {
    Result<std::unique_ptr<Session>> opened = Open(std::move(config));
    EXPECT_TRUE(opened.ok()) << opened.error();
    return opened.ok() ? std::move(opened).value() : nullptr;
  }
  DeviceRuntime* AddCpu(Session& session) {
    return session.AddDevice(kCpuDevice, &upstream_, driver_.get(), nullptr, Cpu());
  }
  // A session with the CPU, which goes away with the test.
  void Start(Config config) {
    session_ = MustOpen(std::move(config));
    device_ = AddCpu(*session_);
  }
  // The plan comes while the run goes on: its path, where no session looks by itself.
  [[nodiscard]] std::string SetPlanAside(const Config& config) const {
    std::string running = directory_.path() + "/running.plan";
    std::filesystem::rename(config.PlanPath(), running);
    return running;
  }
  // One of SmallPlan().
  static void Iterate(Session& session, DeviceRuntime& device, int index) {
    session.Mark(IterationMark(index));
    for (const Bytes bytes : {100 * kKiB, 200 * kKiB}) device.Free(device.Allocate(bytes, 0, Origin::kProgram));
  }
  void Iterate(int index) { Iterate(*session_, *device_, index); }

  // The rule for everything that stands in the way of planning or tracing: an error under STALLOC_STRICT=1, otherwise
  // one warning and a run that allocates all the same.
  void ExpectRefused(Config config, const ::testing::Matcher<const std::string&>& why) {
    config.strict = true;
    const Result<std::unique_ptr<Session>> strict = Open(config);
    ASSERT_FALSE(strict.ok());
    EXPECT_THAT(strict.error(), why);
    EXPECT_EQ(log_.text(), "");

    config.strict = false;
    const std::unique_ptr<Session> session = MustOpen(config);
    ASSERT_NE(session, nullptr);
    EXPECT_THAT(session->degraded(), why);
    EXPECT_THAT(log_.text(), ::testing::AllOf(why, ::testing::HasSubstr("the run goes on")));
    EXPECT_EQ(log_.lines(), 1u);
    DeviceRuntime* const device = AddCpu(*session);
    ASSERT_NE(device, nullptr);
    session->Mark(IterationMark(0));
    device->Free(device->Allocate(100 * kKiB, 0, Origin::kProgram));
    EXPECT_EQ(device->Stats().upstream, 1u);
    EXPECT_EQ(log_.lines(), 1u);
    EXPECT_THAT(session->StatsJson(), ::testing::HasSubstr("\"degraded\": \""));
  }

  LogCapture log_;
  TemporaryDirectory directory_;
  FakeUpstream upstream_;
  std::unique_ptr<HostDriver> driver_ = HostDriver::Create({.capacity = 0, .granularity = 64 * kKiB});
  std::unique_ptr<Session> session_;
  DeviceRuntime* device_ = nullptr;
};

}  // namespace stalloc
