// What the engine tells of itself.
#include "allocator/engine/plan_engine_impl.h"

namespace stalloc {
namespace {

// To the program. What only keeps in mind which stream had the bytes last is free memory.
bool IsInUse(const LiveRecord& record) {
  return !record.Is(LiveRecord::kFreed) || record.uses != 0 || record.Is(LiveRecord::kRetained);
}

}  // namespace

LiveBlock PlanEngine::Impl::Describe(const LiveRecord& record) const noexcept {
  return {Offset{record.granule} * kBlockAlignment, record.bytes(), record.requested(), clocks.HandleOf(record.stream),
          record.Is(LiveRecord::kFreed)};
}

std::string PlanEngine::Impl::CheckLocked() const {
  if (std::string broken = occupancy.CheckInvariants(); !broken.empty()) return broken;
  Bytes live = 0;
  Bytes pending = 0;
  std::uint64_t blocks = 0;
  occupancy.ForEachInOrder([&](const LiveRecord& record) {
    const bool is_freed = record.Is(LiveRecord::kFreed);
    blocks += is_freed ? 0 : 1;
    live += is_freed ? 0 : record.bytes();
    pending += is_freed && record.uses != 0 && !record.Is(LiveRecord::kRetained) ? record.bytes() : 0;
  });
  if (live != stats.live_bytes)
    return "engine: live_bytes=" + std::to_string(stats.live_bytes) + ", blocks say otherwise";
  if (blocks != stats.live_blocks) return "engine: live_blocks=" + std::to_string(stats.live_blocks) + " is wrong";
  if (pending != freed.pending_bytes()) return "engine: pending bytes do not add up";
  if (live > stats.peak_live_bytes) return "engine: peak below the live bytes";
  std::uint64_t answered = stats.planned_hits + stats.dynamic_hits;
  for (const std::uint64_t misses : stats.misses) answered += misses;
  if (answered > stats.requests) return "engine: more answers than requests";
  return {};
}

EngineStats PlanEngine::Stats() const {
  const Impl::Lock lock(impl_->mutex);
  EngineStats stats = impl_->stats;
  stats.iterations = impl_->cursor.iterations();
  stats.sync_losses = impl_->matcher.times_lost();
  stats.reanchorings = impl_->matcher.times_reanchored();
  stats.pending_blocks = impl_->freed.pending();
  stats.pending_bytes = impl_->freed.pending_bytes();
  stats.retained_blocks = impl_->freed.retained();
  stats.stream_events = impl_->clocks.events_recorded();
  stats.stream_waits = impl_->clocks.waits();
  stats.active = impl_->active;
  return stats;
}

void PlanEngine::ResetPeak() noexcept {
  const Impl::Lock lock(impl_->mutex);
  impl_->stats.peak_live_bytes = impl_->stats.live_bytes;
}

bool PlanEngine::VariesMostly() const noexcept { return impl_->dynamic.gaps().VariesMostly(); }

LiveBlock PlanEngine::FindLive(const void* pointer) const noexcept {
  const Impl::Lock lock(impl_->mutex);
  const auto offset = static_cast<Offset>(static_cast<const std::byte*>(pointer) - impl_->base);
  if (offset / kBlockAlignment >= impl_->arena_granules) return {};
  const auto granule = static_cast<std::uint32_t>(offset / kBlockAlignment);
  const LiveRecord* block = impl_->occupancy.LastIn(granule, granule + 1);
  return block != nullptr && IsInUse(*block) ? impl_->Describe(*block) : LiveBlock{};
}

std::vector<LiveBlock> PlanEngine::LiveBlocks() const {
  // Room first, outside the lock: a hook under this allocation could come back to the engine.
  std::vector<LiveBlock> blocks;
  for (std::size_t room = 0;; blocks.reserve(room)) {
    const Impl::Lock lock(impl_->mutex);
    room = impl_->occupancy.size();
    if (room > blocks.capacity()) {
      room += room / 8;
      continue;
    }
    impl_->occupancy.ForEachInOrder([&](const LiveRecord& record) {
      if (IsInUse(record)) blocks.push_back(impl_->Describe(record));
    });
    return blocks;
  }
}

std::size_t PlanEngine::CopyLiveBlocks(std::span<LiveBlock> blocks) const noexcept {
  const Impl::Lock lock(impl_->mutex);
  std::size_t count = 0;
  impl_->occupancy.ForEachInOrder([&](const LiveRecord& record) {
    if (!IsInUse(record)) return;
    if (count < blocks.size()) blocks[count] = impl_->Describe(record);
    ++count;
  });
  return count;
}

PlanPosition PlanEngine::Position() const noexcept {
  const Impl::Lock lock(impl_->mutex);
  const ScriptCursor& cursor = impl_->cursor;
  return {.in_script = cursor.script() != nullptr,
          .script = cursor.script_number(),
          .phase = cursor.phase(),
          .entry = impl_->matcher.cursor(),
          .in_sync = impl_->matcher.in_sync(),
          .fenced = cursor.fenced(),
          .iterations = cursor.iterations()};
}

ObservedDevice PlanEngine::Observed() const {
  // Room first, outside the lock: a hook under this allocation could come back to the engine.
  ObservedDevice observed = impl_->observations.device();
  observed.entries.reserve(impl_->observations.size());
  const Impl::Lock lock(impl_->mutex);
  for (std::size_t number = 0; number < impl_->observations.size(); ++number) {
    const ObservedEntry entry = impl_->observations.Of(number);
    if (entry.requests > 0) observed.entries.push_back(entry);
  }
  return observed;
}

std::string PlanEngine::CheckInvariants() const {
  const Impl::Lock lock(impl_->mutex);
  return impl_->CheckLocked();
}

}  // namespace stalloc
