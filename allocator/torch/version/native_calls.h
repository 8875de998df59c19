// Calls of torch's native allocator in one form for all supported versions, and which of its functions are here.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <string>
#include <vector>

#include "allocator/torch/cuda_history.h"

namespace stalloc::version {

using Native = c10::cuda::CUDACachingAllocator::CUDAAllocator;
using MempoolId = c10::MempoolId_t;
using c10::cuda::CUDACachingAllocator::CreateContextFn;
using c10::cuda::CUDACachingAllocator::RecordContext;
using c10::cuda::CUDACachingAllocator::SnapshotInfo;

template <typename Allocator>
concept SnapshotsMayLeaveTracesOut = requires(Allocator& allocator) {
  allocator.snapshot(MempoolId{}, false);
};

template <typename Allocator>
concept HistoriesMaySkipActions = requires(Allocator& allocator, const std::vector<std::string>& actions) {
  allocator.recordHistory(true, nullptr, 1, RecordContext::NEVER, false, actions);
};

template <typename Allocator>
concept HasUserMetadata = requires(Allocator& allocator) {
  allocator.getUserMetadata();
};

template <typename Allocator>
SnapshotInfo Snapshot(Allocator& native, MempoolId pool, bool include_traces) {
  if constexpr (SnapshotsMayLeaveTracesOut<Allocator>) {
    return native.snapshot(pool, include_traces);
  } else {
    return native.snapshot(pool);
  }
}

template <typename Allocator>
void RecordHistory(Allocator& native, const AllocationHistory::Options& options) {
  if constexpr (HistoriesMaySkipActions<Allocator>) {
    native.recordHistory(options.enabled, options.gather, options.max_entries, options.when, options.clear,
                         options.skip_actions);
  } else {
    native.recordHistory(options.enabled, options.gather, options.max_entries, options.when, options.clear);
  }
}

// What the program said of its next allocations; empty where torch has no words for them.
template <typename Allocator>
std::string UserMetadataOf(Allocator& native) {
  if constexpr (HasUserMetadata<Allocator>) {
    return native.getUserMetadata();
  } else {
    return {};
  }
}

}  // namespace stalloc::version
