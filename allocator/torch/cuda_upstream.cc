#include "allocator/torch/cuda_upstream.h"

#include <memory>
#include <utility>

#include "allocator/base/log.h"
#include "allocator/torch/version/native_calls.h"

namespace stalloc {

thread_local std::exception_ptr* CudaUpstream::free_error_ = nullptr;
thread_local const c10::cuda::CUDAStream* CudaUpstream::recording_ = nullptr;

void* CudaUpstream::Allocate(Bytes requested, StreamHandle stream) {
  if (limited_.load(std::memory_order_relaxed)) limit_hook_();
  const OomRelay::Querying querying;
  return native_->raw_alloc_with_stream(requested, reinterpret_cast<cudaStream_t>(stream));
}

void* CudaUpstream::AllocateAgain(Bytes requested, StreamHandle stream) {
  relay_.Retract(device_);
  return Allocate(requested, stream);
}

void CudaUpstream::Free(void* pointer) noexcept {
  try {
    cached_deleter_(pointer);
  } catch (...) {
    delete free_error_;
    free_error_ = new std::exception_ptr(std::current_exception());
  }
}

// The native allocator skips blocks that do not carry its own deleter, so it gets a DataPtr that does, and loses it
// again before that would free the block.
void CudaUpstream::RecordStream(void* pointer, StreamHandle stream) {
  c10::DataPtr block(pointer, pointer, cached_deleter_, c10::Device(c10::DeviceType::CUDA, device_));
  const c10::cuda::CUDAStream bare =
      recording_ != nullptr ? *recording_
                            : c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(stream), device_);
  try {
    native_->recordStream(block, bare);
  } catch (...) {
    block.release_context();
    throw;
  }
  block.release_context();
}

bool CudaUpstream::IsOutOfMemory(const std::exception_ptr& thrown) const {
  try {
    std::rethrow_exception(thrown);
  } catch (const c10::OutOfMemoryError&) {
    return true;
  } catch (...) {
    return false;
  }
}

// For all pools but those of live graphs, which the native allocator keeps by itself.
void CudaUpstream::ReleaseCached() noexcept {
  const CaptureGate::Passage passage(captures_);
  if (!passage) return;
  try {
    if (release_hook_) release_hook_();
    native_->emptyCache({0, 0});
  } catch (const std::exception& error) {
    Log(LogSeverity::kWarning, "device %d: the native allocator's cache could not be emptied: %s", int{device_},
        error.what());
  }
}

Upstream::Held CudaUpstream::HeldBytes() const {
  constexpr auto kOfAllPools = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const c10::CachingAllocator::Stat reserved = native_->getDeviceStats(device_).reserved_bytes[kOfAllPools];
  return {static_cast<Bytes>(reserved.current), static_cast<Bytes>(reserved.peak)};
}

Bytes CudaUpstream::HeldApart(Bytes live) const {
  constexpr c10::MempoolId_t kAllPools{0, 0};
  try {
    Bytes held = 0;
    for (const auto& segment : version::Snapshot(*native_, kAllPools, /*include_traces=*/false).segments) {
      if (segment.device == device_ && segment.owner_private_pool_id != kAllPools) held += segment.total_size;
    }
    return held;
  } catch (const std::exception& error) {
    Log(LogSeverity::kInfo, "device %d: what pools hold is not known: %s", int{device_}, error.what());
    return live;
  }
}

void CudaUpstream::ThrowFreeError() {
  const std::unique_ptr<std::exception_ptr> error(std::exchange(free_error_, nullptr));
  std::rethrow_exception(*error);
}

}  // namespace stalloc
