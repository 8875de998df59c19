// Requests that have no slot, or cannot have theirs: from the room that the plan, or the run, leaves idle.
#include <algorithm>

#include "allocator/engine/plan_engine.h"

namespace stalloc {
namespace {

// The same request, wherever there is room.
DynamicSpace::Request Anywhere(DynamicSpace::Request room) noexcept {
  room.window = {};
  return room;
}

}  // namespace

[[gnu::noinline]] PlanEngine::Allocation PlanEngine::ServeUnplanned(Request request, MissReason reason,
                                                                    Lock& lock) noexcept {
  const StreamIndex stream = clocks_.IndexOf(request.stream);
  request.entry = StillThere(request.entry);
  Granules granule = reason == MissReason::kFenced ? TakeKeptPlace(request, lock) : kNone;
  // Before a plan's loop nothing is known of the time to come.
  if (granule == kNone && request.granules != 0 && space_.Takes(request.granules) && reason != MissReason::kInactive &&
      (cursor_.script() != nullptr || !has_plan_)) {
    granule = TakeRoom(request, stream, reason, lock);
  }
  if (granule != kNone) return {AddressOf(granule), reason};
  observations_.Missed(request.stamp, request.granules);
  ++stats_.misses[static_cast<std::size_t>(reason)];
  return {nullptr, reason};
}

// The lock may have been open since the entry was found, and the script another by now.
std::int32_t PlanEngine::StillThere(std::int32_t entry) const noexcept {
  return cursor_.script() != nullptr && entry >= cursor_.script()->index().size() ? -1 : entry;
}

// details.md, Fences.
Granules PlanEngine::TakeKeptPlace(const Request& request, Lock& lock) noexcept {
  if (!rules_.Have(Rule::kKeptPlaces)) return kNone;
  for (std::int32_t entry = 0; entry < kept_.index().size(); ++entry) {
    const Place& place = kept_.PlaceOf(entry);
    const StreamBinding& binding = bindings_[place.stream];
    const bool is_own = binding.unbound() || binding.handle() == request.stream;
    if (place.granules == 0 || kept_.index().SizeAt(entry) != request.granules || !is_own) continue;
    if (!freed_.OnlyFreedIn(place.granule, place.granule + place.granules)) continue;
    if (BackUp(place, request, lock) != MissReason::kNone) return kNone;
    return OccupyInOrder(place, request, stats_.dynamic_hits, lock) == MissReason::kNone ? place.granule : kNone;
  }
  return kNone;
}

Granules PlanEngine::TakeRoom(Request request, StreamIndex stream, MissReason reason, Lock& lock) noexcept {
  const bool has_like = reason == MissReason::kOccupied || (reason == MissReason::kUnmatched && Disordered());
  if (has_like && rules_.Have(Rule::kLentSlots)) {
    const Place lent = FindLentSlot(request);
    if (lent.granules > 0 && OccupyInOrder(lent, request, stats_.dynamic_hits, lock) == MissReason::kNone) {
      observations_.Watch(*occupancy_.Find(lent.granule), request.stamp);
      return lent.granule;
    }
    request.entry = StillThere(request.entry);
  }
  DynamicSpace::Request room{request.granules, stream, RoomFor(request.entry, reason)};
  room.soon_over = reason == MissReason::kFenced || reason == MissReason::kParallel;
  const bool looks_late = reason == MissReason::kFenced && rules_.Have(Rule::kLateRooms);
  Granules granule = looks_late ? FindLateRoom(room) : kNone;
  if (granule == kNone) granule = FindRoom(room, request.entry, lock);
  // The arena may not grow, so there is no memory left for anybody: better in a slot's way than out of memory.
  if (granule == kNone && !room.window.empty()) granule = FindRoom(Anywhere(room), request.entry, lock);
  return granule != kNone && OccupyRoom(granule, request, stream, lock) ? granule : kNone;
}

// Requests come in another order than the plan's, or in another number: an unexpected one is probably one of those.
// Else it is one that the traced run did not have, and nothing is known of it.
bool PlanEngine::Disordered() const noexcept {
  return !matcher_.in_sync() || space_.gaps().VariesAround(cursor_.script_number(), matcher_.cursor());
}

// When the block will go, as far as the plan tells: nothing of requests outside the loop.
IdleGaps::Window PlanEngine::RoomFor(std::int32_t entry, MissReason reason) const noexcept {
  if (!has_plan_) return space_.gaps().Above();
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
// expected to. Of several the one that goes first.
PlanEngine::Place PlanEngine::FindLentSlot(const Request& request) const noexcept {
  const IdleGaps& gaps = space_.gaps();
  const std::uint32_t script = cursor_.script_number();
  const std::int32_t at = request.entry >= 0 ? request.entry : matcher_.cursor();
  const std::uint64_t life =
      request.entry >= 0 ? gaps.LifeOf(script, at) : gaps.LifeOfSize(script, at, request.granules);
  const std::uint64_t least = life - life / tuning::kGoesEarlier;
  std::uint64_t best_left = 0;
  Place best;
  gaps.ForEachOfSize(
      IdleGaps::Side::kBefore, script, at, request.granules, [&](std::int32_t other, std::uint64_t left) {
        if (left < least || (best.granules > 0 && left >= best_left)) return;
        const Place& place = cursor_.script()->PlaceOf(other);
        const bool fits = place.granules >= request.granules && bindings_[place.stream].handle() == request.stream;
        if (!fits || !freed_.OnlyFreedIn(place.granule, place.granule + request.granules)) return;
        best = place;
        best_left = left;
      });
  return best;
}

// details.md, Fences.
Granules PlanEngine::FindLateRoom(DynamicSpace::Request room) const noexcept {
  if (room.stream == kNoStream) return kNone;
  for (const IdleGaps::Window window : space_.late_rooms()) {
    room.window = window;
    if (const Granules granule = space_.FindMapped(room); granule != kNone) return granule;
  }
  return kNone;
}

// For a request of an entry whose slot is not mapped.
bool PlanEngine::HasMappedRoom(const Request& request) noexcept {
  DynamicSpace::Request room{request.granules, clocks_.IndexOf(request.stream), {}};
  if (room.stream == kNoStream || !space_.Takes(request.granules) || cursor_.script() == nullptr) return false;
  if (request.entry != StillThere(request.entry)) return false;  // the lock was open
  room.window = RoomFor(request.entry, MissReason::kUnbacked);
  return space_.FindMapped(room) != kNone;
}

bool PlanEngine::MayLieInTheWay(std::int32_t entry) const noexcept {
  if (!rules_.Have(Rule::kInTheWay)) return false;
  return entry < 0 || space_.gaps().LifeOf(cursor_.script_number(), entry) != IdleGaps::kForever;
}

// details.md, In the way of slots.
Granules PlanEngine::FindInTheWay(DynamicSpace::Request room, std::int32_t entry) const noexcept {
  if (cursor_.script() == nullptr) return kNone;  // the lock was open
  GranuleRange slot;
  const std::int32_t at = entry >= 0 ? entry : matcher_.cursor();
  const auto take_later = [&](std::int32_t other, std::uint64_t) {
    const Place& place = cursor_.script()->PlaceOf(other);
    const Granules end = place.granule + room.granules;
    if (other == at || place.granules < room.granules || !freed_.OnlyFreedIn(place.granule, end)) return;
    slot = {place.granule, end};
  };
  space_.gaps().ForEachOfSize(IdleGaps::Side::kFrom, cursor_.script_number(), at, room.granules, take_later);
  room.window = {&slot, 1};
  const Granules granule = slot.hi > 0 ? space_.FindMapped(room) : kNone;
  return granule != kNone ? granule : space_.FindMapped(Anywhere(room));
}

// Asks for memory where it has to; the lock is open meanwhile, so that the room is looked for again.
Granules PlanEngine::FindRoom(DynamicSpace::Request room, std::int32_t entry, Lock& lock) noexcept {
  if (room.stream == kNoStream) return kNone;
  // What an emptied cache gave back comes again, sooner or later: until then places are as good as if nothing had gone,
  // and blocks do not crowd where memory happens to be.
  bool refills = !room.window.empty();
  const bool may_lie_in_the_way = !room.window.empty() && MayLieInTheWay(entry);
  for (int tries = 0; tries < tuning::kTriesForRoom; ++tries) {
    room.refills = refills && !withdrawn_.empty() && backing_ != nullptr &&
                   backing_->Spare() >= Bytes{room.granules} * kBlockAlignment;
    Granules granule = space_.FindMapped(room);
    if (granule == kNone && may_lie_in_the_way) granule = FindInTheWay(room, entry);
    if (granule != kNone) {
      if (!room.refills || !withdrawn_.Touches(granule, granule + room.granules)) return granule;
      refills = AskBacking(granule, room.granules, MayTake::kNoMore, lock);
      continue;
    }
    if (!withdrawn_.empty()) granule = space_.Find(room, DynamicSpace::Cost::kMapping);
    if (granule == kNone) granule = space_.FindAbove(room);
    if (granule == kNone || backing_ == nullptr) break;
    if (!AskBacking(granule, room.granules, MayTake::kMore, lock)) break;
  }
  return kNone;
}

// A block beside the slots leaves a trace at its free, unless there is but one stream in the plan and this is it. Where
// the main stream's slots are, blocks may have been freed without one (slot_streams.h).
bool PlanEngine::OccupyRoom(Granules granule, const Request& request, StreamIndex stream, Lock& lock) noexcept {
  const Granules end = granule + request.granules;
  if (!MayPlace(granule, end)) return false;
  const StreamBinding& main = bindings_[main_stream_];
  const bool at_home = main.settled() && main.home() == stream;
  StreamNeeds needs;
  const bool vacant = occupancy_.LastIn(granule, end) == nullptr;
  if (!vacant && !freed_.Gather(granule, end, stream, needs)) return false;
  if (!at_home && !main.unbound() && main.home() != stream && !AddHome(main, stream, needs)) return false;
  if (!needs.empty() && !clocks_.can_order()) return false;
  if (!vacant) freed_.Take(granule, end, stream);
  const std::uint16_t privacy = at_home && bindings_.size() == 1 ? LiveRecord::kPrivate : 0;
  const std::uint16_t watched = request.stamp != 0 ? observations_.watched() : 0;
  Occupy(granule, request, stream, static_cast<std::uint16_t>(privacy | LiveRecord::kBeside | watched));
  space_.Take(granule, request.granules);
  ++stats_.dynamic_hits;
  return needs.empty() || OrderOrPutBack(granule, stream, needs, stats_.dynamic_hits, lock);
}

}  // namespace stalloc
