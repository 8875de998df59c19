// Lets torch's autograd run on fake CUDA tensors in a process without a GPU.
//
// Where torch has CUDA but the machine has none, the engine queries CUDA for streams and contexts of the device of
// every gradient, and fails. Here its questions are answered as for devices in use that share one stream.
#pragma once

#include "proto/model/result.h"

namespace stalloc {

// For the rest of the process no call of torch's engine reaches a CUDA device. Call once, before CUDA is initialised;
// nothing in a torch without CUDA. Error: this torch lacks what is to be replaced.
[[nodiscard]] Status FakeCuda();

}  // namespace stalloc
