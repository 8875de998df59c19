#include "allocator/torch/cuda_allocator.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdlib>

namespace stalloc {
namespace {

// A deleter has no closure, so the allocator is global. Set once, before the first block.
StallocCudaAllocator* g_allocator = nullptr;

// What every DataPtr carries that leaves this allocator.
void DeleteCudaBlock(void* pointer) { g_allocator->raw_delete(pointer); }

// A block that the native allocator hands out as a whole DataPtr.
void TakeOver(c10::DataPtr& block, c10::DeleterFnPtr native_deleter) {
  const bool exchanged = block.compare_exchange_deleter(native_deleter, &DeleteCudaBlock);
  TORCH_INTERNAL_ASSERT(exchanged, "a block of the native allocator's has an unknown deleter");
}

c10::DeviceIndex CurrentDevice() {
  c10::DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return device;
}

// The native allocator's own test for sizes that must be a mistake; it also words the error.
constexpr std::size_t kOneExabyte = std::size_t{1} << 60;

constexpr const char* kStuck =
    "stalloc: other tensors lie in this pool of CUDA graphs and cannot leave it now: the device has no memory for them "
    "elsewhere, or a stream is captured";

}  // namespace

StallocCudaAllocator::StallocCudaAllocator(Native* native, Session* session, std::string torch_version)
    : VirtualFunctions(native),
      force_uncached_(std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") != nullptr),
      devices_({session, native, &history_, &pools_, &mem_pools_, &graph_pools_, &uncounted_, &relay_,
                std::move(torch_version)}) {
  g_allocator = this;
}

// CUDA's own pools keep no graph's memory where we could see it.
void StallocCudaAllocator::FollowGraphs() {
  if (native_->name() != "native") return;
  FollowGraphs(
      GraphGuard::Install(graph_pools_, uncounted_, [this](cudaStream_t stream) { return pools_.IsCaptured(stream); }));
}

c10::DataPtr StallocCudaAllocator::allocate(std::size_t bytes) {
  if (C10_UNLIKELY(Uncached() || bytes >= kOneExabyte)) return native_->allocate(bytes);
  const DeviceIndex device = CurrentDevice();
  void* pointer = bytes == 0 ? nullptr : Serve(bytes, device, c10::cuda::getCurrentCUDAStream(device).stream());
  return {pointer, pointer, &DeleteCudaBlock, c10::Device(c10::DeviceType::CUDA, device)};
}

c10::DeleterFnPtr StallocCudaAllocator::raw_deleter() const {
  return Uncached() ? native_->raw_deleter() : &DeleteCudaBlock;
}

void* StallocCudaAllocator::raw_alloc(std::size_t bytes) {
  if (Uncached()) return native_->raw_alloc(bytes);
  if (bytes == 0) return nullptr;
  const DeviceIndex device = CurrentDevice();
  return Serve(bytes, device, c10::cuda::getCurrentCUDAStream(device).stream());
}

// For a stream of another device the arena is no place: its memory goes once its own device is done with it.
void* StallocCudaAllocator::raw_alloc_with_stream(std::size_t bytes, cudaStream_t stream) {
  if (Uncached()) return native_->raw_alloc_with_stream(bytes, stream);
  if (bytes == 0) return nullptr;
  const DeviceIndex device = CurrentDevice();
  const bool is_current = stream == c10::cuda::getCurrentCUDAStream(device).stream();
  if (is_current || CudaDevice::ReportsSegments() || devices_.Get(device).HasStream(stream)) {
    return Serve(bytes, device, stream);
  }
  return ServeNative(bytes, device, stream);
}

void* StallocCudaAllocator::ServeNative(std::size_t bytes, DeviceIndex device, cudaStream_t stream) {
  void* const pointer = native_->raw_alloc_with_stream(bytes, stream);
  if (CudaDevice* const found = devices_.Find(device); found != nullptr) found->Adopt(pointer, bytes, stream);
  return pointer;
}

void* StallocCudaAllocator::Serve(std::size_t bytes, DeviceIndex device, cudaStream_t stream) {
  if (C10_UNLIKELY(CudaDevice::ReportsSegments())) return ServeNative(bytes, device, stream);
  return devices_.Get(device).Allocate(bytes, stream, pools_.Accept(device, stream));
}

// Also blocks that the native allocator gave out uncached or before a device was known here: they are its own.
void StallocCudaAllocator::raw_delete(void* pointer) {
  if (pointer == nullptr) return;
  CudaDevice* owner = devices_.Owner(pointer);
  if (owner == nullptr || (Uncached() && !owner->Knows(pointer))) {
    native_->raw_delete(pointer);
  } else {
    owner->Free(pointer);
  }
}

// As the native allocator: a block with another deleter is none of ours (CUDA IPC, from_blob) and needs nothing.
void StallocCudaAllocator::recordStream(const c10::DataPtr& block, c10::cuda::CUDAStream stream) {
  if (block.get() == nullptr || block.get_deleter() != &DeleteCudaBlock) return;
  CudaDevice* owner = devices_.Owner(block.get());
  TORCH_INTERNAL_ASSERT(owner != nullptr, "No allocated block can be found");
  owner->RecordStream(block.get(), stream);
}

void StallocCudaAllocator::recordStream(const c10::DataPtr& block, c10::Stream stream) {
  recordStream(block, c10::cuda::CUDAStream(stream));
}

// Pools and captures: what is captured is the native allocator's, only the deleter is ours -------------------------

StallocCudaAllocator::CheckpointDelta StallocCudaAllocator::setCheckpointPoolState(
    DeviceIndex device, std::shared_ptr<AllocatorState> state) {
  // What captures request from then on lies elsewhere than their order implies. The state does not say of which pool it
  // is.
  for (GraphPool* const pool : graph_pools_.OfDevice(device)) {
    const bool may_be_it = pool->catalog().restorable();
    TORCH_CHECK_WITH(OutOfMemoryError, !may_be_it || pool->SetUnfollowable("its state was set back"), kStuck);
  }
  CheckpointDelta delta = native_->setCheckpointPoolState(device, std::move(state));
  if (Uncached()) return delta;
  for (c10::DataPtr& block : delta.dataptrs_allocd) TakeOver(block, native_->raw_deleter());
  if (CudaDevice* found = devices_.Find(device); found != nullptr) {
    found->PoolSetBack(delta.ptrs_freed, delta.dataptrs_allocd);
  }
  return delta;
}

c10::DataPtr StallocCudaAllocator::Adopt(c10::DataPtr block, std::size_t bytes) {
  if (Uncached() || block.get() == nullptr) return block;
  TakeOver(block, native_->raw_deleter());
  const DeviceIndex device = block.device().index();
  devices_.Get(device).Adopt(block.get(), bytes, c10::cuda::getCurrentCUDAStream(device).stream());
  return block;
}

void StallocCudaAllocator::beginAllocateToPool(DeviceIndex device, MempoolId pool,
                                               std::function<bool(cudaStream_t)> filter) {
  // A graph's pool is about to be filled, and this is the last moment at which the device may be waited for. Once: who
  // opens one again and again must not pay for it each time.
  const bool is_new_graphs = !mem_pools_.Knows(device, pool) && !pools_.HasOpened(device, pool);
  CudaDevice* const found = devices_.Find(device);
  if (found != nullptr && is_new_graphs) found->MakeRoom();
  const std::uint32_t number = guard_ != nullptr ? pools_.Announce(device, pool) : 0;
  TORCH_CHECK_WITH(OutOfMemoryError, guard_ == nullptr || guard_->Opens(number, device), kStuck);
  try {
    native_->beginAllocateToPool(device, pool, filter);
  } catch (...) {
    if (guard_ != nullptr) guard_->Closes(number);
    throw;
  }
  mem_pools_.Entered(device, pool);
  pools_.Begin(device, pool, std::move(filter));
  if (found != nullptr) found->PoolOpens();
}

void StallocCudaAllocator::endAllocateToPool(DeviceIndex device, MempoolId pool) {
  native_->endAllocateToPool(device, pool);
  pools_.End(device, pool);
  if (CudaDevice* const found = devices_.Find(device); found != nullptr) found->PoolCloses();
  if (guard_ != nullptr) guard_->Closes(pools_.NumberOf(device, pool));
}

// Not of ours alone: the native allocator may have blocks of a MemPool that the plan serves.
void StallocCudaAllocator::releasePool(DeviceIndex device, MempoolId pool) {
  {
    const std::lock_guard lock(leaving_mutex_);
    if (guard_ != nullptr && native_->getPoolUseCount(device, pool) <= 1) guard_->Left(pools_.NumberOf(device, pool));
    native_->releasePool(device, pool);
  }
  const std::vector<void*> kept = mem_pools_.Left(device, pool);
  if (kept.empty()) return;
  // Replays may still read them, on any stream; natively, too, their memory goes after the whole device. While another
  // capture runs nobody can wait: then they are lost.
  CudaDevice* const found = devices_.Find(device);
  if (found == nullptr || !found->AwaitAll()) return;
  for (void* const pointer : kept) raw_delete(pointer);
}

bool StallocCudaAllocator::checkPoolLiveAllocations(DeviceIndex device, MempoolId pool,
                                                    const std::unordered_set<void*>& expected) {
  std::unordered_set<void*> native = expected;
  return mem_pools_.TakeLive(device, pool, native) && native_->checkPoolLiveAllocations(device, pool, native);
}

std::shared_ptr<StallocCudaAllocator::AllocatorState> StallocCudaAllocator::getCheckpointState(DeviceIndex device,
                                                                                               MempoolId pool) {
  mem_pools_.LeaveToNative(device, pool);
  if (GraphPool* const graphs = graph_pools_.Find(pools_.NumberOf(device, pool)); graphs != nullptr) {
    TORCH_CHECK_WITH(OutOfMemoryError, graphs->SetRestorable(), kStuck);
  }
  return native_->getCheckpointState(device, pool);
}

}  // namespace stalloc
