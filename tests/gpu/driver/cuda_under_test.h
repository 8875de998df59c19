// The first CUDA device as a DriverUnderTest; absent, with the reason, where there is none.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "allocator/driver/cuda_driver.h"
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

inline DriverUnderTest CudaUnderTest() {
  DriverUnderTest under_test;
  std::unique_ptr<CudaDriver> driver = OpenCuda(0, &under_test.absent_because);
  if (driver == nullptr) {
    return under_test;
  }
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
  under_test.driver = std::move(driver);
  return under_test;
}

}  // namespace stalloc
