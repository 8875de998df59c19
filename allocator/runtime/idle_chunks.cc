#include "allocator/runtime/idle_chunks.h"

#include <algorithm>
#include <bit>

namespace stalloc {
namespace {

constexpr Bytes kSteps = 8192;  // of growth, to the plan's height

}  // namespace

IdleChunks::IdleChunks(VmmDriver& driver, Arena& arena, PlanEngine& engine) noexcept
    : driver_(driver),
      arena_(arena),
      engine_(engine),
      step_(std::max(driver.Granularity(), std::bit_floor(arena.mapped_end() / kSteps))),
      end_(arena.mapped_end()) {
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
  const std::lock_guard lock(mutex_);
  const Offset end = offset + bytes;
  const Arena::Range missing = Missing(offset, end);
  if (missing.bytes == 0) return true;  // another thread has just brought it back
  if (missing.bytes >= too_much_.load(std::memory_order_relaxed)) return false;
  const bool grows = end > end_;
  bool backed = grows && Map({missing.offset, RoundUp(end, step_) - missing.offset});
  backed = backed || Map(missing);
  if (!backed) {
    ++counts_.times_not_mapped;
    too_much_.store(missing.bytes, std::memory_order_relaxed);
    return false;
  }
  ++(grows ? counts_.times_grown : counts_.times_mapped_again);
  return true;
}

// What is not mapped of the chunks that lie in [offset, end), and of the room up to there. REQUIRES: mutex_ is held.
Arena::Range IdleChunks::Missing(Offset offset, Offset end) const noexcept {
  Arena::Range missing = end > end_ ? Arena::Range{end_, RoundUp(end, driver_.Granularity()) - end_} : Arena::Range{};
  for (const Arena::Range& chunk : lent_) {
    if (chunk.offset >= end || offset >= chunk.offset + chunk.bytes) continue;
    const Offset hi = std::max(missing.offset + missing.bytes, chunk.offset + chunk.bytes);
    missing.offset = missing.bytes == 0 ? chunk.offset : std::min(missing.offset, chunk.offset);
    missing.bytes = hi - missing.offset;
  }
  return missing;
}

// Chunks that were lent, and what lies above all. REQUIRES: mutex_ is held; the range cuts no chunk.
Bytes IdleChunks::UnmappedIn(const Arena::Range& range) const noexcept {
  const Offset end = range.offset + range.bytes;
  Bytes unmapped = end > end_ ? end - std::max(end_, range.offset) : 0;
  for (const Arena::Range& chunk : lent_) {
    if (range.offset <= chunk.offset && chunk.offset < end) unmapped += chunk.bytes;
  }
  return unmapped;
}

// All of the range, or nothing. REQUIRES: mutex_ is held.
bool IdleChunks::Map(const Arena::Range& range) noexcept {
  const Offset end = range.offset + range.bytes;
  ArenaListener* const listener = listener_.load(std::memory_order_acquire);
  if (end > arena_.reserved_bytes()) return false;
  if (listener != nullptr) {
    if (!listener->MayHold(arena_.mapped_bytes() + UnmappedIn(range))) return false;
    listener->BeforeArenaChange();
  }
  const Bytes before = arena_.mapped_bytes();
  const bool mapped = arena_.EnsureMapped(range.offset, range.bytes).ok();
  const Bytes grown = end > end_ ? end - end_ : 0;
  if (mapped) counts_.lent_bytes -= std::min(counts_.lent_bytes, arena_.mapped_bytes() - before - grown);
  if (listener != nullptr) listener->AfterArenaChange();
  if (!mapped) return false;
  std::erase_if(lent_, [&](const Arena::Range& chunk) {
    if (chunk.offset >= end || range.offset >= chunk.offset + chunk.bytes) return false;
    engine_.Restore(chunk.offset, chunk.bytes);
    return true;
  });
  if (end <= end_) return true;
  end_ = end;
  engine_.Extend(end_);
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
