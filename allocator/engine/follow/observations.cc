#include "allocator/engine/follow/observations.h"

#include <algorithm>

#include "allocator/engine/bytes/plan_reading.h"

namespace stalloc {

Observations::Observations(const DevicePlan& plan) : script_begins_(ScriptBegins(plan)) {
  device_.device = plan.device;
  ForEachScript(plan, [&](const Script& script) {
    device_.script_entries.push_back(static_cast<std::uint32_t>(script.entries.size()));
  });
  longest_ = script_begins_.back() - script_begins_[plan.prologue.size()];
  bool varies = false;
  ForEachEntry(plan, [&](const Entry& entry) { varies = varies || IsVaryingEntry(entry); });
  if (varies) seen_ = MappedArray<ObservedEntry>(script_begins_.back());
}

void Observations::Follow(std::uint32_t script, std::uint64_t iterations) noexcept {
  if (iterations == iterations_ || device_.script_entries.empty()) return;
  passed_ += script_begins_[script_ + 1] - first_;
  iterations_ = iterations;
  script_ = script;
  first_ = script_begins_[script];
}

void Observations::Watch(LiveRecord& block, Stamp stamp) const noexcept {
  if (stamp == 0) return;
  block.stamp = stamp;
  block.flags |= watched();
}

void Observations::WatchLast(Occupancy& occupancy, std::uint32_t lo, std::uint32_t hi) const noexcept {
  LiveRecord& block = *occupancy.Find(occupancy.LastIn(lo, hi)->granule);
  if (!block.Is(LiveRecord::kFreed)) Watch(block, block.stamp);
}

ObservedEntry& Observations::Add(Stamp stamp, Bytes bytes) noexcept {
  ObservedEntry& seen = seen_[(stamp >> 32) - 1];
  seen.min_bytes = seen.requests == 0 ? bytes : std::min(seen.min_bytes, bytes);
  seen.max_bytes = std::max(seen.max_bytes, bytes);
  ++seen.requests;
  return seen;
}

void Observations::Missed(Stamp stamp, Bytes bytes) noexcept {
  if (stamp != 0 && seen_.size() != 0) ++Add(stamp, bytes).misses;
}

void Observations::Freed(const LiveRecord& block, std::int32_t cursor, bool in_sync) noexcept {
  if (block.stamp == 0) return;
  ObservedEntry& seen = Add(block.stamp, block.bytes());
  const std::uint32_t life = passed_ + static_cast<std::uint32_t>(cursor) - static_cast<std::uint32_t>(block.stamp);
  if (in_sync && life <= longest_) seen.life = std::max<std::uint64_t>(seen.life, life);
}

ObservedEntry Observations::Of(std::size_t entry) const noexcept {
  const auto above = std::upper_bound(script_begins_.begin(), script_begins_.end(), entry);
  ObservedEntry seen = seen_[entry];
  seen.script = static_cast<std::uint32_t>(above - script_begins_.begin()) - 1;
  seen.entry = static_cast<std::uint32_t>(entry) - script_begins_[seen.script];
  return seen;
}

}  // namespace stalloc
