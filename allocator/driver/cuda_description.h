// What a CUDA device is, as its driver says: for fingerprints of traces and plans.
//
// It comes from the driver, not from the CUDA runtime: the runtime's struct for it has another layout and another
// function in each major version, and a program's runtime need not be the one that a library was compiled with.
#pragma once

#include <string>

#include "allocator/driver/cuda_api.h"
#include "proto/model/units.h"

namespace stalloc {

struct CudaDescription {
  std::string name;  // as "NVIDIA H200"
  Bytes bytes = 0;
  std::string driver_version;  // as "13.0"
};

// Facts that the driver does not report are empty. REQUIRES: the driver is initialised.
[[nodiscard]] CudaDescription DescribeCuda(const cuda::Api& api, int ordinal);

}  // namespace stalloc
