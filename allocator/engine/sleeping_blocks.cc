// Blocks whose bytes go elsewhere for a while, and what is known of them (allocator/sleep).
#include "allocator/engine/plan_engine.h"

namespace stalloc {

void PlanEngine::Pause() noexcept {
  const Lock lock(mutex_);
  paused_ = paused_ || active_;
  active_ = false;
}

void PlanEngine::Resume() noexcept {
  const Lock lock(mutex_);
  active_ = active_ || paused_;
  paused_ = false;
}

bool PlanEngine::SetTag(const void* pointer, unsigned tag) noexcept {
  constexpr unsigned kTags = LiveRecord::kMostTags << LiveRecord::kTagShift;
  return Flag(pointer, static_cast<std::uint16_t>(tag << LiveRecord::kTagShift), static_cast<std::uint16_t>(kTags));
}

bool PlanEngine::SetAsleep(Offset offset, bool asleep) noexcept {
  return Flag(base_ + offset, asleep ? LiveRecord::kAsleep : 0, LiveRecord::kAsleep);
}

bool PlanEngine::SetShared(Offset offset) noexcept { return Flag(base_ + offset, LiveRecord::kShared, 0); }

bool PlanEngine::WithdrawUnderBlocks(Offset offset, Bytes bytes) noexcept {
  const Lock lock(mutex_);
  return withdrawn_.Add(WholeGranules(offset), WholeGranules(offset + bytes));
}

}  // namespace stalloc
