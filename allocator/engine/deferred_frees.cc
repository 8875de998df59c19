#include "allocator/engine/deferred_frees.h"

#include <algorithm>

#include "allocator/base/check.h"

namespace stalloc {

DeferredFrees::DeferredFrees(StreamFence* fence, Occupancy& occupancy, SpinMutex& mutex, std::size_t max_pending,
                             std::size_t max_uses)
    : fence_(fence), occupancy_(occupancy), mutex_(mutex), uses_(max_uses), pending_(max_pending) {}

void DeferredFrees::Note(LiveRecord& block, StreamHandle stream) noexcept {
  if (block.Is(LiveRecord::kRetained)) return;
  if (fence_ != nullptr && uses_.Add(block.uses, stream)) return;
  block.flags |= LiveRecord::kRetained;
  ++retained_;
}

void DeferredFrees::Retain(LiveRecord& block) noexcept {
  if (!block.Is(LiveRecord::kRetained)) ++retained_;
  block.flags |= LiveRecord::kFreed | LiveRecord::kRetained;
}

void DeferredFrees::Free(std::uint32_t granule, Lock& lock) noexcept {
  LiveRecord* block = occupancy_.Find(granule);
  if (block->Is(LiveRecord::kRetained) || pending_count_ == pending_.size()) {
    Retain(*block);
    lock.unlock();
    return;
  }
  AddPending(*block);
  block->flags |= LiveRecord::kFreed | LiveRecord::kRecording;
  RecordEvents(block->uses, lock);
  block = occupancy_.Find(granule);
  block->flags &= static_cast<std::uint16_t>(~LiveRecord::kRecording);
  lock.unlock();
}

// Nobody else touches the list meanwhile: its block is freed, and marked as recording.
void DeferredFrees::RecordEvents(std::uint32_t list, Lock& lock) noexcept {
  for (std::uint32_t cell = list; cell != 0; cell = uses_[cell].next) {
    const StreamHandle stream = uses_[cell].stream;
    lock.unlock();
    const StreamFence::Event event = fence_->Record(stream);
    lock.lock();
    uses_[cell].event = event;
  }
}

bool DeferredFrees::OnlyPendingIn(std::uint32_t lo, std::uint32_t hi) const noexcept {
  std::size_t blocks = 0;
  for (const LiveRecord* block = occupancy_.LastIn(lo, hi); block != nullptr; block = occupancy_.LastIn(lo, hi)) {
    const bool can_be_released =
        block->Is(LiveRecord::kFreed) && !block->Is(LiveRecord::kRecording) && !block->Is(LiveRecord::kRetained);
    if (!can_be_released || ++blocks > kMaxBlocks) return false;
    hi = block->granule;
    if (hi <= lo) break;
  }
  return blocks > 0;
}

void DeferredFrees::ReclaimRange(std::uint32_t lo, std::uint32_t hi, Lock& lock) noexcept {
  if (polling_) return;
  polling_ = true;
  while (hi > lo) {
    Batch batch;
    const LiveRecord* block = occupancy_.LastIn(lo, hi);
    while (block != nullptr && AddBlock(batch, block->granule)) {
      hi = block->granule;
      block = hi > lo ? occupancy_.LastIn(lo, hi) : nullptr;
    }
    if (batch.size == 0) break;
    if (block == nullptr) hi = lo;
    Poll(batch, lock);
  }
  polling_ = false;
}

void DeferredFrees::ReclaimAll(Lock& lock) noexcept {
  if (polling_) return;
  polling_ = true;
  // Downwards: a release moves the last block into the gap, and that one has been seen or is new.
  std::size_t at = pending_count_;
  while (at > 0) {
    Batch batch;
    while (at > 0 && AddBlock(batch, pending_[at - 1])) --at;
    Poll(batch, lock);
  }
  polling_ = false;
}

// Adds the uses of a pending block, all of them or, of a block with more than a batch holds, as many as go in. False if
// the batch has no room for it.
bool DeferredFrees::AddBlock(Batch& batch, std::uint32_t granule) const noexcept {
  const LiveRecord* block = occupancy_.Find(granule);
  if (!block->Is(LiveRecord::kFreed) || block->Is(LiveRecord::kRecording) || block->Is(LiveRecord::kRetained)) {
    return true;
  }
  const std::size_t before = batch.size;
  for (std::uint32_t cell = block->uses; cell != 0; cell = uses_[cell].next) {
    if (batch.size == kBatch) {
      if (before == 0) return true;
      batch.size = before;
      return false;
    }
    batch.uses[batch.size++] = {granule, cell, uses_[cell].stream, uses_[cell].event, false};
  }
  return true;
}

void DeferredFrees::Poll(Batch& batch, Lock& lock) noexcept {
  lock.unlock();
  for (std::size_t i = 0; i < batch.size; ++i) {
    Polled& use = batch.uses[i];
    if (use.event == 0) {
      use.event = fence_->Record(use.stream);
    } else {
      use.done = fence_->Done(use.event);
      if (use.done) fence_->Recycle(use.event);
    }
  }
  lock.lock();
  Apply(batch);
}

// Blocks of a batch are still pending: only the polling thread releases any.
void DeferredFrees::Apply(Batch& batch) noexcept {
  for (std::size_t i = 0; i < batch.size; ++i) {
    const Polled& use = batch.uses[i];
    if (!use.done) {
      uses_[use.cell].event = use.event;
      continue;
    }
    LiveRecord* block = occupancy_.Find(use.granule);
    uses_.Remove(block->uses, use.cell);
    if (block->uses == 0) Release(*block);
  }
}

void DeferredFrees::AddPending(const LiveRecord& block) noexcept {
  pending_[pending_count_++] = block.granule;
  pending_bytes_ += block.bytes();
}

void DeferredFrees::Release(const LiveRecord& block) noexcept {
  std::uint32_t* const first = &pending_[0];
  std::uint32_t* const found = std::find(first, first + pending_count_, block.granule);
  STALLOC_DCHECK(found != first + pending_count_);
  *found = pending_[--pending_count_];
  pending_bytes_ -= block.bytes();
  occupancy_.Erase(block.granule);
}

}  // namespace stalloc
