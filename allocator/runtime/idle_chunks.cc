#include "allocator/runtime/idle_chunks.h"

#include <algorithm>

namespace stalloc {

IdleChunks::IdleChunks(VmmDriver& driver, Arena& arena, PlanEngine& engine) noexcept
    : driver_(driver), arena_(arena), engine_(engine) {
  engine_.SetBacking(this);
}

Bytes IdleChunks::GiveBack() noexcept {
  const std::lock_guard lock(mutex_);
  // Freed blocks that another stream may still use hold their chunks: wait for those streams, once.
  if (engine_.Stats().pending_blocks > 0 && driver_.Synchronize().ok()) engine_.ReclaimPending();
  const std::vector<Arena::Range> chunks = WithdrawIdle();
  if (chunks.empty()) return 0;
  if (!driver_.Synchronize().ok()) {
    RestoreAll(chunks);
    return 0;
  }
  const Bytes released = Unmap(chunks);
  // A chunk that the driver would not unmap is still mapped, and stays lent: EnsureMapped then finds it there.
  lent_.insert(lent_.end(), chunks.begin(), chunks.end());
  counts_.lent_bytes += released;
  if (released > 0) ++counts_.times_given_back;
  return released;
}

Bytes IdleChunks::Release(std::span<const Arena::Range> idle) noexcept {
  const std::lock_guard lock(mutex_);
  return Unmap(idle);
}

// REQUIRES: mutex_ is held.
Bytes IdleChunks::Unmap(std::span<const Arena::Range> idle) noexcept {
  ArenaListener* const listener = listener_.load(std::memory_order_acquire);
  if (listener != nullptr) listener->BeforeArenaChange();
  const Bytes released = arena_.ReleaseIdle(idle);
  if (listener != nullptr) listener->AfterArenaChange();
  return released;
}

bool IdleChunks::Back(Offset offset, Bytes bytes) noexcept {
  if (full_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(mutex_);
  const auto needed = [&](const Arena::Range& chunk) {
    return chunk.offset < offset + bytes && offset < chunk.offset + chunk.bytes;
  };
  Offset lo = offset + bytes;
  Offset hi = offset;
  for (const Arena::Range& chunk : lent_) {
    if (!needed(chunk)) continue;
    lo = std::min(lo, chunk.offset);
    hi = std::max(hi, chunk.offset + chunk.bytes);
  }
  if (lo >= hi) return true;  // another thread has just brought it back
  ArenaListener* const listener = listener_.load(std::memory_order_acquire);
  if (listener != nullptr) listener->BeforeArenaChange();
  const Bytes before = arena_.mapped_bytes();
  const bool backed = arena_.EnsureMapped(lo, hi - lo).ok();  // all of it, or nothing
  counts_.lent_bytes -= std::min(counts_.lent_bytes, arena_.mapped_bytes() - before);
  if (listener != nullptr) listener->AfterArenaChange();
  if (!backed) {
    ++counts_.times_not_mapped;
    full_.store(true, std::memory_order_relaxed);
    return false;
  }
  ++counts_.times_mapped_again;
  std::erase_if(lent_, [&](const Arena::Range& chunk) {
    if (!needed(chunk)) return false;
    engine_.Restore(chunk.offset, chunk.bytes);
    return true;
  });
  return true;
}

IdleChunks::Counts IdleChunks::GetCounts() const noexcept {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::vector<Arena::Range> IdleChunks::WithdrawIdle() noexcept {
  std::vector<Arena::Range> chunks = arena_.Chunks();
  std::erase_if(chunks, [this](const Arena::Range& chunk) { return !engine_.Withdraw(chunk.offset, chunk.bytes); });
  return chunks;
}

void IdleChunks::RestoreAll(const std::vector<Arena::Range>& chunks) noexcept {
  for (const Arena::Range& chunk : chunks) engine_.Restore(chunk.offset, chunk.bytes);
}

}  // namespace stalloc
