// CudaDevice, second part: figures, limits, peers and the snapshot.
#include <algorithm>

#include "allocator/base/log.h"
#include "allocator/torch/cuda_device.h"
#include "allocator/torch/cuda_snapshot.h"

namespace stalloc {

// Statistics
// ------------------------------------------------------------------------------------------------------------

CudaDevice::DeviceStats CudaDevice::Stats() {
  if (!serves_) return environment_.native->getDeviceStats(index_);
  UpdateReserved();
  UpdateSample();
  return stats_.Combine(environment_.native->getDeviceStats(index_));
}

// The runtime first: it keeps the native allocator's peak of the whole run.
void CudaDevice::ResetPeakStats() {
  runtime_->ResetPeaks();
  environment_.native->resetPeakStats(index_);
  if (!serves_) return;
  UpdateSample();
  stats_.ResetPeaks(environment_.native->getDeviceStats(index_));
}

void CudaDevice::ResetAccumulatedStats() {
  environment_.native->resetAccumulatedStats(index_);
  if (serves_) stats_.ResetAccumulated();
}

void CudaDevice::EmptyCache() noexcept {
  if (runtime_->heap() == nullptr) return;
  runtime_->heap()->ReleaseCached();
  UpdateReserved();
}

Bytes CudaDevice::OwnBytes() const noexcept {
  if (const Arena* arena = runtime_->arena(); arena != nullptr) return arena->mapped_bytes();
  return runtime_->heap() != nullptr ? runtime_->heap()->GetStats().physical_bytes : 0;
}

// True where the sum of what is reserved may be a new peak.
bool CudaDevice::UpdateReserved() {
  const Bytes bytes = OwnBytes();
  return stats_.SetReserved(bytes, bytes == 0 ? 0 : 1);
}

void CudaDevice::UpdateSample() {
  const PlanEngine* engine = runtime_->engine();
  if (engine == nullptr) return;
  CombinedStats::Sample sample;
  Offset end = 0;
  for (const LiveBlock& block : engine->LiveBlocks()) {
    if (block.offset > end) ++sample.gaps;
    end = block.offset + block.bytes;
    sample.gap_bytes -= static_cast<std::int64_t>(block.bytes);
    if (!block.freed_pending) continue;
    ++sample.pending;
    sample.pending_bytes += static_cast<std::int64_t>(block.bytes);
  }
  const Bytes mapped = runtime_->arena()->mapped_bytes();
  if (end < mapped) ++sample.gaps;
  sample.gap_bytes += static_cast<std::int64_t>(mapped);
  stats_.SetSample(sample);
}

// Limits
// ----------------------------------------------------------------------------------------------------------------

void CudaDevice::SetMemoryFraction(double fraction) {
  TORCH_CHECK(0 <= fraction && fraction <= 1, "invalid fraction: ", fraction, ". Please set within (0, 1).");
  {
    const std::lock_guard lock(fraction_mutex_);
    fraction_ = fraction;
  }
  ApplyFraction();
}

double CudaDevice::MemoryFraction() const {
  if (!serves_) return environment_.native->getMemoryFraction(index_);
  const std::lock_guard lock(fraction_mutex_);
  return fraction_;
}

// The native allocator checks only what it holds itself, so its share shrinks by what our arena holds. The exact
// trace's heap takes the whole share: the native allocator gets only what the heap cannot serve.
void CudaDevice::ApplyFraction() {
  const std::lock_guard lock(fraction_mutex_);
  double native_fraction = fraction_;
  if (serves_) {
    const auto total = static_cast<double>(environment_.native->getMemoryInfo(index_).second);
    if (const Arena* arena = runtime_->arena(); arena != nullptr) {
      native_fraction = std::max(0.0, fraction_ - static_cast<double>(arena->mapped_bytes()) / total);
    }
    if (PageHeap* heap = runtime_->heap(); heap != nullptr) {
      const auto share = static_cast<Bytes>(fraction_ * total);
      const Bytes configured = environment_.session->config().memory_limit;
      heap->SetLimit(configured == 0 ? share : std::min(configured, share));
    }
  }
  environment_.native->setMemoryFraction(native_fraction, index_);
}

// Peers
// -----------------------------------------------------------------------------------------------------------------

void CudaDevice::EnablePeer(c10::DeviceIndex peer) noexcept {
  if (driver_ == nullptr || peer == index_) return;
  DriverStatus status = driver_->EnablePeer(peer);
  if (status.ok() && runtime_ != nullptr) status = RefreshAccess();
  if (!status.ok()) {
    Log(LogSeverity::kWarning, "device %d: its arena is not opened to device %d: %s gave %d", index_, peer, status.call,
        status.native);
  }
}

DriverStatus CudaDevice::RefreshAccess() noexcept {
  if (const Arena* arena = runtime_->arena(); arena != nullptr && arena->mapped_bytes() != 0) {
    return driver_->SetAccess(arena->base(), arena->mapped_bytes());
  }
  return {};
}

void* CudaDevice::BaseAllocation(void* pointer, std::size_t* bytes) const {
  if (const Arena* arena = runtime_->arena(); arena != nullptr) {
    if (bytes != nullptr) *bytes = arena->mapped_bytes();
    return reinterpret_cast<void*>(arena->base());
  }
  const std::optional<HeapBlock> block = heap_blocks_.Find(pointer);
  TORCH_CHECK(block.has_value(), "invalid device pointer: ", pointer);
  if (bytes != nullptr) *bytes = BlockBytes(block->requested);
  return pointer;
}

// Snapshot
// --------------------------------------------------------------------------------------------------------------

void CudaDevice::AppendSegments(std::vector<c10::CachingDeviceAllocator::SegmentInfo>& segments) const {
  const AllocationHistory& history = *environment_.history;
  if (const Arena* arena = runtime_->arena(); arena != nullptr && arena->mapped_bytes() != 0) {
    segments.push_back(
        ArenaSegment(index_, arena->base(), arena->mapped_bytes(), runtime_->engine()->LiveBlocks(), history));
  }
  for (const HeapBlock& block : heap_blocks_.All()) segments.push_back(HeapSegment(index_, block, history));
}

}  // namespace stalloc
