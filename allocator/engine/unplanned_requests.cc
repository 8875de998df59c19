// Requests that have no slot, or cannot have theirs: from the room that the plan, or the run, leaves idle.
#include <algorithm>

#include "allocator/engine/plan_engine_impl.h"

namespace stalloc {
namespace {

// The same request, wherever there is room.
DynamicSpace::Request InTheWay(DynamicSpace::Request request) noexcept {
  request.window = {};
  return request;
}

}  // namespace

// From the room beside the slots. `entry`: of the present script, whose request it is; -1: nobody knows.
[[gnu::noinline]] PlanEngine::Allocation PlanEngine::Impl::ServeUnplanned(Bytes requested, StreamHandle stream,
                                                                          std::int32_t entry, Observations::Stamp stamp,
                                                                          MissReason reason, Lock& lock) noexcept {
  const Granules granules = ToGranules(requested);
  const StreamIndex index = clocks.IndexOf(stream);
  entry = StillThere(entry);
  if (reason == MissReason::kFenced) {
    const Place place = FindKeptPlace(granules, stream);
    const bool mapped = place.granules > 0 &&
                        (withdrawn.empty() || BackUp(place, place.granules, -1, stream, lock) == MissReason::kNone);
    if (mapped && TakeLentSlot(place, requested, stream, lock)) {
      return {base + Offset{place.granule} * kBlockAlignment, reason};
    }
  }
  // Before the loop (and with no plan) nothing is known of the time to come.
  if (granules != 0 && dynamic.Takes(granules) && reason != MissReason::kInactive && cursor.script() != nullptr) {
    const bool has_like = reason == MissReason::kOccupied || (reason == MissReason::kUnmatched && Disordered());
    if (has_like && rules.Have(Rule::kLentSlots)) {
      const Place lent = FindLentSlot(entry, granules, stream);
      if (lent.granules > 0 && TakeLentSlot(lent, requested, stream, lock)) {
        observations.Watch(*occupancy.Find(lent.granule), stamp);
        return {base + Offset{lent.granule} * kBlockAlignment, reason};
      }
      entry = StillThere(entry);
    }
    DynamicSpace::Request request{granules, index, RoomFor(entry, reason)};
    request.soon_over = reason == MissReason::kFenced || reason == MissReason::kParallel;
    const bool looks_late = reason == MissReason::kFenced && rules.Have(Rule::kLateRooms);
    std::uint32_t granule = looks_late ? FindLateRoom(request) : DynamicSpace::kNone;
    if (granule == DynamicSpace::kNone) granule = FindRoom(request, entry, lock);
    // The arena may not grow, so there is no memory left for anybody: better in a slot's way than out of memory.
    if (granule == DynamicSpace::kNone && !request.window.empty()) granule = FindRoom(InTheWay(request), entry, lock);
    if (granule != DynamicSpace::kNone && OccupyRoom(granule, requested, request.stream, stamp, lock)) {
      return {base + Offset{granule} * kBlockAlignment, reason};
    }
  }
  observations.Missed(stamp, granules);
  ++stats.misses[static_cast<std::size_t>(reason)];
  return {nullptr, reason};
}

// The lock may have been open since the entry was found, and the script another by now.
std::int32_t PlanEngine::Impl::StillThere(std::int32_t entry) const noexcept {
  return cursor.script() != nullptr && entry >= cursor.script()->index().size() ? -1 : entry;
}

// Requests come in another order than the plan's, or in another number: an unexpected one is probably one of those.
// Else it is one that the traced run did not have, and nothing is known of it.
bool PlanEngine::Impl::Disordered() const noexcept {
  return !matcher.in_sync() || dynamic.gaps().VariesAround(cursor.script_number(), matcher.cursor());
}

// See Note [Kept blocks].
PlanEngine::Impl::Place PlanEngine::Impl::FindKeptPlace(Granules granules, StreamHandle stream) const noexcept {
  if (!rules.Have(Rule::kKeptPlaces)) return {};
  return kept.Find(granules, [&](const Place& place) {
    const StreamBinding& binding = bindings[place.stream];
    return (binding.unbound() || binding.handle() == stream) &&
           freed.OnlyFreedIn(place.granule, place.granule + place.granules);
  });
}

// When the block will go, as far as the plan tells: nothing of requests outside the loop.
IdleGaps::Window PlanEngine::Impl::RoomFor(std::int32_t entry, MissReason reason) const noexcept {
  if (reason == MissReason::kFenced || reason == MissReason::kParallel) return {};
  const IdleGaps& gaps = dynamic.gaps();
  const std::uint32_t script = cursor.script_number();
  if (entry < 0) return gaps.Around(script, matcher.cursor());
  const IdleGaps::Window of_entry = gaps.Of(script, entry);
  // An entry that was always small has none, and now its size is another.
  return of_entry.empty() ? gaps.Around(script, entry) : of_entry;
}

// Entries of one size near each other often differ in order only, or one of them has no request this time: a slot that
// its owner was to have taken by now serves another of them as well. Not one that goes much earlier than this block is
// expected to. Of several the one that goes first.
PlanEngine::Impl::Place PlanEngine::Impl::FindLentSlot(std::int32_t entry, Granules granules,
                                                       StreamHandle stream) const noexcept {
  const IdleGaps& gaps = dynamic.gaps();
  const std::uint32_t script = cursor.script_number();
  const std::int32_t at = entry >= 0 ? entry : matcher.cursor();
  const std::uint64_t life = entry >= 0 ? gaps.LifeOf(script, entry) : gaps.LifeOfSize(script, at, granules);
  const std::uint64_t least = life - life / 8;
  std::uint64_t best_left = 0;
  Place best;
  gaps.ForEachOfSize(script, at, granules, [&](std::int32_t other) {
    const std::uint64_t left = gaps.LifeLeft(script, other, at);
    if (other >= at || left < least || (best.granules > 0 && left >= best_left)) return;
    const Place& place = cursor.script()->PlaceOf(other);
    const bool fits = place.granules >= granules && bindings[place.stream].handle() == stream;
    if (!fits || !freed.OnlyFreedIn(place.granule, place.granule + granules)) return;
    best = place;
    best_left = left;
  });
  return best;
}

bool PlanEngine::Impl::TakeLentSlot(const Place& place, Bytes requested, StreamHandle stream, Lock& lock) noexcept {
  if (OccupyInOrder(place, requested, stream, 0, lock) != MissReason::kNone) return false;
  --stats.planned_hits;
  ++stats.dynamic_hits;
  return true;
}

// Without a driver call.
std::uint32_t PlanEngine::Impl::FindMapped(const DynamicSpace::Request& request) const noexcept {
  const std::uint32_t granule = dynamic.Find(request, DynamicSpace::Cost::kNothing);
  return granule != DynamicSpace::kNone ? granule : dynamic.Find(request, DynamicSpace::Cost::kWaiting);
}

// See Note [What fences leave].
std::uint32_t PlanEngine::Impl::FindLateRoom(DynamicSpace::Request request) const noexcept {
  std::uint32_t granule = DynamicSpace::kNone;
  if (request.stream == kNoStream) return granule;
  dynamic.late_rooms().Try([&](IdleGaps::Window window) {
    request.window = window;
    granule = FindMapped(request);
    return granule != DynamicSpace::kNone;
  });
  return granule;
}

// For a request of the entry, whose slot is not mapped.
bool PlanEngine::Impl::HasMappedRoom(std::uint32_t granules, std::int32_t entry, StreamHandle stream) noexcept {
  DynamicSpace::Request request{granules, clocks.IndexOf(stream), {}};
  if (request.stream == kNoStream || !dynamic.Takes(granules) || cursor.script() == nullptr) return false;
  if (entry >= cursor.script()->index().size()) return false;  // the lock was open, and the script is another by now
  request.window = RoomFor(entry, MissReason::kUnbacked);
  return FindMapped(request) != DynamicSpace::kNone;
}

bool PlanEngine::Impl::MayLieInTheWay(std::int32_t entry) const noexcept {
  if (!rules.Have(Rule::kInTheWay)) return false;
  return entry < 0 || dynamic.gaps().LifeOf(cursor.script_number(), entry) != IdleGaps::kForever;
}

// See dynamic_space.h, Note [In the way of slots].
std::uint32_t PlanEngine::Impl::FindInTheWay(DynamicSpace::Request request, std::int32_t entry) const noexcept {
  if (cursor.script() == nullptr) return DynamicSpace::kNone;  // the lock was open
  IdleGaps::Gap slot;
  std::int32_t last = entry >= 0 ? entry : matcher.cursor();
  dynamic.gaps().ForEachOfSize(cursor.script_number(), last, request.granules, [&](std::int32_t other) {
    const Place& place = cursor.script()->PlaceOf(other);
    const std::uint32_t end = place.granule + request.granules;
    if (other <= last || place.granules < request.granules || !freed.OnlyFreedIn(place.granule, end)) return;
    slot = {place.granule, end};
    last = other;
  });
  request.window = {&slot, 1};
  const std::uint32_t granule = slot.hi > 0 ? FindMapped(request) : DynamicSpace::kNone;
  return granule != DynamicSpace::kNone ? granule : FindMapped(InTheWay(request));
}

// Asks for memory where it has to; the lock is open meanwhile, so that the room is looked for again.
std::uint32_t PlanEngine::Impl::FindRoom(DynamicSpace::Request request, std::int32_t entry, Lock& lock) noexcept {
  using enum ArenaBacking::MayTake;
  if (request.stream == kNoStream) return DynamicSpace::kNone;
  constexpr int kTries = 4;  // other threads may take what was mapped for this one
  // What an emptied cache gave back comes again, sooner or later: until then places are as good as if nothing had gone,
  // and blocks do not crowd where memory happens to be.
  bool refills = true;
  const bool may_lie_in_the_way = !request.window.empty() && MayLieInTheWay(entry);
  for (int tries = 0; tries < kTries; ++tries) {
    const Bytes bytes = Bytes{request.granules} * kBlockAlignment;
    const bool has_gaps = !request.window.empty();
    request.refills = refills && has_gaps && !withdrawn.empty() && backing != nullptr && backing->Spare() >= bytes;
    std::uint32_t granule = FindMapped(request);
    if (granule == DynamicSpace::kNone && may_lie_in_the_way) granule = FindInTheWay(request, entry);
    if (granule != DynamicSpace::kNone) {
      if (!request.refills || !withdrawn.Touches(granule, granule + request.granules)) return granule;
      refills = AskBacking(granule, request.granules, kNoMore, lock);
      continue;
    }
    if (!withdrawn.empty()) granule = dynamic.Find(request, DynamicSpace::Cost::kMapping);
    if (granule == DynamicSpace::kNone) granule = dynamic.FindAbove(request);
    if (granule == DynamicSpace::kNone || backing == nullptr) break;
    if (!AskBacking(granule, request.granules, kMore, lock)) break;
  }
  return DynamicSpace::kNone;
}

// A block beside the slots leaves a trace at its free, unless there is but one stream in the plan and this is it. Where
// the main stream's slots are, blocks may have been freed without one (slot_streams.h).
bool PlanEngine::Impl::OccupyRoom(std::uint32_t granule, Bytes requested, StreamIndex stream, Observations::Stamp stamp,
                                  Lock& lock) noexcept {
  const std::uint32_t end = granule + static_cast<std::uint32_t>(BlockBytes(requested) / kBlockAlignment);
  if (!MayPlace(granule, end)) return false;
  StreamBinding& main = bindings[main_stream];
  const bool at_home = main.settled() && main.home() == stream;
  StreamNeeds needs;
  const bool vacant = occupancy.LastIn(granule, end) == nullptr;
  if (!vacant && !freed.Gather(granule, end, stream, needs)) return false;
  if (!at_home && !main.unbound() && main.home() != stream &&
      !clocks.AddWithDebts(main.home(), main.settled() ? clocks.NewStamp() : main.until(), stream, needs)) {
    return false;
  }
  if (!needs.empty() && !clocks.can_order()) return false;
  if (!vacant) freed.Take(granule, end, stream);
  const std::uint16_t privacy = at_home && bindings.size() == 1 ? LiveRecord::kPrivate : 0;
  const std::uint16_t watched = stamp != 0 ? observations.watched() : 0;
  Occupy(granule, requested, stream, static_cast<std::uint16_t>(privacy | LiveRecord::kBeside | watched), stamp);
  dynamic.Take(granule, end - granule);
  ++stats.dynamic_hits;
  return needs.empty() || OrderOrPutBack(granule, stream, needs, stats.dynamic_hits, lock);
}

}  // namespace stalloc
