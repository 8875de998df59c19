#include "allocator/torch/cuda_device.h"

#include <c10/cuda/CUDAGuard.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <optional>
#include <utility>

#include "allocator/base/log.h"
#include "allocator/driver/cuda_description.h"
#include "allocator/torch/cuda_expandable.h"
#include "allocator/torch/recomputation.h"

namespace stalloc {
namespace {

// In a forked child nothing of ours is touched: locks may be held there by threads that do not exist.
std::atomic<bool> g_forked{false};

void WatchForks() {
  static const bool watching = pthread_atfork(nullptr, nullptr, [] { g_forked.store(true); }) == 0;
  (void)watching;
}

// The calling thread's stream on the device. None while the thread ends: c10's record of it may be gone before the last
// block that a thread-local variable holds.
std::optional<StreamHandle> CurrentStream(c10::DeviceIndex device) {
  static thread_local bool ended = false;
  struct Watch {
    ~Watch() { ended = true; }
  };
  if (ended) return std::nullopt;
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device).stream();
  static thread_local const Watch watch;  // made after c10's record, so that it goes first
  return reinterpret_cast<StreamHandle>(stream);
}

}  // namespace

CudaDevice::CudaDevice(const Environment& environment, c10::DeviceIndex index,
                       const std::vector<c10::DeviceIndex>& peers)
    : environment_(environment), index_(index), upstream_(environment.native, index, *environment.relay) {
  WatchForks();
  OpenDriver(peers);
  runtime_ = environment_.session->AddDevice(index_, &upstream_, driver_.get(), fence_.get(), DeviceFingerprint(),
                                             watch_.get(), &PassOfThread, copies_.get(), environment_.graph_pools);
  TORCH_CHECK(runtime_ != nullptr, "stalloc: ", environment_.session->failure());
  const Bytes taken = TakenBytes();
  taken_at_start_ = taken - std::min(taken, environment_.uncounted->Of(index_, UncountedBytes::Cause::kCommunicators));
  blocks_ = std::make_unique<ServedBlocks>(index_, *runtime_, *environment_.native, *environment_.history);
  serves_ = !runtime_->spaces().empty();
  fraction_ = native_share_ = environment_.native->getMemoryFraction(index_);
  const bool takes_plan_up = environment_.session->config().mode == Mode::kAuto;
  // What the plan does not serve is best in expandable segments.
  if (runtime_->arena() != nullptr || takes_plan_up) SwitchExpandableSegmentsOn(*environment_.native);
  upstream_.SetCaptureGate(&environment_.pools->captures());
  upstream_.SetLimitHook([this] { ApplyNativeShare(); });
  upstream_.SetReleaseHook([this] { LookAtNative(); });
  if (!serves_ && takes_plan_up) runtime_->SetArenaListener(this);
  if (!serves_) return;
  if (blocks_->UpdateReserved()) times_mapped_.store(1, std::memory_order_relaxed);
  blocks_->LookAtNative();
  if (fraction_ < 1.0) ApplyFraction();
  TellSegments(AllocationHistory::Entry::SEGMENT_ALLOC);
  runtime_->SetArenaListener(this);
}

Bytes CudaDevice::HeldBytes() const {
  const RuntimeStats stats = runtime_->Stats();
  return stats.arena_bytes + stats.heap_bytes + stats.upstream_reserved_bytes;
}

Bytes CudaDevice::TakenBytes() const {
  MemoryInfo info;
  if (driver_ == nullptr || !driver_->GetMemoryInfo(&info).ok()) return 0;
  const Bytes taken = info.total - info.free;
  return taken - std::min(taken, HeldBytes());
}

void CudaDevice::OpenDriver(const std::vector<c10::DeviceIndex>& peers) {
  DriverStatus status;
  driver_ = CudaDriver::Create(index_, &status);
  if (driver_ == nullptr) {
    Log(LogSeverity::kDebug, "device %d: no virtual memory management: %s gave %d", index_, status.call, status.native);
    return;
  }
  driver_->SetCaptureGate(&environment_.pools->captures());
  events_ = std::make_unique<CudaEvents>(driver_->api(), driver_->context(), &environment_.pools->captures());
  fence_ = std::make_unique<CudaStreamFence>(*events_);
  copies_ = std::make_unique<CudaCopies>(*driver_, *events_, &environment_.pools->captures());
  for (const c10::DeviceIndex peer : peers) EnablePeer(peer);
  if (!environment_.session->config().watch) return;
  watch_ = CudaWatchMemory::Create(driver_->api(), driver_->context(), *events_, &status);
  if (!status.ok()) {
    Log(LogSeverity::kWarning, "device %d: STALLOC_WATCH=1: %s gave %d", index_, status.call, status.native);
  }
}

Fingerprint CudaDevice::DeviceFingerprint() {
  Fingerprint fingerprint;
  fingerprint.torch_version = environment_.torch_version;
  const cuda::Api* const api = cuda::Api::Get();
  TORCH_CHECK(api != nullptr, "stalloc: no CUDA driver: ", cuda::Api::LoadError());
  const CudaDescription device = DescribeCuda(*api, index_);
  TORCH_CHECK(device.bytes > 0, "stalloc: the CUDA driver does not report the memory of cuda:", int{index_});
  fingerprint.device_name = device.name;
  fingerprint.device_bytes = device_bytes_ = device.bytes;
  fingerprint.driver_version = device.driver_version;
  return fingerprint;
}

// Blocks ------------------------------------------------------------------------------------------------------------

void* CudaDevice::Allocate(Bytes requested, cudaStream_t stream, const std::optional<PoolFilters::OpenPool>& pool) {
  const bool captured =
      pool.has_value() && !environment_.mem_pools->Serve(*environment_.pools, index_, pool->id, stream);
  const std::uint32_t number = captured ? pool->number : 0;
  void* pointer = nullptr;
  try {
    pointer = runtime_->Allocate(requested, reinterpret_cast<StreamHandle>(stream),
                                 captured ? Origin::kCaptured : Origin::kProgram, number);
  } catch (c10::OutOfMemoryError& error) {
    OnOutOfMemory(error, requested, stream);
    throw;
  }
  if (captured) OnCaptured({pointer, requested, reinterpret_cast<StreamHandle>(stream), number});
  if (!serves_) return pointer;
  if (runtime_->Owns(pointer)) {
    blocks_->Began(pointer, requested, reinterpret_cast<StreamHandle>(stream));
    if (C10_UNLIKELY(pool.has_value())) {
      environment_.mem_pools->Add({{pointer, requested, reinterpret_cast<StreamHandle>(stream)}, index_}, pool->id);
    }
  } else {
    blocks_->NativeBegan(requested);
  }
  return pointer;
}

void CudaDevice::Free(void* pointer) {
  const bool forked = g_forked.load(std::memory_order_relaxed);
  if (!Serves(pointer) || forked) {
    if (C10_UNLIKELY(has_graph_blocks_.load(std::memory_order_relaxed)) && !forked) OnNativeFree(pointer);
    runtime_->Free(pointer);
  } else if (!environment_.mem_pools->Keeps(pointer)) {
    blocks_->End(pointer, CurrentStream(index_));
  }
  CudaUpstream::RethrowFreeError();
}

void CudaDevice::RecordStream(void* pointer, const c10::cuda::CUDAStream& stream) {
  const CudaUpstream::StreamScope scope(stream);
  const auto handle = reinterpret_cast<StreamHandle>(stream.stream());
  const bool foreign = stream.device_index() != index_ && Serves(pointer);
  if (C10_UNLIKELY(environment_.history->active()) && runtime_->SpaceOf(pointer) != nullptr &&
      (foreign || blocks_->Find(pointer).stream != handle)) {
    environment_.history->OnForeignUse(pointer);
  }
  runtime_->RecordStream(pointer, foreign ? StreamOfDevice(stream.device_index(), handle) : handle);
}

// A block of a graphs' pool came. The stream is queried only where it matters.
void CudaDevice::OnCaptured(const KnownBlock& block) noexcept {
  captured_blocks_.Add(block);
  GraphPool* const pool = environment_.graph_pools->Find(block.pool);
  if (pool == nullptr) return;
  PoolCatalog& catalog = pool->catalog();
  const bool captured =
      catalog.capturing() && environment_.pools->IsCaptured(reinterpret_cast<cudaStream_t>(block.stream));
  catalog.Allocated(reinterpret_cast<std::uint64_t>(block.pointer), block.requested, captured);
  has_graph_blocks_.store(true, std::memory_order_relaxed);
}

// It is reported before the address can be given out again. One that was the pool's once, and is not now, is not live
// there.
void CudaDevice::OnNativeFree(const void* pointer) noexcept {
  const std::optional<KnownBlock> block = captured_blocks_.Find(pointer);
  if (!block.has_value()) return;
  if (GraphPool* const pool = environment_.graph_pools->Find(block->pool); pool != nullptr) {
    pool->catalog().Freed(reinterpret_cast<std::uint64_t>(pointer));
  }
}

// A block of the earlier state has an address that the pool gave out before: its size is remembered.
void CudaDevice::PoolSetBack(const std::vector<void*>& ended, const std::vector<c10::DataPtr>& begun) {
  for (void* pointer : ended) runtime_->Forget(pointer);
  for (const c10::DataPtr& block : begun) {
    const KnownBlock last = captured_blocks_.Find(block.get()).value_or(KnownBlock{});
    runtime_->Adopt(block.get(), last.requested, last.stream, last.pool);
  }
}

void CudaDevice::Adopt(void* pointer, Bytes requested, cudaStream_t stream) noexcept {
  runtime_->Adopt(pointer, requested, reinterpret_cast<StreamHandle>(stream));
}

// The error leaves: the report, what the native allocator's message cannot say, and its observers, in this order.
void CudaDevice::OnOutOfMemory(c10::Error& error, Bytes requested, cudaStream_t stream) {
  try {
    for (std::string& line : runtime_->ExplainOutOfMemory(requested, reinterpret_cast<StreamHandle>(stream))) {
      error.add_context(std::move(line));
    }
  } catch (const std::bad_alloc&) {  // the host has no memory for words either: the error itself must still leave
  }
  environment_.relay->Stand();
}

}  // namespace stalloc
