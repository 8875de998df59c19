// The first CUDA device as a DriverUnderTest; absent, with the reason, where there is none.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "allocator/driver/cuda_driver.h"
#include "allocator/driver/cuda_events.h"
#include "tests/driver/driver_under_test.h"

namespace stalloc {

inline std::unique_ptr<CudaDriver> OpenCuda(int device, std::string* absent_because) {
  DriverStatus status;
  auto driver = CudaDriver::Create(device, &status);
  if (driver == nullptr) {
    *absent_because = "no CUDA device " + std::to_string(device) + ": " + status.call + " gives " +
                      std::to_string(status.native) + " " + cuda::Api::LoadError();
  }
  return driver;
}

// What a receiving process does with a descriptor. The library itself has no use for the call, so it is looked up here.
inline Address MapCudaExported(CudaDriver& driver, int descriptor, Bytes bytes) {
  using Import = cuda::Result (*)(cuda::AllocationHandle * handle, void* shareable, int handle_type);
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  const auto import = reinterpret_cast<Import>(dlsym(library, "cuMemImportFromShareableHandle"));
  PhysicalHandle handle = 0;
  Address address = 0;
  EXPECT_EQ(import(&handle, reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor)),
                   cuda::kHandleTypePosixFileDescriptor),
            cuda::kSuccess);
  EXPECT_TRUE(driver.Reserve(bytes, &address).ok());
  EXPECT_TRUE(driver.Map(address, bytes, handle).ok());
  EXPECT_TRUE(driver.SetAccess(address, bytes).ok());
  EXPECT_TRUE(driver.Release(handle).ok());
  return address;
}

inline DriverUnderTest CudaUnderTest() {
  DriverUnderTest under_test;
  std::unique_ptr<CudaDriver> driver = OpenCuda(0, &under_test.absent_because);
  if (driver == nullptr) return under_test;
  const cuda::Api* const api = &driver->api();
  const cuda::Context context = driver->context();
  under_test.write = [api, context](Address to, const void* from, Bytes bytes) {
    const cuda::ContextScope current(*api, context);
    EXPECT_EQ(api->MemcpyHtoD(to, from, bytes), cuda::kSuccess);
  };
  under_test.read = [api, context](void* to, Address from, Bytes bytes) {
    const cuda::ContextScope current(*api, context);
    EXPECT_EQ(api->MemcpyDtoH(to, from, bytes), cuda::kSuccess);
  };
  CudaDriver* const opened = driver.get();
  under_test.map_exported = [opened](int descriptor, Bytes bytes) {
    return MapCudaExported(*opened, descriptor, bytes);
  };
  under_test.unmap_exported = [opened](Address address, Bytes bytes) {
    EXPECT_TRUE(opened->Unmap(address, bytes).ok());
    EXPECT_TRUE(opened->ReleaseReservation(address, bytes).ok());
  };
  under_test.driver = std::move(driver);
  return under_test;
}

// Has the first CUDA device open; skipped where there is none.
class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string absent_because;
    driver_ = OpenCuda(0, &absent_because);
    if (driver_ == nullptr) {
      GTEST_SKIP() << absent_because;
    }
    api_ = &driver_->api();
  }

  std::unique_ptr<CudaDriver> driver_;
  const cuda::Api* api_ = nullptr;
};

// With streams that the legacy default stream does not order, events, and work to keep a stream busy.
class CudaStreamsTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (driver_ == nullptr) return;
    const cuda::ContextScope current(*api_, driver_->context());
    for (cuda::Stream& stream : streams_) {
      ASSERT_EQ(api_->StreamCreate(&stream, 1), cuda::kSuccess);
    }
    ASSERT_EQ(api_->MemAllocAsync(&written_, kWrittenBytes, nullptr), cuda::kSuccess);
    ASSERT_EQ(api_->StreamSynchronize(nullptr), cuda::kSuccess);
    events_ = std::make_unique<CudaEvents>(*api_, driver_->context());
  }
  void TearDown() override {
    if (driver_ == nullptr) return;
    const cuda::ContextScope current(*api_, driver_->context());
    EXPECT_TRUE(driver_->Synchronize().ok());
    EXPECT_EQ(api_->MemFreeAsync(written_, nullptr), cuda::kSuccess);
    for (const cuda::Stream stream : streams_) {
      EXPECT_EQ(api_->StreamDestroy(stream), cuda::kSuccess);
    }
  }

  // Some 20 ms of work, or more.
  void Work(std::size_t stream) {
    const cuda::ContextScope current(*api_, driver_->context());
    for (int i = 0; i < 64; ++i) {
      ASSERT_EQ(api_->MemsetD8Async(written_, static_cast<unsigned char>(i), kWrittenBytes, streams_[stream]),
                cuda::kSuccess);
    }
  }
  [[nodiscard]] StreamHandle Handle(std::size_t stream) const {
    return reinterpret_cast<StreamHandle>(streams_[stream]);
  }

  static constexpr Bytes kWrittenBytes = Bytes{1} << 30;
  std::unique_ptr<CudaEvents> events_;
  std::array<cuda::Stream, 3> streams_{};
  cuda::DevicePointer written_ = 0;
};

}  // namespace stalloc
