// TracedTest: a DeviceRuntime over the host driver, whose events a recorder writes.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "allocator/driver/host_driver.h"
#include "allocator/runtime/device_runtime.h"
#include "proto/codec/trace_reader.h"
#include "tests/base/test_files.h"
#include "tests/runtime/fake_upstream.h"
#include "tests/runtime/log_capture.h"

namespace stalloc {

class TracedTest : public testing::Test {
 protected:
  // `parts`: what the runtime has besides device, upstream, driver and recorder.
  void StartTraced(DeviceRuntime::Parts parts, Bytes capacity = 0, Bytes granularity = 64 * 1024) {
    driver_ = HostDriver::Create({.capacity = capacity, .granularity = granularity});
    Result<std::unique_ptr<Recorder>> opened = Recorder::Open({.path = Path(), .fingerprint = {}});
    ASSERT_TRUE(opened.ok()) << opened.error();
    recorder_ = std::move(opened).value();
    parts.device = kCpuDevice;
    parts.upstream = &upstream_;
    parts.driver = driver_.get();
    parts.recorder = recorder_.get();
    runtime_ = std::make_unique<DeviceRuntime>(parts);
  }
  [[nodiscard]] std::string Path() const { return directory_.path() + "/rank00000.trace"; }
  Trace Finish() {
    recorder_->Close();
    absl::StatusOr<Trace> trace = ReadTrace(Path());
    EXPECT_TRUE(trace.ok()) << trace.status();
    return trace.ok() ? *trace : Trace();
  }

  LogCapture log_;
  TemporaryDirectory directory_;
  FakeUpstream upstream_;
  std::unique_ptr<HostDriver> driver_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<DeviceRuntime> runtime_;
};

}  // namespace stalloc
