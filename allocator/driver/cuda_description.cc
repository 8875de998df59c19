#include "allocator/driver/cuda_description.h"

#include <array>

namespace stalloc {

CudaDescription DescribeCuda(const cuda::Api& api, int ordinal) {
  CudaDescription description;
  int version = 0;
  if (api.DriverGetVersion(&version) == cuda::kSuccess) {
    description.driver_version = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  }
  cuda::Device device = 0;
  if (api.DeviceGet(&device, ordinal) != cuda::kSuccess) return description;
  std::array<char, 256> name{};
  if (api.DeviceGetName(name.data(), static_cast<int>(name.size()), device) == cuda::kSuccess) {
    description.name = name.data();
  }
  std::size_t bytes = 0;
  if (api.DeviceTotalMem(&bytes, device) == cuda::kSuccess) description.bytes = bytes;
  return description;
}

}  // namespace stalloc
