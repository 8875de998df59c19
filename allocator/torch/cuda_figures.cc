// StallocCudaAllocator, second part: figures, recording, limits and peers.
#include "allocator/base/log.h"
#include "allocator/driver/cuda_api.h"
#include "allocator/torch/cuda_allocator.h"
#include "allocator/torch/cuda_snapshot.h"
#include "allocator/torch/nccl_watch.h"
#include "proto/model/json_writer.h"

namespace stalloc {

// A device that nothing was allocated on yet has no figures of ours.
c10::CachingDeviceAllocator::DeviceStats StallocCudaAllocator::getDeviceStats(DeviceIndex device) {
  CudaDevice* found = devices_.Find(device);
  return found != nullptr ? found->Stats() : native_->getDeviceStats(device);
}

void StallocCudaAllocator::resetAccumulatedStats(DeviceIndex device) {
  CudaDevice* found = devices_.Find(device);
  return found != nullptr ? found->ResetAccumulatedStats() : native_->resetAccumulatedStats(device);
}

void StallocCudaAllocator::resetPeakStats(DeviceIndex device) {
  CudaDevice* found = devices_.Find(device);
  return found != nullptr ? found->ResetPeakStats() : native_->resetPeakStats(device);
}

StallocCudaAllocator::SnapshotInfo StallocCudaAllocator::TakeSnapshot(MempoolId pool, bool include_traces) {
  SnapshotInfo info = version::Snapshot(*native_, pool, include_traces);
  if (!IsDefaultPool(pool)) {
    std::size_t order = 0;
    for (const MemPools::Block& block : mem_pools_.Show(pool)) {
      info.segments.push_back(LoneSegment(block.device, block.known, history_, order++, pool));
    }
    return info;
  }
  devices_.ForEach([&](CudaDevice& device) {
    device.CompleteFrees();
    device.AppendSegments(info.segments);
    const auto index = static_cast<std::size_t>(device.index());
    if (include_traces && index < info.device_traces.size()) {
      relay_.LeaveOutRetracted(device.index(), clock_, info.device_traces[index]);
      MergeTraces(history_.Entries(device.index()), clock_, info.device_traces[index]);
    }
  });
  return info;
}

// The native allocator first: it rejects what is wrong.
void StallocCudaAllocator::ConfigureHistory(const AllocationHistory::Options& options) {
  version::RecordHistory(*native_, options);
  history_.Configure(options);
}

bool StallocCudaAllocator::ContextOfBlock(const void* pointer, AllocationHistory::Context* context) {
  const CudaDevice* const server = devices_.Server(pointer);
  if (server != nullptr) *context = server->ContextOf(pointer);
  return server != nullptr;
}

bool StallocCudaAllocator::AnnotateBlock(AllocationHistory::Entry::Action action, const void* pointer,
                                         const std::string& metadata) {
  CudaDevice* const server = devices_.Server(pointer);
  if (server != nullptr) server->Annotate(action, pointer, metadata);
  return server != nullptr;
}

void StallocCudaAllocator::CheckMayAllocateAt(const void* address) {
  const CudaDevice* const server = devices_.Server(address);
  TORCH_CHECK(server == nullptr, "stalloc: a block cannot be allocated at ", address,
              ": the address is in the planned arena or an exact trace's heap, which place blocks themselves. Allocate "
              "there without an address, or run with STALLOC_MODE=Torch.");
}

void StallocCudaAllocator::attachAllocatorTraceTracker(c10::cuda::CUDACachingAllocator::AllocatorTraceTracker tracker) {
  native_->attachAllocatorTraceTracker(tracker);
  history_.AddTracker(std::move(tracker));
}

void StallocCudaAllocator::emptyCache(MempoolId pool) {
  bool has_arena = false;
  devices_.ForEach([&](const CudaDevice& device) { has_arena = has_arena || device.HasArena(); });
  if (has_arena) devices_.ForEach([](CudaDevice& device) { (void)device.AwaitAll(); });
  devices_.ForEach([](CudaDevice& device) { device.LookAtNative(); });
  native_->emptyCache(pool);
  if (IsDefaultPool(pool)) devices_.ForEach([](CudaDevice& device) { device.EmptyCache(); });
}

double StallocCudaAllocator::getMemoryFraction(DeviceIndex device) {
  CudaDevice* found = devices_.Find(device);
  return found != nullptr ? found->MemoryFraction() : native_->getMemoryFraction(device);
}

// Before the first allocation the native allocator keeps the value, and the device takes it over when it is made.
void StallocCudaAllocator::setMemoryFraction(double fraction, DeviceIndex device) {
  CudaDevice* found = devices_.Find(device);
  return found != nullptr ? found->SetMemoryFraction(fraction) : native_->setMemoryFraction(fraction, device);
}

void* StallocCudaAllocator::getBaseAllocation(void* pointer, std::size_t* bytes) {
  CudaDevice* server = devices_.Server(pointer);
  return server != nullptr ? server->BaseAllocation(pointer, bytes) : native_->getBaseAllocation(pointer, bytes);
}

c10::cuda::CUDACachingAllocator::ShareableHandle StallocCudaAllocator::shareIpcHandle(void* pointer) {
  const CudaDevice* server = devices_.Server(pointer);
  return server != nullptr ? server->Share(pointer) : native_->shareIpcHandle(pointer);
}

void StallocCudaAllocator::enablePeerAccess(DeviceIndex device, DeviceIndex device_to_access) {
  native_->enablePeerAccess(device, device_to_access);
  devices_.EnablePeer(device, device_to_access);
}

// Memory that does not come from cudaMalloc needs the peer copy between two devices without peer access.
cudaError_t StallocCudaAllocator::memcpyAsync(void* to, int to_device, const void* from, int from_device,
                                              std::size_t bytes, cudaStream_t stream, bool p2p_enabled) {
  if (!p2p_enabled && to_device != from_device &&
      (devices_.Server(to) != nullptr || devices_.Server(from) != nullptr)) {
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
  }
  return native_->memcpyAsync(to, to_device, from, from_device, bytes, stream, p2p_enabled);
}

// What no allocator counts ------------------------------------------------------------------------------------------

void StallocCudaAllocator::CountCommunicators() {
  const Status watched = WatchNccl(uncounted_);
  if (!watched.ok()) Log(LogSeverity::kDebug, "what NCCL takes is not counted: %s", watched.error().c_str());
}

// The driver is queried, not the runtime: a thread without a context must not make one.
std::optional<UncountedBytes::Sample> StallocCudaAllocator::MeasureUncounted() {
  const cuda::Api* const api = cuda::Api::Get();
  cuda::Device device = 0;
  std::size_t free = 0;
  std::size_t total = 0;
  {
    const CaptureGate::Passage passage(&pools_.captures());
    if (!passage || api == nullptr) return std::nullopt;
    if (api->CtxGetDevice(&device) != 0 || api->MemGetInfo(&free, &total) != 0) return std::nullopt;
  }
  const auto index = static_cast<DeviceIndex>(device);
  const CudaDevice* const known = devices_.Find(index);
  const Bytes held = known == nullptr ? 0 : known->HeldBytes();
  return UncountedBytes::Sample{index, static_cast<std::int64_t>(total - free) - static_cast<std::int64_t>(held)};
}

std::string StallocCudaAllocator::UncountedFigures() const {
  JsonWriter json;
  json.BeginObject();
  json.BeginArray("devices");
  devices_.ForEach([&](const CudaDevice& device) {
    json.BeginObject();
    json.Field("device", int{device.index()});
    json.Field("taken_bytes", device.TakenBytes());
    json.Field("taken_at_start_bytes", device.TakenAtStart());
    json.Field("held_bytes", device.HeldBytes());
    json.Field("communicator_bytes", uncounted_.Of(device.index(), UncountedBytes::Cause::kCommunicators));
    json.Field("graph_bytes", uncounted_.Of(device.index(), UncountedBytes::Cause::kGraphs));
    json.EndObject();
  });
  json.EndArray();
  json.EndObject();
  return json.text();
}

}  // namespace stalloc
