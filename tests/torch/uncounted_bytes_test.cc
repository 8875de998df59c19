#include "allocator/torch/uncounted_bytes.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "allocator/base/import_table.h"
#include "allocator/torch/nccl_watch.h"
#include "tests/torch/libtorch_cuda.h"

namespace stalloc {
namespace {

using Cause = UncountedBytes::Cause;
using ::testing::HasSubstr;
using ::testing::Not;

class UncountedBytesTest : public ::testing::Test {
 protected:
  // What the device has less, and allocators do not count.
  std::atomic<std::int64_t> taken_{1000};
  std::atomic<bool> known_{true};
  std::atomic<c10::DeviceIndex> device_{0};
  UncountedBytes bytes_{[this]() -> std::optional<UncountedBytes::Sample> {
    if (!known_) return std::nullopt;
    return UncountedBytes::Sample{device_, taken_};
  }};
};

TEST_F(UncountedBytesTest, WhatACallTakesIsOfItsCauseAndDevice) {
  EXPECT_EQ(bytes_.During(Cause::kCommunicators,
                          [&] {
                            taken_ += 500;
                            return 7;
                          }),
            7);
  device_ = 3;
  bytes_.During(Cause::kGraphs, [&] { return taken_ += 20; });
  EXPECT_EQ(bytes_.Of(0, Cause::kCommunicators), 500);
  EXPECT_EQ(bytes_.Of(0, Cause::kGraphs), 0);
  EXPECT_EQ(bytes_.Of(3, Cause::kGraphs), 20);
}

TEST_F(UncountedBytesTest, ACallWithinAnotherCountsOnce) {
  bytes_.During(Cause::kCommunicators, [&] {
    taken_ += 100;
    return bytes_.During(Cause::kCommunicators, [&] { return taken_ += 10; });
  });
  EXPECT_EQ(bytes_.Of(0, Cause::kCommunicators), 110);
}

TEST_F(UncountedBytesTest, WhatIsGivenBackMeanwhileIsNoDebt) {
  bytes_.During(Cause::kGraphs, [&] { return taken_ -= 300; });
  EXPECT_EQ(bytes_.Of(0, Cause::kGraphs), 0);
}

TEST_F(UncountedBytesTest, NothingIsCountedWhereItCannotBeKnown) {
  known_ = false;
  bytes_.During(Cause::kGraphs, [&] { return taken_ += 300; });
  known_ = true;
  bytes_.During(Cause::kGraphs, [&] {
    known_ = false;
    return taken_ += 300;
  });
  known_ = true;
  bytes_.During(Cause::kGraphs, [&] {
    device_ = 1;
    return taken_ += 300;
  });
  EXPECT_EQ(bytes_.Of(0, Cause::kGraphs) + bytes_.Of(1, Cause::kGraphs), 0);
  EXPECT_EQ(bytes_.Of(-1, Cause::kGraphs), 0);
}

TEST_F(UncountedBytesTest, ThreadsCountTogether) {
  constexpr Bytes kThreads = 4;
  constexpr Bytes kCalls = 1000;
  UncountedBytes shared([]() -> std::optional<UncountedBytes::Sample> {
    static thread_local std::int64_t taken = 0;
    return UncountedBytes::Sample{0, taken += 5};
  });
  std::vector<std::thread> threads;
  for (Bytes i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (Bytes call = 0; call < kCalls; ++call) shared.During(Cause::kGraphs, [] { return 0; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared.Of(0, Cause::kGraphs), 5 * kThreads * kCalls);
}

// In torch's import tables: the library of the torch that is built against, as `import torch` loads it.
TEST(NcclWatchTest, TakesThePlaceOfNcclsFunctionsInLibtorchCuda) {
  if (const std::string why = LoadLibtorchCuda(); !why.empty()) GTEST_SKIP() << why;
  const ImportTable table = ImportTable::Of("libtorch_cuda.so").value();
  const auto library_of = [&](const char* symbol) {
    void* const function = table.Function(symbol).value();
    Dl_info info;
    EXPECT_NE(dladdr(function, &info), 0) << symbol;
    return std::string(info.dli_fname);
  };
  EXPECT_THAT(library_of("ncclAllReduce"), HasSubstr("nccl"));
  std::int64_t taken = 0;
  UncountedBytes bytes([&]() -> std::optional<UncountedBytes::Sample> {
    return UncountedBytes::Sample{0, taken += 3};
  });
  const Status watched = WatchNccl(bytes);
  ASSERT_TRUE(watched.ok()) << watched.error();
  for (const char* const symbol : {"ncclCommInitRankConfig", "ncclCommSplit", "ncclAllReduce", "ncclReduceScatter",
                                   "ncclAllGather", "ncclSend", "ncclRecv", "ncclGroupEnd"}) {
    EXPECT_THAT(library_of(symbol), Not(HasSubstr("libnccl"))) << symbol;
  }
  EXPECT_THAT(library_of("ncclGetVersion"), HasSubstr("nccl")) << "the others stay";

  // No communicator was made yet, so nothing is measured; NCCL answers as before (no group is open: an error).
  const auto group_end = reinterpret_cast<int (*)()>(table.Function("ncclGroupEnd").value());
  EXPECT_NE(group_end(), 0);
  EXPECT_EQ(taken, 0);
  // One that cannot be made: the calls that come next are measured.
  const auto split = reinterpret_cast<int (*)(void*, int, int, void**, void*)>(table.Function("ncclCommSplit").value());
  void* made = nullptr;
  EXPECT_NE(split(nullptr, 0, 0, &made, nullptr), 0);
  for (int call = 0; call < kWatchedCalls + 10; ++call) EXPECT_NE(group_end(), 0);
  EXPECT_EQ(taken, 2 * 3 * (kWatchedCalls + 1));
  EXPECT_EQ(bytes.Of(0, Cause::kCommunicators), 3 * (kWatchedCalls + 1));
}

}  // namespace
}  // namespace stalloc
