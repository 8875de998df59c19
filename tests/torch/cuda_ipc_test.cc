// Blocks of the arena in torch's format for other processes, on real runtimes over the host driver. The reader here
// follows the rule of torch's, with the host's memory for the device's.
#include "allocator/torch/cuda_ipc.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "allocator/driver/forwarding_driver.h"
#include "allocator/driver/host_driver.h"
#include "tests/arena/exported_view.h"
#include "tests/base/test_files.h"
#include "tests/runtime/fake_upstream.h"
#include "tests/runtime/pattern.h"
#include "tests/runtime/plan_builder.h"

namespace stalloc {
namespace {

using ::c10::cuda::CUDACachingAllocator::ShareableHandle;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using version::SegmentFormat;

constexpr Bytes kChunk = Bytes{64} << 10;
constexpr c10::DeviceIndex kDevice = 3;

// What torch's getIpcDevPtr and ExpandableSegment::fromShared take from a text.
struct Received {
  int version = 0;
  int type = 0;
  int handle_type = 1;  // as the reader has it where the text does not say: descriptors
  struct {
    pid_t process;
    std::size_t segment_bytes;
    std::size_t handles;
  } header{};
  std::vector<int> descriptors;  // of the sender
  bool whole = false;            // no byte was missing, and none is left

  explicit Received(const std::string& text) {
    std::istringstream stream(text);
    version = stream.get();
    type = stream.get();
    stream.read(reinterpret_cast<char*>(&header), sizeof(header));
    if (version == static_cast<int>(SegmentFormat::kTyped)) {
      int padding = 0;
      stream.read(reinterpret_cast<char*>(&handle_type), sizeof(handle_type));
      stream.read(reinterpret_cast<char*>(&padding), sizeof(padding));
    }
    for (std::size_t i = 0; i < header.handles && stream; ++i) {
      int descriptor = -1;
      stream.read(reinterpret_cast<char*>(&descriptor), sizeof(descriptor));
      descriptors.push_back(descriptor);
    }
    whole = !stream.fail() && stream.peek() == std::istringstream::traits_type::eof();
  }

  // Descriptors of this process for the sender's; fewer where the system refuses one.
  [[nodiscard]] std::vector<int> Fetch() const {
    std::vector<int> fetched;
    const long process = syscall(SYS_pidfd_open, header.process, 0);
    for (const int descriptor : descriptors) {
      const long own = syscall(SYS_pidfd_getfd, process, descriptor, 0);
      if (own < 0) break;
      fetched.push_back(static_cast<int>(own));
    }
    return fetched;
  }
};

class CudaIpcTest : public ::testing::Test {
 protected:
  CudaIpcTest() : driver_(HostDriver::Create({.capacity = 0, .granularity = kChunk})) {}

  std::unique_ptr<DeviceRuntime> Serve(std::initializer_list<Bytes> slots, VmmDriver* driver = nullptr) {
    PlanBuilder builder;
    for (const Bytes slot : slots) builder.Each(slot);
    plan_ = builder.Build();
    auto runtime =
        std::make_unique<DeviceRuntime>(DeviceRuntime::Parts{.device = kCpuDevice,
                                                             .upstream = &upstream_,
                                                             .driver = driver != nullptr ? driver : driver_.get(),
                                                             .plan = &plan_,
                                                             .dynamic = true});
    runtime->OnMark(IterationMark(0));
    return runtime;
  }
  // What the error says; empty: the address is shared.
  static std::string WhatOf(const DeviceRuntime& runtime, const void* pointer) {
    try {
      (void)ShareBlock(runtime, kDevice, pointer);
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return {};
  }

  FakeUpstream upstream_;
  std::unique_ptr<HostDriver> driver_;
  DevicePlan plan_;
};

TEST_F(CudaIpcTest, TheFormatUpTo212IsTorchsToTheByte) {
  const std::string text = SharedSegment(SegmentFormat::kUntyped, 0x01020304,
                                         {.offset = 7, .chunk_bytes = 0x200000, .descriptors = {5, 0x0102}});
  const unsigned char expected[] = {2, 'e',                        // version, type
                                    4, 3,   2,    1, 0, 0, 0, 0,   // process, padding
                                    0, 0,   0x20, 0, 0, 0, 0, 0,   // bytes of a handle
                                    2, 0,   0,    0, 0, 0, 0, 0,   // number of handles
                                    5, 0,   0,    0, 2, 1, 0, 0};  // descriptors
  EXPECT_EQ(text, std::string(std::begin(expected), std::end(expected)));
}

TEST_F(CudaIpcTest, TheFormatFrom213OnIsTorchsToTheByte) {
  const std::string text =
      SharedSegment(SegmentFormat::kTyped, 0x01020304, {.offset = 7, .chunk_bytes = 0x200000, .descriptors = {5}});
  const unsigned char expected[] = {3, 'e',                       // version, type
                                    4, 3,   2,    1, 0, 0, 0, 0,  // process, padding
                                    0, 0,   0x20, 0, 0, 0, 0, 0,  // bytes of a handle
                                    1, 0,   0,    0, 0, 0, 0, 0,  // number of handles
                                    1, 0,   0,    0, 0, 0, 0, 0,  // descriptors, padding
                                    5, 0,   0,    0};             // descriptor
  EXPECT_EQ(text, std::string(std::begin(expected), std::end(expected)));
}

// torch takes a text of 64 bytes for a cudaIpcMemHandle_t of versions before the format had a version.
TEST_F(CudaIpcTest, NoLengthIsThatOfTheOldestFormat) {
  for (const SegmentFormat format : {SegmentFormat::kUntyped, SegmentFormat::kTyped}) {
    for (std::size_t handles = 1; handles < 100; ++handles) {
      const std::string text = SharedSegment(format, 1, {0, kChunk, std::vector<int>(handles, 3)});
      EXPECT_NE(text.size(), 64u);
      EXPECT_TRUE(Received(text).whole);
    }
  }
}

TEST_F(CudaIpcTest, ABlockIsTheRunOfItsChunksAndItsPlaceInThem) {
  const auto runtime = Serve({kMiB, 512, 700, 3 * kChunk});
  const Bytes sizes[] = {kMiB, 512, 700, 3 * kChunk};
  for (const Bytes bytes : sizes) {
    void* const block = runtime->Allocate(bytes, 0, Origin::kProgram);
    ASSERT_TRUE(runtime->Owns(block));
    FillPattern(block, bytes, static_cast<std::uint8_t>(bytes % 251));
    const ShareableHandle shared = ShareBlock(*runtime, kDevice, block);
    const Received received(shared.handle);
    EXPECT_EQ(received.version, static_cast<int>(version::FormatOfSegments()));
    EXPECT_EQ(received.handle_type, 1);
    EXPECT_EQ(received.type, 'e');
    EXPECT_TRUE(received.whole);
    EXPECT_EQ(received.header.process, getpid());
    EXPECT_EQ(received.header.segment_bytes, kChunk);
    EXPECT_LT(shared.offset, static_cast<std::ptrdiff_t>(kChunk));
    const std::vector<int> fetched = received.Fetch();
    ASSERT_EQ(fetched.size(), received.header.handles);
    const ExportedView view(fetched, received.header.segment_bytes);
    ASSERT_NE(view.begin(), nullptr);
    EXPECT_TRUE(HasPattern(view.begin() + shared.offset, bytes, static_cast<std::uint8_t>(bytes % 251)));
    for (const int descriptor : fetched) close(descriptor);
  }
}

TEST_F(CudaIpcTest, BlocksOfOneChunkAreOneSegmentToTheReceiver) {
  const auto runtime = Serve({2 * kChunk, 1024, 2048});
  (void)runtime->Allocate(2 * kChunk, 0, Origin::kProgram);
  auto* const first = static_cast<char*>(runtime->Allocate(1024, 0, Origin::kProgram));
  auto* const second = static_cast<char*>(runtime->Allocate(2048, 0, Origin::kProgram));
  ASSERT_TRUE(runtime->Owns(first) && runtime->Owns(second));
  const ShareableHandle one = ShareBlock(*runtime, kDevice, first);
  const ShareableHandle other = ShareBlock(*runtime, kDevice, second);
  EXPECT_EQ(one.handle, other.handle) << "the receiver maps it once";
  EXPECT_EQ(other.offset - one.offset, second - first);
  EXPECT_EQ(ShareBlock(*runtime, kDevice, first + 512).offset, one.offset + 512) << "a storage may begin inside";
  EXPECT_EQ(ShareBlock(*runtime, kDevice, first).handle, one.handle) << "as often as it is shared";
}

// 0: all is well; 77: the system does not let this process have the descriptors.
int ReadAndWrite(const ShareableHandle& shared, Bytes bytes) {
  const Received received(shared.handle);
  const std::vector<int> fetched = received.Fetch();
  if (fetched.size() < received.header.handles) return 77;
  const ExportedView view(fetched, received.header.segment_bytes);
  if (view.begin() == nullptr || !HasPattern(view.begin() + shared.offset, bytes, 41)) return 1;
  FillPattern(view.begin() + shared.offset, bytes / 2, 42);
  return 0;
}

TEST_F(CudaIpcTest, AnotherProcessReadsABlockAndWritesIt) {
  const auto runtime = Serve({kMiB});
  auto* const block = static_cast<char*>(runtime->Allocate(kMiB, 0, Origin::kProgram));
  FillPattern(block, kMiB, 41);
  const ShareableHandle shared = ShareBlock(*runtime, kDevice, block);
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // where only parents may look at their children
  const pid_t child = fork();                 // its arena is a copy, so that only what it fetches is the parent's
  ASSERT_GE(child, 0);
  if (child == 0) _exit(ReadAndWrite(shared, kMiB));
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no pidfd_getfd for a child here";
  ASSERT_EQ(status, 0);
  EXPECT_TRUE(HasPattern(block, kMiB / 2, 42));
  EXPECT_TRUE(HasPattern(block + kMiB / 2, kMiB / 2, 41));
  runtime->Free(block);
}

// Errors --------------------------------------------------------------------------------------------------------------

const auto kWaysOutOfAPlan = AllOf(
    HasSubstr("planned arena of cuda:3"), HasSubstr("CUDA IPC"),
    HasSubstr(
        "`with torch.cuda.use_mem_pool(pool):`, where `pool = torch.cuda.MemPool()` and `pool.snapshot()` came before"),
    HasSubstr("STALLOC_MODE=Torch"), Not(HasSubstr("FAST_MODE")));

class NotExportable final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  DriverStatus Export(PhysicalHandle, int*) noexcept override {
    return {DriverCode::kFailed, 801, "cuMemExportToShareableHandle"};
  }
};

TEST_F(CudaIpcTest, MemoryThatTheDeviceDoesNotExportIsRefused) {
  NotExportable driver(*driver_);
  const auto runtime = Serve({kMiB}, &driver);
  void* const block = runtime->Allocate(kMiB, 0, Origin::kProgram);
  ASSERT_TRUE(runtime->Owns(block));
  EXPECT_THAT(WhatOf(*runtime, block),
              AllOf(kWaysOutOfAPlan,
                    HasSubstr("the driver does not export its memory: cuMemExportToShareableHandle gave 801")));
  runtime->Free(block);
}

TEST_F(CudaIpcTest, ABlockInChunksOfSeveralSizesIsRefused) {
  driver_ = HostDriver::Create({.capacity = 128 * kMiB, .granularity = 4096});  // which has little to spare
  constexpr Bytes kAll = 64 * kMiB + 12288;                                     // the last chunk has the remainder
  const auto runtime = Serve({kAll});
  void* const block = runtime->Allocate(kAll, 0, Origin::kProgram);
  ASSERT_TRUE(runtime->Owns(block));
  EXPECT_THAT(WhatOf(*runtime, block),
              AllOf(kWaysOutOfAPlan, HasSubstr("it lies in chunks of several sizes, 8192 and 4096 bytes. Allocate")));
  runtime->Free(block);
}

TEST_F(CudaIpcTest, WhereNoBlockIsInUseNothingIsShared) {
  const auto runtime = Serve({kMiB});
  void* const planned = runtime->Allocate(kMiB, 0, Origin::kProgram);
  void* const pooled = runtime->Allocate(kMiB, 0, Origin::kCaptured);  // as of a MemPool whose snapshot was taken
  EXPECT_FALSE(runtime->Owns(pooled)) << "the native allocator is asked";
  runtime->Free(planned);
  ASSERT_TRUE(runtime->Owns(planned));
  EXPECT_THAT(WhatOf(*runtime, planned), AllOf(kWaysOutOfAPlan, HasSubstr("no block of the arena is in use there")));
  runtime->Free(pooled);
}

TEST_F(CudaIpcTest, AForkedChildSharesNothingOfItsParents) {
  const auto runtime = Serve({kMiB});
  void* const block = runtime->Allocate(kMiB, 0, Origin::kProgram);
  runtime->BecomeInert();
  EXPECT_THAT(WhatOf(*runtime, block), AllOf(kWaysOutOfAPlan, HasSubstr("forked")));
}

TEST_F(CudaIpcTest, ABlockOfAnExactTraceIsSharedAndARefusalNamesItsWaysOut) {
  const TemporaryDirectory directory;
  Result<std::unique_ptr<Recorder>> recorder =
      Recorder::Open({.path = directory.path() + "/t.trace", .fingerprint = {}});
  ASSERT_TRUE(recorder.ok()) << recorder.error();
  DeviceRuntime runtime({.device = kCpuDevice,
                         .upstream = &upstream_,
                         .driver = driver_.get(),
                         .recorder = recorder.value().get(),
                         .exact = true});
  void* const block = runtime.Allocate(kMiB, 0, Origin::kProgram);
  ASSERT_TRUE(runtime.Owns(block));
  EXPECT_EQ(ShareBlock(runtime, 3, block).offset, 0);
  runtime.Free(block);
  EXPECT_THAT(WhatOf(runtime, block),
              AllOf(HasSubstr("heap of an exact trace of cuda:3"), HasSubstr("no block of the arena is in use there"),
                    HasSubstr("torch.cuda.MemPool()"), HasSubstr("STALLOC_TRACE_FAST_MODE=1"),
                    Not(HasSubstr("STALLOC_MODE=Torch"))));
  recorder.value()->Close();
}

}  // namespace
}  // namespace stalloc
