#include "allocator/torch/cuda_served.h"

#include <c10/core/impl/GPUTrace.h>

#include <optional>
#include <vector>

#include "allocator/base/log.h"
#include "allocator/runtime/planned_space.h"
#include "allocator/torch/version/native_calls.h"

namespace stalloc {
namespace {

// As natively, where a block's pool goes by its size.
CombinedStats::Pool PoolOf(Bytes requested) { return CombinedStats::PoolOfSize(BlockBytes(requested)); }

}  // namespace

// What cannot throw comes first, so that End takes back no more than was reported.
void ServedBlocks::Began(void* pointer, Bytes requested, StreamHandle stream) {
  const bool passed = stats_.Allocated(BlockBytes(requested), requested, PoolOf(requested));
  try {
    if (passed) LookAtNative();
    TellBegin(pointer, requested, stream);
  } catch (...) {
    End(pointer);
    throw;
  }
}

void ServedBlocks::TellBegin(void* pointer, Bytes requested, StreamHandle stream) {
  const c10::impl::PyInterpreter* interpreter = c10::impl::GPUTrace::get_trace();
  if (C10_UNLIKELY(interpreter != nullptr)) {
    (*interpreter)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<std::uintptr_t>(pointer));
  }
  ReportToProfiler(pointer, static_cast<std::int64_t>(BlockBytes(requested)));
  if (C10_LIKELY(!history_.active())) return;
  if (MayCompleteFrees()) CompleteFrees();
  history_.OnAlloc({device_, pointer, requested, reinterpret_cast<void*>(stream)}, version::UserMetadataOf(native_));
}

// All is reported before another thread can have the address. Statistics alone know no addresses.
void ServedBlocks::End(void* pointer, std::optional<StreamHandle> current) noexcept {
  const bool is_reported =
      c10::impl::GPUTrace::get_trace() != nullptr || history_.active() || c10::memoryProfilingEnabled();
  if (C10_LIKELY(!is_reported)) {
    const DeviceRuntime::Freed freed = runtime_.Free(pointer, current);
    if (freed.bytes != 0) stats_.Freed(freed.bytes, freed.requested, PoolOf(freed.requested));
    return;
  }
  const DeviceRuntime::Ending ending = runtime_.BeginFree(pointer);
  TellEnd(ending);
  runtime_.Free(ending, current);
}

void ServedBlocks::TellEnd(const DeviceRuntime::Ending& ending) {
  const c10::impl::PyInterpreter* interpreter = c10::impl::GPUTrace::get_trace();
  if (C10_UNLIKELY(interpreter != nullptr)) {
    (*interpreter)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<std::uintptr_t>(ending.pointer));
  }
  if (ending.bytes == 0) return;  // the runtime reports it
  stats_.Freed(ending.bytes, ending.requested, PoolOf(ending.requested));
  if (C10_UNLIKELY(history_.active())) {
    history_.OnFree({device_, ending.pointer, ending.requested, reinterpret_cast<void*>(ending.stream)},
                    version::UserMetadataOf(native_));
  }
  ReportToProfiler(ending.pointer, -static_cast<std::int64_t>(ending.bytes));
}

ServedBlocks::Block ServedBlocks::Find(const void* pointer) const noexcept {
  const PlannedSpace* const space = runtime_.SpaceOf(pointer);
  if (space == nullptr) return {};
  const LiveBlock live = space->engine().FindLive(pointer);
  const bool starts = space->arena().base() + live.offset == reinterpret_cast<Address>(pointer);
  return starts && !live.freed_pending ? Block{live.requested, live.stream} : Block{};
}

void ServedBlocks::ReportToProfiler(void* pointer, std::int64_t change) {
  if (C10_LIKELY(!c10::memoryProfilingEnabled())) return;
  LookAtNative();
  const CombinedStats::Totals totals = stats_.Sum();
  c10::reportMemoryUsageToProfiler(pointer, change, static_cast<std::size_t>(totals.allocated),
                                   static_cast<std::size_t>(totals.reserved),
                                   c10::Device(c10::DeviceType::CUDA, device_));
}

Bytes ServedBlocks::HeldBytes() const noexcept {
  Bytes bytes = 0;
  for (const PlannedSpace* const space : runtime_.spaces()) bytes += space->arena().mapped_bytes();
  return bytes;
}

bool ServedBlocks::UpdateReserved() { return stats_.SetReserved(HeldBytes()); }

// The engine finds out at marks that streams are done. Fewer blocks of its wait than the history knows frees of: one is
// complete. Cheap enough for every request while history is recorded.
bool ServedBlocks::MayCompleteFrees() const {
  const std::size_t incomplete = history_.Incomplete(device_);
  if (incomplete == 0) return false;
  std::uint64_t pending = 0;
  for (const PlannedSpace* const space : runtime_.spaces()) pending += space->engine().Stats().pending_blocks;
  return pending < incomplete;
}

void ServedBlocks::CompleteFrees() {
  std::vector<std::size_t> held;
  for (const PlannedSpace* const space : runtime_.spaces()) {
    for (const LiveBlock& block : space->engine().LiveBlocks()) held.push_back(space->arena().base() + block.offset);
  }
  history_.CompleteUnlessHeld(device_, held);
}

}  // namespace stalloc
