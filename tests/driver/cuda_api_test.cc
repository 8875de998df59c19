// The CUDA side on any machine: where there is no driver, that is a status and not a crash.
#include "allocator/driver/cuda_api.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "allocator/driver/cuda_driver.h"

namespace stalloc {
namespace {

TEST(CudaApiTest, AMissingLibraryIsNamed) {
  cuda::Api api;
  char error[256] = "";
  EXPECT_FALSE(cuda::Api::Load("libno-such-driver.so.1", &api, error, sizeof(error)));
  EXPECT_NE(std::strstr(error, "libno-such-driver.so.1"), nullptr) << error;
  EXPECT_EQ(api.Init, nullptr);
}

TEST(CudaApiTest, ALibraryThatIsNoDriverNamesTheFirstMissingFunction) {
  cuda::Api api;
  char error[256] = "";
  EXPECT_FALSE(cuda::Api::Load("libc.so.6", &api, error, sizeof(error)));
  EXPECT_NE(std::strstr(error, "cuInit"), nullptr) << error;
  EXPECT_EQ(api.Init, nullptr);
}

TEST(CudaApiTest, TheTableIsWholeOrTheErrorSaysWhy) {
  const cuda::Api* const api = cuda::Api::Get();
  if (api == nullptr) {
    EXPECT_STRNE(cuda::Api::LoadError(), "");
  } else {
    EXPECT_STREQ(cuda::Api::LoadError(), "");
    EXPECT_NE(api->MemCreate, nullptr);
    EXPECT_NE(api->ThreadExchangeStreamCaptureMode, nullptr);
  }
  EXPECT_EQ(cuda::Api::Get(), api);
}

TEST(CudaApiTest, ErrorsBecomeTheCodesThatCallersActOn) {
  EXPECT_TRUE(cuda::ToStatus(cuda::kSuccess, "x").ok());
  EXPECT_EQ(cuda::ToStatus(cuda::kErrorOutOfMemory, "x").code, DriverCode::kOutOfMemory);
  EXPECT_EQ(cuda::ToStatus(cuda::kErrorDeinitialized, "x").code, DriverCode::kShuttingDown);
  EXPECT_EQ(cuda::ToStatus(cuda::kErrorContextIsDestroyed, "x").code, DriverCode::kShuttingDown);
  EXPECT_EQ(cuda::ToStatus(cuda::kErrorInvalidValue, "x").code, DriverCode::kInvalid);
  EXPECT_EQ(cuda::ToStatus(cuda::kErrorNoDevice, "x").code, DriverCode::kUnavailable);
  const DriverStatus other = cuda::ToStatus(719, "cuLaunch");
  EXPECT_EQ(other.code, DriverCode::kFailed);
  EXPECT_EQ(other.native, 719);
  EXPECT_STREQ(other.call, "cuLaunch");
}

TEST(CudaDriverTest, AnAbsentDeviceIsUnavailable) {
  DriverStatus status;
  const auto driver = CudaDriver::Create(4096, &status);
  EXPECT_EQ(driver, nullptr);
  EXPECT_EQ(status.code, DriverCode::kUnavailable) << status.call << " " << status.native;
}

}  // namespace
}  // namespace stalloc
