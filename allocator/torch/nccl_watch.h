// Calls of NCCL that take device memory for themselves: communicators as they are made, and their first collectives,
// which connect ranks. NCCL's memory comes from the driver, so that no allocator counts it.
#pragma once

#include "allocator/torch/uncounted_bytes.h"
#include "proto/model/result.h"

namespace stalloc {

// From now on the calls of libtorch_cuda are counted (UncountedBytes::Cause::kCommunicators), each collective only
// among the first kWatchedCalls after a communicator was made. Once, before torch calls NCCL; `uncounted` lives for
// ever. Error: this torch has no NCCL, or it is not imported; then nothing is changed.
Status WatchNccl(UncountedBytes& uncounted);

inline constexpr int kWatchedCalls = 64;

}  // namespace stalloc
