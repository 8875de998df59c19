// What a process is told that shares a tensor of ours: on real runtimes over the host driver.
#include "allocator/torch/cuda_ipc.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "allocator/driver/host_driver.h"
#include "tests/runtime/fake_upstream.h"
#include "tests/runtime/plan_builder.h"
#include "tests/runtime/temporary_directory.h"

namespace stalloc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Bytes kBlock = Bytes{1} << 20;

class CudaIpcTest : public ::testing::Test {
 protected:
  CudaIpcTest() : driver_(HostDriver::Create({.capacity = 0, .granularity = 64 * 1024})) {}

  // What the error says; empty: the address may be shared.
  static std::string WhatOf(const DeviceRuntime& runtime, const void* pointer) {
    try {
      CheckShareable(runtime, 3, pointer);
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return {};
  }

  FakeUpstream upstream_;
  std::unique_ptr<HostDriver> driver_;
};

TEST_F(CudaIpcTest, ABlockOfTheArenaIsRefusedAndAnotherIsNot) {
  const DevicePlan plan = PlanBuilder().Each(kBlock).Build();
  DeviceRuntime runtime({.device = kCpuDevice, .upstream = &upstream_, .driver = driver_.get(), .plan = &plan});
  runtime.OnMark(IterationMark(0));
  void* const planned = runtime.Allocate(kBlock, 0, Origin::kProgram);
  void* const pooled = runtime.Allocate(kBlock, 0, Origin::kCaptured);  // as inside use_mem_pool
  ASSERT_TRUE(runtime.Owns(planned));
  EXPECT_THAT(WhatOf(runtime, planned), AllOf(HasSubstr("planned arena of cuda:3"), HasSubstr("CUDA IPC"),
                                              HasSubstr("with torch.cuda.use_mem_pool(torch.cuda.MemPool()):"),
                                              HasSubstr("STALLOC_MODE=Torch"), Not(HasSubstr("FAST_MODE"))));
  EXPECT_NE(WhatOf(runtime, static_cast<char*>(planned) + 512), "") << "a view's storage may begin inside";
  EXPECT_EQ(WhatOf(runtime, pooled), "");
  runtime.Free(planned);
  runtime.Free(pooled);
}

TEST_F(CudaIpcTest, ABlockOfAnExactTracesHeapIsRefused) {
  const TemporaryDirectory directory;
  Result<std::unique_ptr<Recorder>> recorder =
      Recorder::Open({.path = directory.path() + "/t.trace", .fingerprint = {}});
  ASSERT_TRUE(recorder.ok()) << recorder.error();
  DeviceRuntime runtime({.device = kCpuDevice,
                         .upstream = &upstream_,
                         .driver = driver_.get(),
                         .recorder = recorder.value().get(),
                         .exact = true});
  void* const block = runtime.Allocate(kBlock, 0, Origin::kProgram);
  ASSERT_TRUE(runtime.Owns(block));
  EXPECT_THAT(WhatOf(runtime, block),
              AllOf(HasSubstr("heap of an exact trace of cuda:3"), HasSubstr("torch.cuda.MemPool()"),
                    HasSubstr("STALLOC_TRACE_FAST_MODE=1"), Not(HasSubstr("STALLOC_MODE=Torch"))));
  runtime.Free(block);
  recorder.value()->Close();
}

TEST_F(CudaIpcTest, WithoutAPlanEverythingIsTheNativeAllocators) {
  DeviceRuntime runtime({.device = kCpuDevice, .upstream = &upstream_, .driver = driver_.get()});
  void* const block = runtime.Allocate(kBlock, 0, Origin::kProgram);
  EXPECT_EQ(WhatOf(runtime, block), "");
  EXPECT_EQ(WhatOf(runtime, nullptr), "");
  runtime.Free(block);
}

}  // namespace
}  // namespace stalloc
