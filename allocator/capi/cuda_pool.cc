#include "allocator/capi/cuda_pool.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "allocator/base/log.h"
#include "allocator/capi/allocation_failure.h"
#include "allocator/runtime/human_bytes.h"

namespace stalloc {
namespace {

cuda::Stream ToStream(StreamHandle stream) { return reinterpret_cast<cuda::Stream>(stream); }
cuda::DevicePointer ToAddress(void* pointer) { return reinterpret_cast<cuda::DevicePointer>(pointer); }

}  // namespace

CudaPool::CudaPool(const cuda::Api& api, int device, cuda::Context context, CudaEvents& events) noexcept
    : api_(api), device_(device), context_(context), events_(events) {
  const cuda::ContextScope current(api_, context_);
  cuda::Device handle = 0;
  if (api_.DeviceGet(&handle, device) != cuda::kSuccess) return;
  if (api_.DeviceGetDefaultMemPool(&pool_, handle) != cuda::kSuccess) {
    pool_ = nullptr;
    return;
  }
  // By default the pool gives its memory back at every synchronisation.
  std::uint64_t keep = std::numeric_limits<std::uint64_t>::max();
  (void)api_.MemPoolSetAttribute(pool_, cuda::kPoolReleaseThreshold, &keep);
}

// A stream that cannot be queried (the legacy stream, while another one is captured) is not captured itself.
bool CudaPool::IsCaptured(StreamHandle stream) const noexcept {
  int status = cuda::kCaptureStatusNone;
  return api_.StreamIsCapturing(ToStream(stream), &status) == cuda::kSuccess && status != cuda::kCaptureStatusNone;
}

cuda::Result CudaPool::AllocateOnce(Bytes requested, StreamHandle stream, cuda::DevicePointer* address) noexcept {
  return api_.MemAllocAsync(address, requested, ToStream(stream));
}

void CudaPool::MakeRoom() noexcept {
  RetryPutOff();
  (void)api_.CtxSynchronize();
  if (pool_ != nullptr) (void)api_.MemPoolTrimTo(pool_, 0);
}

void CudaPool::ReleaseCached() noexcept {
  const cuda::ContextScope current(api_, context_);
  const cuda::RelaxedCaptureScope relaxed(api_);
  if (pool_ != nullptr) (void)api_.MemPoolTrimTo(pool_, 0);
}

void* CudaPool::Allocate(Bytes requested, StreamHandle stream) {
  if (requested == 0) return nullptr;
  const cuda::ContextScope current(api_, context_);
  const bool captured = IsCaptured(stream);
  cuda::DevicePointer address = 0;
  cuda::Result result = AllocateOnce(requested, stream, &address);
  if (result == cuda::kErrorOutOfMemory && !captured) {
    MakeRoom();
    result = AllocateOnce(requested, stream, &address);
  }
  if (result != cuda::kSuccess) {
    std::size_t free = 0;
    std::size_t total = 0;
    (void)api_.MemGetInfo(&free, &total);
    throw AllocationFailure(
        std::string(result == cuda::kErrorOutOfMemory ? "CUDA out of memory" : ErrorName(api_, result))
            .append(". Tried to allocate ")
            .append(HumanBytes(requested).text)
            .append(". GPU ")
            .append(std::to_string(device_))
            .append(" has a total capacity of ")
            .append(HumanBytes(total).text)
            .append(" of which ")
            .append(HumanBytes(free).text)
            .append(" is free. Held by the stream-ordered pool: ")
            .append(HumanBytes(HeldBytes().current).text));
  }
  void* const pointer = reinterpret_cast<void*>(address);
  const std::lock_guard lock(mutex_);
  blocks_.insert_or_assign(pointer, Block{stream, captured, {}});
  return pointer;
}

void CudaPool::RecordStream(void* pointer, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  const Blocks::iterator found = blocks_.find(pointer);
  if (found == blocks_.end() || found->second.stream == stream) return;
  std::vector<StreamHandle>& others = found->second.other_streams;
  if (std::find(others.begin(), others.end(), stream) == others.end()) others.push_back(stream);
}

void CudaPool::Free(void* pointer) noexcept {
  if (pointer == nullptr) return;
  const cuda::ContextScope current(api_, context_);
  RetryPutOff();
  Blocks::node_type node;
  {
    const std::lock_guard lock(mutex_);
    node = blocks_.extract(pointer);
  }
  // Not ours: the runtime has logged it. The driver would answer for an address that it does not know with an error.
  if (node.empty() || FreeNow(pointer, node.mapped())) return;
  const std::lock_guard lock(mutex_);
  put_off_.emplace_back(pointer, std::move(node.mapped()));
}

bool CudaPool::FreeNow(void* pointer, const Block& block) noexcept {
  const bool capturing = events_.Capturing(block.stream);
  if (block.captured != capturing) return block.captured;  // the graph's own memory, or a free that a capture forbids
  if (!block.captured) {
    for (const StreamHandle other : block.other_streams) {
      const CudaEvents::Event event = events_.Record(other);
      if (event == 0) return false;
      const bool waits = events_.Wait(block.stream, event);
      events_.Recycle(event);  // the wait keeps the point that it was given
      if (!waits) return false;
    }
  }
  const cuda::Result result = api_.MemFreeAsync(ToAddress(pointer), ToStream(block.stream));
  const DriverCode code = cuda::ToStatus(result, "cuMemFreeAsync").code;
  if (code != DriverCode::kOk && code != DriverCode::kShuttingDown) {
    Log(LogSeverity::kError, "cuMemFreeAsync failed on device %d: %s", device_, cuda::ErrorName(api_, result));
  }
  return true;
}

void CudaPool::RetryPutOff() noexcept {
  std::vector<std::pair<void*, Block>> waiting;
  {
    const std::lock_guard lock(mutex_);
    if (put_off_.empty()) return;
    waiting.swap(put_off_);
  }
  std::erase_if(waiting, [&](const auto& one) { return FreeNow(one.first, one.second); });
  const std::lock_guard lock(mutex_);
  std::move(waiting.begin(), waiting.end(), std::back_inserter(put_off_));
}

Upstream::Held CudaPool::HeldBytes() const {
  std::uint64_t current = 0;
  std::uint64_t peak = 0;
  const bool known = pool_ != nullptr &&
                     api_.MemPoolGetAttribute(pool_, cuda::kPoolReservedCurrent, &current) == cuda::kSuccess &&
                     api_.MemPoolGetAttribute(pool_, cuda::kPoolReservedHigh, &peak) == cuda::kSuccess;
  const std::lock_guard lock(mutex_);
  if (known) last_held_ = {current, peak};
  return last_held_;
}

std::size_t CudaPool::PutOff() const {
  const std::lock_guard lock(mutex_);
  return put_off_.size();
}

}  // namespace stalloc
