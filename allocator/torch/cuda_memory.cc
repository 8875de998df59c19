// CudaDevice, second part: figures, limits, peers and the snapshot.
#include <algorithm>

#include "allocator/base/log.h"
#include "allocator/runtime/human_bytes.h"
#include "allocator/runtime/planned_space.h"
#include "allocator/sleep/saved_bytes.h"
#include "allocator/torch/cuda_device.h"
#include "allocator/torch/cuda_ipc.h"
#include "allocator/torch/cuda_snapshot.h"

namespace stalloc {
namespace {

// Chunks that touch, together: blocks lie across their borders.
std::vector<Arena::Range> Runs(const std::vector<Arena::Range>& chunks) {
  std::vector<Arena::Range> runs;
  for (const Arena::Range& chunk : chunks) {
    if (!runs.empty() && runs.back().offset + runs.back().bytes == chunk.offset) {
      runs.back().bytes += chunk.bytes;
    } else {
      runs.push_back(chunk);
    }
  }
  return runs;
}

// The stack of this thread's empty_cache() while that lasts. The arena changes under locks, where none can be gathered.
thread_local const AllocationHistory::Context* t_emptied_by = nullptr;
// Trackers of segments are called by this thread.
thread_local bool t_reports_segments = false;

// Blocks in memory of graphs' pools, which are the native allocator's segments at other addresses, or partly there:
// each is shown by itself.
std::vector<LiveBlock> LentBlocksOf(const Arena& arena, std::vector<LiveBlock> live) {
  std::erase_if(live, [&](const LiveBlock& block) {
    return block.offset < arena.borrow_begin() || arena.HolesIn(block.offset, block.bytes).empty();
  });
  return live;
}

// From the arena's base.
Bytes EndOfBlock(const PlannedSpace& space, const void* pointer) {
  const LiveBlock block = space.engine().FindLive(pointer);
  return block.offset + block.bytes;
}

}  // namespace

// Changes of the arena ----------------------------------------------------------------------------------------------

void CudaDevice::BeforeArenaChange() noexcept {
  // A plan is taken up: from the first block of the arena on we count.
  if (!serves_.exchange(true)) upstream_.SetLimited(MemoryFraction() < 1.0);
  blocks_->LookAtNative();
  mapped_before_change_ = blocks_->HeldBytes();
  TellSegments(AllocationHistory::Entry::SEGMENT_FREE);
}

void CudaDevice::AfterArenaChange() noexcept {
  const Bytes mapped = blocks_->HeldBytes();
  times_mapped_.fetch_add(mapped > mapped_before_change_ ? 1 : 0, std::memory_order_relaxed);
  times_unmapped_.fetch_add(mapped < mapped_before_change_ ? 1 : 0, std::memory_order_relaxed);
  TellSegments(AllocationHistory::Entry::SEGMENT_ALLOC);
  if (blocks_->UpdateReserved()) blocks_->LookAtNative();
}

// Under the locks of the change: trackers that register memory (NCCL's) must know of it before it goes.
void CudaDevice::TellSegments(AllocationHistory::Entry::Action action) noexcept {
  if (!environment_.history->active()) return;
  t_reports_segments = true;
  for (const PlannedSpace* const space : runtime_->spaces()) {
    const Arena& arena = space->arena();
    for (const Arena::Range& run : Runs(arena.Chunks())) {
      environment_.history->OnSegment(
          action, {index_, reinterpret_cast<const void*>(arena.base() + run.offset), run.bytes, nullptr},
          t_emptied_by != nullptr ? *t_emptied_by : nullptr);
    }
  }
  t_reports_segments = false;
}

bool CudaDevice::ReportsSegments() noexcept { return t_reports_segments; }

// Statistics --------------------------------------------------------------------------------------------------------

CudaDevice::DeviceStats CudaDevice::Stats() {
  if (!serves_) return environment_.native->getDeviceStats(index_);
  blocks_->UpdateReserved();
  UpdateSample();
  DeviceStats stats = blocks_->stats().Combine(environment_.native->getDeviceStats(index_));
  stats.num_ooms -= environment_.relay->Retracted(index_);
  stats.num_device_alloc += times_mapped_.load(std::memory_order_relaxed);
  stats.num_device_free += times_unmapped_.load(std::memory_order_relaxed);
  return stats;
}

// The runtime first: it keeps the native allocator's peak of the whole run.
void CudaDevice::ResetPeakStats() {
  runtime_->ResetPeaks();
  environment_.native->resetPeakStats(index_);
  if (!serves_) return;
  UpdateSample();
  blocks_->stats().ResetPeaks(environment_.native->getDeviceStats(index_));
}

void CudaDevice::ResetAccumulatedStats() {
  environment_.native->resetAccumulatedStats(index_);
  environment_.relay->ResetRetracted(index_);
  if (serves_) blocks_->stats().ResetAccumulated();
  times_mapped_.store(0, std::memory_order_relaxed);
  times_unmapped_.store(0, std::memory_order_relaxed);
}

void CudaDevice::EmptyCache() {
  if (!serves_) return;
  const AllocationHistory::Context context = environment_.history->GatherForSegments();
  t_emptied_by = &context;
  runtime_->EmptyCache();
  t_emptied_by = nullptr;
  blocks_->UpdateReserved();
}

void CudaDevice::MakeRoom() {
  if (serves_ && runtime_->arena() != nullptr) EmptyCache();
}

void CudaDevice::PoolOpens() noexcept {
  if (serves_) runtime_->UpstreamPoolOpens();
}

void CudaDevice::PoolCloses() noexcept {
  if (serves_) runtime_->UpstreamPoolCloses();
}

void CudaDevice::UpdateSample() {
  if (runtime_->spaces().empty()) return;
  CombinedStats::Sample sample;
  for (const PlannedSpace* const space : runtime_->spaces()) {
    for (const LiveBlock& block : space->engine().LiveBlocks()) {
      if (!block.freed_pending) continue;
      ++sample.pending;
      sample.pending_bytes += static_cast<std::int64_t>(block.bytes);
      sample.pending_requested += static_cast<std::int64_t>(block.requested);
    }
  }
  blocks_->stats().SetSample(sample);
}

// Limits ------------------------------------------------------------------------------------------------------------

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

// The native allocator gets what the arena leaves of the share.
void CudaDevice::ApplyFraction() {
  const double fraction = MemoryFraction();
  const auto share = static_cast<Bytes>(fraction * static_cast<double>(device_bytes_));
  upstream_.SetLimited(serves_ && fraction < 1.0);
  if (fraction < 1.0) WarnOfArenaAbove(share);
  runtime_->SetHeldLimit(fraction < 1.0 ? std::max<Bytes>(share, 1) : 0);
  ApplyNativeShare();
}

// Its idle chunks go back; what the plan needs of them is mapped again as far as the share allows.
void CudaDevice::WarnOfArenaAbove(Bytes share) const {
  if (runtime_->exact() || blocks_->HeldBytes() <= share) return;
  Log(LogSeverity::kWarning,
      "device %d: the plan's arena holds %s, the memory fraction allows %s: requests above it will find no memory; "
      "plan for this share, or set STALLOC_MODE=Torch",
      index_, HumanBytes(blocks_->HeldBytes()).text, HumanBytes(share).text);
}

// The native allocator checks only what it holds itself, so its share is the user's less what we hold.
void CudaDevice::ApplyNativeShare() {
  const std::lock_guard lock(fraction_mutex_);
  double share = fraction_;
  if (serves_ && fraction_ < 1.0) {
    share = std::max(0.0, fraction_ - static_cast<double>(blocks_->HeldBytes()) / static_cast<double>(device_bytes_));
  }
  if (share == native_share_) return;
  environment_.native->setMemoryFraction(share, index_);
  native_share_ = share;
}

// Peers -------------------------------------------------------------------------------------------------------------

void CudaDevice::EnablePeer(c10::DeviceIndex peer) noexcept {
  if (driver_ == nullptr || peer == index_) return;
  DriverStatus status = driver_->EnablePeer(peer);
  if (status.ok() && runtime_ != nullptr) status = runtime_->RefreshAccess();
  if (!status.ok()) {
    Log(LogSeverity::kWarning, "device %d: its arena is not opened to device %d: %s gave %d", index_, peer, status.call,
        status.native);
  }
}

c10::cuda::CUDACachingAllocator::ShareableHandle CudaDevice::Share(const void* pointer) const {
  return ShareBlock(*runtime_, index_, pointer);
}

void* CudaDevice::BaseAllocation(void* pointer, std::size_t* bytes) const {
  const PlannedSpace& space = *runtime_->SpaceOf(pointer);
  if (bytes != nullptr) *bytes = std::max(space.arena().mapped_end(), EndOfBlock(space, pointer));
  return reinterpret_cast<void*>(space.arena().base());
}

// History -----------------------------------------------------------------------------------------------------------

AllocationHistory::Context CudaDevice::ContextOf(const void* pointer) const {
  if (const PlannedSpace* const space = runtime_->SpaceOf(pointer); space != nullptr) {
    pointer = reinterpret_cast<const void*>(space->arena().base() + space->engine().FindLive(pointer).offset);
  }
  return environment_.history->BlockContext(pointer);
}

void CudaDevice::Annotate(AllocationHistory::Entry::Action action, const void* pointer, const std::string& metadata) {
  if (!environment_.history->active()) return;
  const ServedBlocks::Block block = blocks_->Find(pointer);
  if (block.requested == 0) return;  // as natively: only a live block that starts there has words
  environment_.history->OnAnnotation(action, {index_, pointer, block.requested, reinterpret_cast<void*>(block.stream)},
                                     metadata);
}

// Snapshot ----------------------------------------------------------------------------------------------------------

void CudaDevice::AppendSegments(std::vector<c10::cuda::CUDACachingAllocator::SegmentInfo>& segments) const {
  const AllocationHistory& history = *environment_.history;
  for (const PlannedSpace* const space : runtime_->spaces()) {
    const std::vector<LiveBlock> live = space->engine().LiveBlocks();
    const std::vector<LiveBlock> lent = LentBlocksOf(space->arena(), live);
    Ranges shown_apart;
    for (const LiveBlock& block : lent) shown_apart.push_back({block.offset, block.bytes});
    for (const Arena::Range& run : Without(Runs(space->arena().Chunks()), shown_apart)) {
      segments.push_back(ArenaSegment(index_, space->arena().base(), run, live, history));
    }
    for (const LiveBlock& block : lent) {
      const KnownBlock known{reinterpret_cast<void*>(space->arena().base() + block.offset), block.requested,
                             block.stream};
      segments.push_back(LoneSegment(index_, known, history));
    }
  }
}

}  // namespace stalloc
