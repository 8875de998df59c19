// Requests that have no slot, or cannot have theirs. They get the first place that there is of these; what each of them
// costs, those before it do not:
//
//   an empty slot of the size    its owner's way, should that come after all
//   what iterations use late     nothing: it is soon free again (a fence's requests alone)
//   space that no slot needs      nothing; else a wait for another stream
//   in the way of slots          their owners then come here: one of the size, else any
//   a graphs' pool               a launch's way, should it stay so long
//   more memory                  what went back comes again, or moves, or the arena grows; not for a plan given up
//   in their way for good        better than out of memory
#include <algorithm>

#include "allocator/engine/plan_engine.h"

namespace stalloc {

[[gnu::noinline]] PlanEngine::Allocation PlanEngine::ServeUnplanned(Request request, MissReason reason,
                                                                    Lock& lock) noexcept {
  request.entry = StillThere(request.entry);
  Granules granule = TakeEmptySlot(request, reason, lock);
  request.entry = StillThere(request.entry);
  if (granule == kNone && MayHaveSpace(request, reason)) granule = TakeSpace(request, reason, lock);
  if (granule != kNone) return {AddressOf(granule), reason};
  observations_.Missed(request.stamp, Bytes{request.granules} * kBlockAlignment);
  ++stats_.misses[static_cast<std::size_t>(reason)];
  return {nullptr, reason};
}

// The lock may have been open since the entry was found, and the script another by now.
std::int32_t PlanEngine::StillThere(std::int32_t entry) const noexcept {
  return cursor_.script() != nullptr && entry >= cursor_.script()->index().size() ? -1 : entry;
}

// Before a plan's loop nothing is known of the time to come. What a plan leaves over that was given up is for small
// ones, too.
bool PlanEngine::MayHaveSpace(const Request& request, MissReason reason) const noexcept {
  if (plan_ == Plan::kLeftOver) return request.granules != 0 && active() && space_.TakesSmall();
  return request.granules != 0 && space_.Takes(request.granules) && reason != MissReason::kInactive &&
         (cursor_.script() != nullptr || !has_plan_);
}

Granules PlanEngine::TakeEmptySlot(const Request& request, MissReason reason, Lock& lock) noexcept {
  Place slot;
  if (reason == MissReason::kFenced && rules_.Have(Rule::kKeptPlaces)) slot = FindKeptPlace(request);
  if (rules_.Have(Rule::kLentSlots) && MayHaveSpace(request, reason) &&
      (reason == MissReason::kOccupied || reason == MissReason::kUnmatched)) {
    slot = FindLentSlot(request);
  }
  if (slot.granules == 0 || BackUp(slot, request, lock) != MissReason::kNone) return kNone;
  if (OccupyInOrder(slot, request, stats_.dynamic_hits, lock) != MissReason::kNone) return kNone;
  observations_.Watch(*occupancy_.Find(slot.granule), request.stamp);
  return slot.granule;
}

// details.md, Fences.
PlanEngine::Place PlanEngine::FindKeptPlace(const Request& request) const noexcept {
  for (std::int32_t entry = 0; entry < kept_.index().size(); ++entry) {
    const Place& place = kept_.PlaceOf(entry);
    const StreamBinding& binding = bindings_[place.stream];
    const bool is_own = binding.unbound() || binding.handle() == request.stream;
    if (place.granules == 0 || kept_.index().SizeAt(entry) != request.granules || !is_own) continue;
    if (freed_.OnlyFreedIn(place.granule, place.granule + place.granules)) return place;
  }
  return {};
}

// When the block will go, as far as the plan knows: nothing of requests outside the loop.
IdleGaps::Window PlanEngine::WindowFor(std::int32_t entry, MissReason reason) const noexcept {
  if (!has_plan_) return space_.gaps().Above();
  if (plan_ != Plan::kServed) return {};
  if (reason == MissReason::kFenced || reason == MissReason::kParallel) return {};
  const IdleGaps& gaps = space_.gaps();
  const std::uint32_t script = cursor_.script_number();
  if (entry < 0) return gaps.Around(script, matcher_.cursor());
  const IdleGaps::Window of_entry = gaps.Of(script, entry);
  // An entry that was always small has none, and now its size is another.
  return of_entry.empty() ? gaps.Around(script, entry) : of_entry;
}

// Entries of one size near each other often differ in order only, or one of them has no request this time: a slot that
// its owner was to have taken by now serves another of them as well. Not one that goes much earlier than this block is
// expected to, or where no entry explains it those of its size that are due. Of several the one that goes first.
PlanEngine::Place PlanEngine::FindLentSlot(const Request& request) const noexcept {
  if (cursor_.script()->index().size() == 0) return {};  // of a mark that came while the lock was open
  const IdleGaps& gaps = space_.gaps();
  const std::uint32_t script = cursor_.script_number();
  const std::int32_t at = request.entry >= 0 ? request.entry : matcher_.cursor();
  std::uint64_t life = gaps.LifeOf(script, at);
  const auto outlive = [&](std::int32_t, std::uint64_t left) { life = std::max(life, left); };
  if (request.entry < 0) gaps.ForEachOfSize(IdleGaps::Side::kFrom, script, at, request.granules, outlive);
  std::uint64_t best_left = 0;
  Place best;
  gaps.ForEachOfSize(
      IdleGaps::Side::kBefore, script, at, request.granules, [&](std::int32_t other, std::uint64_t left) {
        mutex_.AssertHeld();
        if (left < life - life / tuning::kGoesEarlier || (best.granules > 0 && left >= best_left)) return;
        const Place& place = cursor_.script()->PlaceOf(other);
        const Granules end = place.granule + request.granules;
        const bool fits = place.granules >= request.granules && bindings_[place.stream].handle() == request.stream;
        if (!fits || !freed_.OnlyFreedIn(place.granule, end) || !MayPlace(place.granule, end)) return;
        best = place;
        best_left = left;
      });
  return best;
}

Granules PlanEngine::TakeSpace(const Request& request, MissReason reason, Lock& lock) noexcept {
  const StreamIndex stream = clocks_.IndexOf(request.stream);
  if (stream == kNoStream) return kNone;
  DynamicSpace::Request wanted{request.granules, stream, WindowFor(request.entry, reason)};
  wanted.soon_over = reason == MissReason::kFenced || reason == MissReason::kParallel;
  if (lent_.pools() > 0 && FindMapped(wanted, StillThere(request.entry), MayGrow(request.granules)) == kNone) {
    if (const Granules lent = TakeLentSpace(request, stream, stats_.dynamic_hits, lock); lent != kNone) return lent;
  }
  Granules granule = FindSpace(wanted, request.entry, lock);
  if (granule == kNone && !wanted.window.empty()) {
    wanted.window = {};
    granule = FindSpace(wanted, request.entry, lock);
  }
  if (granule == kNone || !OccupySpace(granule, request, stream, lock)) return kNone;
  if (lent_.pools() > 0 && request.granules >= tuning::kLeastLent) lent_.Watch(granule, request.granules);
  return granule;
}

// Requests memory if it has to; the lock is open meanwhile, so that the search runs again.
Granules PlanEngine::FindSpace(DynamicSpace::Request wanted, std::int32_t entry, Lock& lock) noexcept {
  // What an emptied cache gave back comes again: no place is better for being mapped, and blocks do not crowd there.
  bool refills = !wanted.window.empty();
  for (int tries = 0; tries < tuning::kTriesForSpace; ++tries) {
    wanted.may_map = refills && !withdrawn_.empty() && backing_ != nullptr &&
                     backing_->Spare() >= Bytes{wanted.granules} * kBlockAlignment;
    Granules granule = FindMapped(wanted, StillThere(entry), MayGrow(wanted.granules));
    const bool fits = granule != kNone;
    if (fits && (!wanted.may_map || !withdrawn_.Touches(granule, granule + wanted.granules))) return granule;
    if (!fits) granule = space_.FindUnmapped(wanted);
    if (granule == kNone || backing_ == nullptr || plan_ != Plan::kServed) return kNone;
    const bool backed = RequestBacking(granule, wanted.granules, fits ? Growth::kForbidden : Growth::kAllowed, lock);
    if (!fits && !backed) return kNone;
    refills = refills && backed;
  }
  return kNone;
}

// Without memory from the device; where the arena may grow, without a wait and out of everybody's way.
Granules PlanEngine::FindMapped(const DynamicSpace::Request& wanted, std::int32_t entry, bool may_grow) const noexcept {
  const auto find_in = [&](IdleGaps::Window window) {
    mutex_.AssertHeld();
    DynamicSpace::Request there = wanted;
    there.window = window;
    return may_grow ? space_.Find(there) : space_.FindWaiting(there);
  };
  if (cursor_.fenced() && rules_.Have(Rule::kLateRooms)) {
    for (const IdleGaps::Window window : space_.late_rooms()) {
      if (const Granules granule = find_in(window); granule != kNone) return granule;
    }
  }
  Granules granule = find_in(wanted.window);
  const bool may_be_in_the_way = !may_grow && !wanted.window.empty() && rules_.Have(Rule::kInTheWay);
  if (granule != kNone || !may_be_in_the_way || cursor_.script() == nullptr) {
    return granule;
  }
  // What stays for good would be in the way in every iteration.
  const IdleGaps& gaps = space_.gaps();
  if (entry >= 0 && gaps.LifeOf(cursor_.script_number(), entry) == IdleGaps::kForever) return kNone;
  const GranuleRange slot = FindSlotInTheWay(wanted.granules, entry);
  if (slot.hi > 0) granule = find_in({&slot, 1});
  return granule != kNone ? granule : find_in({});
}

// details.md, In the way of slots: of those of its size the one that is needed last; empty if there is none.
GranuleRange PlanEngine::FindSlotInTheWay(Granules granules, std::int32_t entry) const noexcept {
  GranuleRange slot;
  const std::int32_t at = entry >= 0 ? entry : matcher_.cursor();
  const auto take_later = [&](std::int32_t other, std::uint64_t) {
    mutex_.AssertHeld();
    const Place& place = cursor_.script()->PlaceOf(other);
    const Granules end = place.granule + granules;
    if (other == at || place.granules < granules || !freed_.OnlyFreedIn(place.granule, end)) return;
    slot = {place.granule, end};
  };
  space_.gaps().ForEachOfSize(IdleGaps::Side::kFrom, cursor_.script_number(), at, granules, take_later);
  return slot;
}

// For a plan with one stream, its blocks leave no trace at their free, here as in slots: any other stream has to run
// after all that it did.
bool PlanEngine::OccupySpace(Granules granule, const Request& request, StreamIndex stream, Lock& lock) noexcept {
  const Granules end = granule + request.granules;
  if (!MayPlace(granule, end)) return false;
  const StreamBinding& home = bindings_.front();
  const bool traceless = bindings_.size() == 1 && !home.unbound();
  StreamNeeds needs;
  const bool vacant = occupancy_.LastIn(granule, end) == nullptr;
  if (!vacant && !freed_.Gather(granule, end, stream, needs)) return false;
  if (traceless && home.home() != stream && !AddHome(home, stream, needs)) return false;
  if (!needs.empty() && !clocks_.can_order()) return false;
  if (!vacant) freed_.Take(granule, end, stream);
  const std::uint16_t privacy = traceless && home.settled() && home.home() == stream ? LiveRecord::kPrivate : 0;
  const std::uint16_t watched = request.stamp != 0 ? observations_.watched() : 0;
  Occupy(granule, request, stream, static_cast<std::uint16_t>(privacy | LiveRecord::kWithoutSlot | watched));
  space_.Take(granule, request.granules);
  ++stats_.dynamic_hits;
  return needs.empty() || OrderOrPutBack(granule, stream, needs, stats_.dynamic_hits, lock);
}

}  // namespace stalloc
