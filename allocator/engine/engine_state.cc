// The engine's reports on itself.
#include <algorithm>
#include <cstddef>

#include "allocator/engine/plan_engine.h"

namespace stalloc {
namespace {

// To the program. What only keeps in mind which stream had the bytes last is free memory.
bool IsInUse(const LiveRecord& record) {
  if (record.IsOfLaunch()) return false;
  return !record.Is(LiveRecord::kFreed) || record.uses != 0 || record.Is(LiveRecord::kRetained);
}

}  // namespace

LiveBlock PlanEngine::Describe(const LiveRecord& record) const noexcept {
  return {Offset{record.granule} * kBlockAlignment,
          record.bytes(),
          record.requested(),
          clocks_.HandleOf(record.stream),
          record.Is(LiveRecord::kFreed),
          record.Is(LiveRecord::kAsleep),
          record.Is(LiveRecord::kShared),
          record.tag()};
}

std::string PlanEngine::CheckLocked() const {
  if (std::string broken = occupancy_.CheckInvariants(); !broken.empty()) return broken;
  Bytes live = 0;
  Bytes pending = 0;
  std::uint64_t blocks = 0;
  occupancy_.ForEachDownwards([&](const LiveRecord& record) {
    const bool is_freed = record.Is(LiveRecord::kFreed) || record.IsOfLaunch();
    blocks += is_freed ? 0 : 1;
    live += is_freed ? 0 : record.bytes();
    pending += is_freed && record.uses != 0 && !record.Is(LiveRecord::kRetained) ? record.bytes() : 0;
  });
  if (live != stats_.live_bytes) {
    return "engine: live_bytes=" + std::to_string(stats_.live_bytes) + ", blocks say otherwise";
  }
  if (blocks != live_.size()) return "engine: live ranges of " + std::to_string(live_.size()) + " blocks";
  if (blocks != stats_.live_blocks) return "engine: live_blocks=" + std::to_string(stats_.live_blocks) + " is wrong";
  if (pending != freed_.pending_bytes()) return "engine: pending bytes do not add up";
  if (live > stats_.peak_live_bytes) return "engine: peak below the live bytes";
  std::uint64_t answered = stats_.planned_hits + stats_.dynamic_hits;
  for (const std::uint64_t misses : stats_.misses) answered += misses;
  if (answered > stats_.requests) return "engine: more answers than requests";
  return {};
}

EngineStats PlanEngine::Stats() const {
  const Lock lock(mutex_);
  EngineStats stats = stats_;
  stats.iterations = cursor_.iterations();
  stats.sync_losses = matcher_.times_lost();
  stats.reanchorings = matcher_.times_reanchored();
  stats.pending_blocks = freed_.pending();
  stats.pending_bytes = freed_.pending_bytes();
  stats.retained_blocks = freed_.retained();
  stats.stream_events = clocks_.events_recorded();
  stats.stream_waits = clocks_.waits();
  stats.active = state_ != State::kStopped;
  return stats;
}

LiveBlock PlanEngine::FindLive(const void* pointer) const noexcept {
  const Lock lock(mutex_);
  const auto offset = static_cast<Offset>(static_cast<const std::byte*>(pointer) - base_);
  if (offset / kBlockAlignment >= arena_granules_) return {};
  const Granules granule = WholeGranules(offset);
  const LiveRecord* block = occupancy_.LastIn(granule, granule + 1);
  return block != nullptr && IsInUse(*block) ? Describe(*block) : LiveBlock{};
}

// Allocates outside the lock: a hook of this allocation could come back to the engine.
std::vector<LiveBlock> PlanEngine::LiveBlocks() const {
  std::vector<LiveBlock> blocks;
  for (std::size_t count = CopyLiveBlocks(blocks);; count = CopyLiveBlocks(blocks)) {
    const bool all = count <= blocks.size();
    blocks.resize(all ? count : count + count / 8);
    if (all) return blocks;
  }
}

std::size_t PlanEngine::CopyLiveBlocks(std::span<LiveBlock> blocks) const noexcept {
  const Lock lock(mutex_);
  std::size_t count = 0;
  occupancy_.ForEachDownwards([&](const LiveRecord& record) {
    mutex_.AssertHeld();
    if (!IsInUse(record)) return;
    if (count < blocks.size()) blocks[count] = Describe(record);
    ++count;
  });
  std::reverse(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(std::min(count, blocks.size())));
  return count;
}

PlanPosition PlanEngine::Position() const noexcept {
  const Lock lock(mutex_);
  return {.in_script = cursor_.script() != nullptr,
          .script = cursor_.script_number(),
          .phase = cursor_.phase(),
          .entry = matcher_.cursor(),
          .in_sync = matcher_.in_sync(),
          .fenced = cursor_.fenced(),
          .iterations = cursor_.iterations()};
}

ObservedDevice PlanEngine::Observed() const {
  ObservedDevice observed = observations_.device();
  observed.entries.reserve(observations_.size());  // outside the lock, as for LiveBlocks
  const Lock lock(mutex_);
  for (std::size_t number = 0; number < observations_.size(); ++number) {
    const ObservedEntry entry = observations_.Of(number);
    if (entry.requests > 0) observed.entries.push_back(entry);
  }
  return observed;
}

}  // namespace stalloc
