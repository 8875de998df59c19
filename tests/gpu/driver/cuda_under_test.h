// The first CUDA device as a DriverUnderTest; absent, with the reason, where there is none.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
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

}  // namespace stalloc
