// libstalloc.so on a GPU: real bytes through the pool, the heap and the arena. Skipped where there is no driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "allocator/driver/cuda_driver.h"
#include "proto/codec/plan_writer.h"
#include "proto/codec/trace_reader.h"
#include "tests/base/test_files.h"
#include "tests/capi/in_child.h"
#include "tests/runtime/plan_builder.h"

namespace stalloc {
namespace {

using ::testing::HasSubstr;

// The library's functions and the driver's, in one process with device 0's primary context current.
class Gpu {
 public:
  explicit Gpu(const StallocLibrary& library)
      : malloc_(STALLOC_FIND(library, stalloc_malloc)),
        free_(STALLOC_FIND(library, stalloc_free)),
        mark_(STALLOC_FIND(library, stalloc_mark)),
        stats_(STALLOC_FIND(library, stalloc_stats_json)) {
    DriverStatus status;
    driver_ = CudaDriver::Create(0, &status);
    if (driver_ != nullptr) current_ = std::make_unique<cuda::ContextScope>(driver_->api(), driver_->context());
  }

  [[nodiscard]] bool usable() const { return driver_ != nullptr; }
  [[nodiscard]] const cuda::Api& api() const { return driver_->api(); }
  void* Allocate(std::size_t bytes, cuda::Stream stream = nullptr) const {
    return malloc_(static_cast<ssize_t>(bytes), 0, stream);
  }
  void Free(void* pointer, std::size_t bytes, cuda::Stream stream = nullptr) const {
    free_(pointer, static_cast<ssize_t>(bytes), 0, stream);
  }
  void Iteration(int index) const { mark_(2, 1, 0, 0, index, nullptr, 0); }
  void Fill(void* pointer, std::size_t bytes, unsigned char key, cuda::Stream stream = nullptr) const {
    (void)api().MemsetD8Async(reinterpret_cast<cuda::DevicePointer>(pointer), key, bytes, stream);
  }
  // Waits for the device.
  [[nodiscard]] bool Holds(void* pointer, std::size_t bytes, unsigned char key) const {
    (void)api().CtxSynchronize();
    std::vector<unsigned char> host(bytes);
    (void)api().MemcpyDtoH(host.data(), reinterpret_cast<cuda::DevicePointer>(pointer), bytes);
    return std::all_of(host.begin(), host.end(), [&](unsigned char byte) { return byte == key; });
  }
  [[nodiscard]] std::string Stats() const {
    std::string text(stats_(nullptr, 0) + 1, '\0');
    stats_(text.data(), text.size());
    return text;
  }

 private:
  void* (*malloc_)(ssize_t, int, void*);
  void (*free_)(void*, ssize_t, int, void*);
  void (*mark_)(int, int, int, int, int, const char*, int);
  size_t (*stats_)(char*, size_t);
  std::unique_ptr<CudaDriver> driver_;
  std::unique_ptr<cuda::ContextScope> current_;
};

class CudaMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::Api::Get() == nullptr) GTEST_SKIP() << cuda::Api::LoadError();
  }
  static std::string OnGpu(const Environment& environment, const std::function<std::string(const Gpu&)>& body) {
    return InChild(environment, [&](const StallocLibrary& library) -> std::string {
      const Gpu gpu(library);
      return gpu.usable() ? body(gpu) : "no usable device";
    });
  }
  TemporaryDirectory directory_;
};

// Random blocks, each filled with a key of its own on the device and looked at before its free.
std::string Churn(const Gpu& gpu, int steps) {
  struct Block {
    void* pointer;
    std::size_t bytes;
    unsigned char key;
  };
  std::mt19937_64 random(5);
  std::vector<Block> blocks;
  for (int step = 0; step < steps; ++step) {
    if (blocks.size() < 16 && random() % 5 < 3) {
      const std::size_t bytes = 1 + random() % (6 * kMiB);
      blocks.push_back({gpu.Allocate(bytes), bytes, static_cast<unsigned char>(random())});
      gpu.Fill(blocks.back().pointer, bytes, blocks.back().key);
    } else if (!blocks.empty()) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      if (!gpu.Holds(blocks.back().pointer, blocks.back().bytes, blocks.back().key)) return "bytes were overwritten";
      gpu.Free(blocks.back().pointer, blocks.back().bytes);
      blocks.pop_back();
    }
  }
  for (const Block& block : blocks) gpu.Free(block.pointer, block.bytes);
  return "";
}

TEST_F(CudaMemoryTest, ThePoolHoldsWhatIsWritten) {
  EXPECT_EQ(OnGpu({}, [](const Gpu& gpu) { return Churn(gpu, 600); }), "");
}

TEST_F(CudaMemoryTest, ExactTracingHoldsWhatIsWrittenAndRecordsIt) {
  EXPECT_EQ(OnGpu({{"STALLOC_MODE", "Trace"}, {"STALLOC_MODEL_INFO_PATH", directory_.path()}},
                  [](const Gpu& gpu) { return Churn(gpu, 600); }),
            "");
  const absl::StatusOr<Trace> trace = ReadTrace(directory_.path() + "/trace/rank00000.trace");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_TRUE(trace->complete);
  EXPECT_GT(trace->allocations, 100u);
  EXPECT_EQ(trace->fingerprint.trace_mode, "exact");
  EXPECT_NE(trace->fingerprint.device_name, "");
}

TEST_F(CudaMemoryTest, APlanIsServedFromTheArena) {
  Plan plan;
  plan.fingerprint.world_size = 1;
  plan.devices.push_back(PlanBuilder(0).Each(3 * kMiB).Each(5 * kMiB).Build());
  ASSERT_TRUE(WritePlanFile(directory_.path() + "/output/plan/rank00000.plan", plan).ok());
  const std::string result =
      OnGpu({{"STALLOC_MODE", "Alloc"}, {"STALLOC_MODEL_INFO_PATH", directory_.path()}, {"STALLOC_STRICT", "1"}},
            [](const Gpu& gpu) -> std::string {
              gpu.Free(gpu.Allocate(512), 512);
              for (int i = 0; i < 4; ++i) {
                gpu.Iteration(i);
                void* const first = gpu.Allocate(3 * kMiB);
                void* const second = gpu.Allocate(5 * kMiB);
                void* const extra = gpu.Allocate(kMiB);
                gpu.Fill(first, 3 * kMiB, 1);
                gpu.Fill(second, 5 * kMiB, 2);
                gpu.Fill(extra, kMiB, 3);
                if (!gpu.Holds(first, 3 * kMiB, 1) || !gpu.Holds(second, 5 * kMiB, 2)) return "bytes";
                gpu.Free(first, 3 * kMiB);
                gpu.Free(second, 5 * kMiB);
                gpu.Free(extra, kMiB);
              }
              return gpu.Stats();
            });
  // The extra block has no slot: the arena grows for it.
  EXPECT_THAT(result, HasSubstr("\"requests\": 13, \"planned_hits\": 8, \"dynamic_hits\": 4, \"heap_hits\": 0, "
                                "\"upstream\": 1"));
  EXPECT_THAT(result, HasSubstr("\"arena_bytes\": 10485760"));
}

// Work of another stream that is not done at the free must not reach the next user of the bytes.
TEST_F(CudaMemoryTest, ARecordedStreamIsWaitedForBeforeTheBytesAreUsedAgain) {
  const std::string result = InChild({}, [](const StallocLibrary& library) -> std::string {
    const Gpu gpu(library);
    if (!gpu.usable()) return "no usable device";
    constexpr std::size_t kBytes = 256 * kMiB;
    cuda::Stream home = nullptr;
    cuda::Stream other = nullptr;
    (void)gpu.api().StreamCreate(&home, 1);  // non-blocking
    (void)gpu.api().StreamCreate(&other, 1);
    for (int round = 0; round < 5; ++round) {
      void* const pointer = gpu.Allocate(kBytes, home);
      (void)gpu.api().StreamSynchronize(home);
      for (int i = 0; i < 200; ++i) gpu.Fill(pointer, kBytes, 1, other);  // some ten milliseconds
      STALLOC_FIND(library, stalloc_record_stream)(pointer, other);
      gpu.Free(pointer, kBytes, home);
      void* const next = gpu.Allocate(kBytes, home);
      gpu.Fill(next, kBytes, 2, home);
      if (!gpu.Holds(next, kBytes, 2)) return "the other stream wrote into the next block";
      gpu.Free(next, kBytes, home);
    }
    return "";
  });
  EXPECT_EQ(result, "");
}

TEST_F(CudaMemoryTest, OutOfMemoryIsABadAllocAndTheNextRequestIsServed) {
  const std::string result = OnGpu({}, [](const Gpu& gpu) -> std::string {
    std::string what = "nothing thrown";
    try {
      (void)gpu.Allocate(std::size_t{1} << 46);
    } catch (const std::bad_alloc& error) {
      what = error.what();
    }
    void* const pointer = gpu.Allocate(kMiB);
    gpu.Fill(pointer, kMiB, 9);
    if (!gpu.Holds(pointer, kMiB, 9)) return "not served";
    return what;
  });
  EXPECT_THAT(result, HasSubstr("stalloc: CUDA out of memory. Tried to allocate 64.00 TiB. GPU 0 has"));
}

}  // namespace
}  // namespace stalloc
