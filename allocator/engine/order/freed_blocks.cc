#include "allocator/engine/order/freed_blocks.h"

#include <algorithm>
#include <array>

namespace stalloc {

FreedBlocks::FreedBlocks(Occupancy& occupancy, StreamClocks& clocks, std::size_t max_listed)
    : occupancy_(occupancy), clocks_(clocks), uses_(ForeignUses::kMostSets), listed_(max_listed) {}

void FreedBlocks::Retain(LiveRecord& block) noexcept {
  if (block.Is(LiveRecord::kRetained)) return;
  block.flags |= LiveRecord::kRetained;
  ++retained_;
}

void FreedBlocks::Note(LiveRecord& block, StreamIndex stream) noexcept {
  if (!clocks_.can_order() || stream == kNoStream || !uses_.Add(block.uses, stream)) Retain(block);
}

void FreedBlocks::NoteFreedOn(LiveRecord& block, StreamIndex stream) noexcept {
  if (stream == kNoStream) return Retain(block);
  if (stream == block.stream) return;  // by another of its names
  block.freed_on = static_cast<std::uint8_t>(stream);
  block.flags |= LiveRecord::kFreedElsewhere;
}

// Free ----------------------------------------------------------------------------------------------------------------

void FreedBlocks::Free(LiveRecord& block, Lock& lock) noexcept {
  block.flags |= LiveRecord::kFreed;
  block.stamp = clocks_.NewStamp();
  if (block.Is(LiveRecord::kRetained)) return;
  std::array<StreamIndex, StreamClocks::kMaxStreams + 2> streams;
  std::size_t count = 0;
  if (block.Is(LiveRecord::kHandedOver)) {
    streams[count++] = block.stream;
    if (block.Is(LiveRecord::kFreedElsewhere)) streams[count++] = block.freed_on;
  }
  uses_.All(block.uses, [&](StreamIndex stream) {
    streams[count++] = stream;
    return true;
  });
  if (block.uses != 0) Enlist(block);
  for (std::size_t i = 0; i < count; ++i) clocks_.RecordEvent(streams[i], lock);
}

// For a retained block nobody knows which streams could not be noted.
void FreedBlocks::FreeForGood(LiveRecord& block) noexcept {
  block.flags |= LiveRecord::kFreed;
  block.stamp = clocks_.NewStamp();
  if (block.Is(LiveRecord::kRetained)) return clocks_.has_other_devices() ? void() : Forget(block);
  if (AllOtherDevices(block, [](StreamIndex) { return false; })) return Forget(block);
  Enlist(block);
}

void FreedBlocks::Forget(LiveRecord& block) noexcept {
  uses_.Clear(block.uses);
  occupancy_.Erase(block);
}

// Reuse ---------------------------------------------------------------------------------------------------------------

template <typename Visit>
bool FreedBlocks::AllStreams(const LiveRecord& block, StreamIndex waiter, Visit&& visit) const noexcept {
  const auto visit_use = [&](StreamIndex stream) { return visit(stream, block.stamp); };
  if (!visit_use(block.stream)) return false;
  const bool own = waiter == block.stream && clocks_.IsOneStream(waiter);
  if (!own && block.Is(LiveRecord::kFreedElsewhere) && !visit_use(block.freed_on)) return false;
  return (own || clocks_.AllDebts(block.stream, visit)) && uses_.All(block.uses, visit_use);
}

// True if all blocks in [lo, hi) can be had, and visit(block) is true of each of them.
template <typename Visit>
bool FreedBlocks::AllFreedIn(std::uint32_t lo, std::uint32_t hi, Visit&& visit) const noexcept {
  const auto is_obstacle = [&](const LiveRecord& block) { return !IsReusable(block) || !visit(block); };
  return occupancy_.LastIn(lo, hi, is_obstacle) == nullptr;
}

bool FreedBlocks::OnlyFreedIn(std::uint32_t lo, std::uint32_t hi) const noexcept {
  return AllFreedIn(lo, hi, [](const LiveRecord&) { return true; });
}

template <typename Visit>
bool FreedBlocks::AllOtherDevices(const LiveRecord& block, Visit&& visit) const noexcept {
  return uses_.All(block.uses, [&](StreamIndex stream) {
    return !clocks_.IsOfOtherDevice(stream) || clocks_.IsDone(stream, block.stamp) || visit(stream);
  });
}

bool FreedBlocks::OnlyThisDevicesIn(std::uint32_t lo, std::uint32_t hi) const noexcept {
  return AllFreedIn(
      lo, hi, [this](const LiveRecord& block) { return AllOtherDevices(block, [](StreamIndex) { return false; }); });
}

bool FreedBlocks::CanBeHad(const LiveRecord& block, StreamIndex waiter, bool now) const noexcept {
  if (!IsReusable(block)) return false;
  const auto ordered = [&](StreamIndex stream, std::uint64_t stamp) {
    return clocks_.IsOrdered(waiter, stream, stamp);
  };
  return !now || AllStreams(block, waiter, ordered);
}

bool FreedBlocks::Gather(std::uint32_t lo, std::uint32_t hi, StreamIndex waiter, StreamNeeds& needs) const noexcept {
  return AllFreedIn(lo, hi, [&](const LiveRecord& block) {
    return AllStreams(block, waiter, [&](StreamIndex stream, std::uint64_t stamp) {
      return clocks_.IsOrdered(waiter, stream, stamp) || needs.Add(stream, stamp);
    });
  });
}

void FreedBlocks::Take(std::uint32_t lo, std::uint32_t hi, StreamIndex taker) noexcept {
  for (const LiveRecord* found = occupancy_.LastIn(lo, hi); found != nullptr; found = occupancy_.LastIn(lo, hi)) {
    const LiveRecord block = *found;
    if (block.Is(LiveRecord::kFreedElsewhere) && block.stream == taker) {
      clocks_.Owe(taker, block.freed_on, block.stamp);
    }
    if (block.end() > hi) CutHead(block, hi);
    if (block.granule >= lo) {
      if (block.uses != 0) Delist(block);
      Forget(*occupancy_.Find(block.granule));
      continue;
    }
    LiveRecord& tail_cut = *occupancy_.Find(block.granule);
    tail_cut.granules = lo - block.granule;
    if (block.uses != 0) pending_bytes_ -= block.bytes() - tail_cut.bytes();
    break;
  }
}

// What lies from `from` on becomes a block of its own; the rest is still as long as it was, for Take to see to.
void FreedBlocks::CutHead(const LiveRecord& block, std::uint32_t from) noexcept {
  LiveRecord rest = block;
  rest.granule = from;
  rest.granules = block.end() - from;
  rest.slack = 0;
  if (!uses_.Copy(block.uses, rest.uses)) Retain(rest);
  occupancy_.Insert(rest);
  if (rest.uses != 0) Enlist(rest);
}

// Its stream stands for those after which it runs already, and which are not among its needs.
void FreedBlocks::PutBack(std::uint32_t granule, const StreamNeeds& needs) noexcept {
  LiveRecord& block = *occupancy_.Find(granule);
  block.flags = LiveRecord::kFreed;
  block.stamp = clocks_.NewStamp();
  for (const StreamNeeds::Need& need : needs) {
    if (!uses_.Add(block.uses, need.stream)) Retain(block);
  }
  if (block.uses != 0 && !block.Is(LiveRecord::kRetained)) Enlist(block);
}

// Letting go ----------------------------------------------------------------------------------------------------------

void FreedBlocks::Sweep(Lock& lock) noexcept {
  StreamNeeds missing;  // events that could not be recorded at the free of a pending block
  for (std::size_t at = 0; at < listed_count_; ++at) {
    const LiveRecord& block = *occupancy_.Find(listed_[at]);
    uses_.All(block.uses, [&](StreamIndex stream) {
      return clocks_.HasEvent(stream, block.stamp) || missing.Add(stream, block.stamp);
    });
  }
  for (const StreamNeeds::Need& need : missing) clocks_.RecordEvent(need.stream, lock);
  clocks_.Poll(lock);
  LetGoOfDone();
}

// Downwards: a block that goes is replaced by the last one, which has been seen.
void FreedBlocks::LetGoOfDone() noexcept {
  for (std::size_t at = listed_count_; at > 0; --at) LetGo(listed_[at - 1]);
}

void FreedBlocks::AwaitOtherDevices(Lock& lock) noexcept {
  if (pending_ == 0) return;
  StreamNeeds needs;  // of more streams than fit the rest is left
  occupancy_.ForEachDownwards([&](const LiveRecord& block) {
    if (!block.Is(LiveRecord::kFreed)) return;
    (void)AllOtherDevices(block, [&](StreamIndex stream) { return needs.Add(stream, block.stamp); });
  });
  for (const StreamNeeds::Need& need : needs) clocks_.Await(need.stream, need.stamp, lock);
  LetGoOfDone();
}

void FreedBlocks::LetGo(std::uint32_t granule) noexcept {
  LiveRecord& block = *occupancy_.Find(granule);
  const LiveRecord before = block;
  uses_.RemoveIf(block.uses, [&](StreamIndex stream) { return clocks_.IsDone(stream, before.stamp); });
  if (block.uses != 0) return;
  Delist(before);
  if (before.Is(LiveRecord::kPrivate) && !before.Is(LiveRecord::kFreedElsewhere)) occupancy_.Erase(block);
}

void FreedBlocks::Enlist(const LiveRecord& block) noexcept {
  ++pending_;
  pending_bytes_ += block.bytes();
  if (listed_count_ < listed_.size()) listed_[listed_count_++] = block.granule;
}

void FreedBlocks::Delist(const LiveRecord& block) noexcept {
  --pending_;
  pending_bytes_ -= block.bytes();
  std::uint32_t* const first = listed_.data();
  std::uint32_t* const found = std::find(first, first + listed_count_, block.granule);
  if (found != first + listed_count_) *found = listed_[--listed_count_];
}

}  // namespace stalloc
