#include "allocator/engine/plan_engine.h"

#include <algorithm>
#include <unordered_set>

#include "allocator/engine/plan_engine_impl.h"
#include "allocator/engine/slot_streams.h"

namespace stalloc {
namespace {

constexpr Bytes kMaxArenaBytes = Bytes{0xfffffffe} * kBlockAlignment;

// Two blocks never start at the same byte, so this is how many there can be. What is left of a freed block may start
// where a slot ends.
std::size_t MaxBlocks(const DevicePlan& plan) {
  std::unordered_set<Offset> starts;
  for (const Slot& slot : plan.slots) {
    starts.insert(slot.offset);
    if (!plan.stream_edges.empty()) starts.insert(slot.offset + slot.capacity);
  }
  return std::max<std::size_t>(starts.size(), 1);
}

// Where the arena's addresses end; 0 if nothing can be served.
std::uint32_t ArenaGranules(const DevicePlan& plan, const DynamicSpaceOptions& dynamic) {
  const Bytes end = std::max(plan.arena_bytes, std::min(dynamic.limit_bytes, kMaxArenaBytes));
  return end <= kMaxArenaBytes ? static_cast<std::uint32_t>(end / kBlockAlignment) : 0;
}

}  // namespace

PlanEngine::Impl::Impl(const DevicePlan& plan, void* base_address, StreamFence* fence,
                       const DynamicSpaceOptions& options)
    : base(static_cast<std::byte*>(base_address)),
      arena_granules(ArenaGranules(plan, options)),
      plan_granules(std::min(arena_granules, static_cast<std::uint32_t>(plan.arena_bytes / kBlockAlignment))),
      cursor(plan),
      observations(plan),
      occupancy(arena_granules, MaxBlocks(plan)),
      clocks(fence),
      freed(occupancy, clocks, MaxBlocks(plan)),
      last_frees(arena_granules),
      dynamic(plan, options, occupancy, freed, withdrawn),
      bindings(CountStreams(plan)),
      main_stream(MainStream(plan)),
      kept(plan, FlagsOfSlots(plan)),
      turns(plan),
      rules(options.rules),
      active(arena_granules > 0) {
  Follow();
}

// Allocation ----------------------------------------------------------------------------------------------------------

PlanEngine::Allocation PlanEngine::Impl::Allocate(Bytes requested, StreamHandle stream) noexcept {
  Lock lock(mutex);
  ++stats.requests;
  Place place;
  std::int32_t entry = -1;
  Observations::Stamp stamp = 0;
  MissReason reason = FindPlace(requested, place, entry, stamp);
  const auto granules = static_cast<std::uint32_t>(BlockBytes(requested) / kBlockAlignment);
  if (reason == MissReason::kNone) reason = TakePlace(place, granules, requested, entry, stream, stamp, lock);
  if (reason == MissReason::kOccupied && !turns.empty()) {
    reason = TakePlaceOfOtherTurn(place, granules, requested, entry, stream, stamp, lock);
  }
  if (reason == MissReason::kNone) return {base + Offset{place.granule} * kBlockAlignment, reason};
  return ServeUnplanned(requested, stream, entry, stamp, reason, lock);
}

// `granules`: of the requested bytes.
inline MissReason PlanEngine::Impl::TakePlace(const Place& place, std::uint32_t granules, Bytes requested,
                                              std::int32_t entry, StreamHandle stream, Observations::Stamp stamp,
                                              Lock& lock) noexcept {
  if (!withdrawn.empty()) {
    const MissReason reason = BackUp(place, granules, entry, stream, lock);
    if (reason != MissReason::kNone) return reason;
  }
  StreamBinding& binding = bindings[place.stream];
  if (stream != binding.handle() || occupancy.LastIn(place.granule, place.granule + granules) != nullptr) {
    return OccupyInOrder(place, requested, stream, stamp, lock);
  }
  binding.Used(cursor.iterations());
  Occupy(place.granule, requested, binding.home(), place.flags, stamp);
  ++stats.planned_hits;
  return MissReason::kNone;
}

// See turns.h. Each try may open the lock: another thread may go on in the loop meanwhile, or stop the engine.
[[gnu::noinline]] MissReason PlanEngine::Impl::TakePlaceOfOtherTurn(Place& place, std::uint32_t granules,
                                                                    Bytes requested, std::int32_t entry,
                                                                    StreamHandle stream, Observations::Stamp stamp,
                                                                    Lock& lock) noexcept {
  const std::uint32_t own = place.granule;
  for (std::uint32_t turn = 1; turn < turns.count(); ++turn) {
    if (!active) return MissReason::kInactive;
    const Place* const other = entry >= 0 ? cursor.PlaceInTurn(entry, turn * turns.period()) : nullptr;
    if (other == nullptr || other->granule == own || other->granules < granules) continue;
    const Place taken = *other;
    if (TakePlace(taken, granules, requested, entry, stream, stamp, lock) != MissReason::kNone) continue;
    place = taken;
    return MissReason::kNone;
  }
  return MissReason::kOccupied;
}

// Where the plan wants the request. The matcher sees every request of the loop, served or not, or it would lose the
// track.
MissReason PlanEngine::Impl::FindPlace(Bytes requested, Place& place, std::int32_t& entry,
                                       Observations::Stamp& stamp) noexcept {
  if (!active) return MissReason::kInactive;
  if (cursor.fenced()) return MissReason::kFenced;
  const Granules granules = ToGranules(requested);
  const Matcher::Match match = matcher.Next(granules);
  entry = match.entry;
  if (match.entry < 0) {
    return match.outcome == Matcher::Outcome::kUnknownSize ? MissReason::kUnknownSize : MissReason::kUnmatched;
  }
  place = cursor.script()->PlaceOf(match.entry);
  if (matcher.in_sync()) stamp = observations.StampOf(match.entry);
  if (match.outcome == Matcher::Outcome::kVarying) place.flags |= observations.watched();
  // No place, or of a varying entry a larger size. 0: larger than any place.
  return granules == 0 || place.granules < granules ? MissReason::kUnplanned : MissReason::kNone;
}

// The place was used before by blocks that left a trace, or the request comes from another stream than its entry's.
[[gnu::noinline]] MissReason PlanEngine::Impl::OccupyInOrder(const Place& place, Bytes requested, StreamHandle handle,
                                                             Observations::Stamp stamp, Lock& lock) noexcept {
  const StreamIndex stream = clocks.IndexOf(handle);
  if (stream == kNoStream) return MissReason::kStream;
  const std::uint32_t end = place.granule + static_cast<std::uint32_t>(BlockBytes(requested) / kBlockAlignment);
  if (!MayPlace(place.granule, end)) return MissReason::kUnbacked;
  StreamNeeds needs;
  if (!freed.Gather(place.granule, end, stream, needs)) {
    observations.WatchLast(occupancy, place.granule, end);
    return MissReason::kOccupied;
  }
  StreamBinding& binding = bindings[place.stream];
  if (!NeedsOfHome(binding, stream, needs) || (!needs.empty() && !clocks.can_order())) return MissReason::kStream;

  const bool at_home = binding.settled() && binding.home() == stream;
  freed.Take(place.granule, end, stream);
  constexpr std::uint16_t kAnywhere = LiveRecord::kHandedOver | LiveRecord::kWatched;
  Occupy(place.granule, requested, stream, at_home ? place.flags : place.flags & kAnywhere, stamp);
  ++stats.planned_hits;
  if (needs.empty()) return MissReason::kNone;
  const std::uint64_t moving_until = binding.until();
  if (!OrderOrPutBack(place.granule, stream, needs, stats.planned_hits, lock)) return MissReason::kStream;
  // The lock was open: the move is over only if it is still the same.
  if (moving_until != 0 && binding.until() == moving_until && clocks.IsOneStream(stream)) {
    binding.Settle(stream, clocks.HandleOf(stream));
    binding.Used(cursor.iterations());
  }
  return MissReason::kNone;
}

// Adds what a request of `stream` must be ordered behind where the home's blocks left no trace. False if there is no
// room for it.
bool PlanEngine::Impl::NeedsOfHome(StreamBinding& binding, StreamIndex stream, StreamNeeds& needs) noexcept {
  if (binding.unbound() || binding.home() == stream) {
    if (!clocks.IsOneStream(stream)) return true;
    binding.Settle(stream, clocks.HandleOf(stream));
    binding.Used(cursor.iterations());
    return true;
  }
  if (clocks.can_order() && clocks.IsOneStream(stream) && binding.MayMove(cursor.iterations())) {
    ForgetPrivacyOf(binding.home());
    binding.BeginMove(clocks.NewStamp());
  }
  const std::uint64_t stamp = binding.settled() ? clocks.NewStamp() : binding.until();
  return clocks.AddWithDebts(binding.home(), stamp, stream, needs);
}

// Parts of the arena are withdrawn. kNone if the range is none of them, or is mapped again. Room beside the slots that
// is mapped is better than to hold more. A small block is worth no more than what an emptied cache gave back: upstream
// has a pool for such.
[[gnu::noinline]] MissReason PlanEngine::Impl::BackUp(const Place& place, std::uint32_t granules, std::int32_t entry,
                                                      StreamHandle stream, Lock& lock) noexcept {
  const std::uint32_t end = place.granule + granules;
  if (!withdrawn.Touches(place.granule, end)) return MissReason::kNone;
  if (!freed.OnlyFreedIn(place.granule, end)) return MissReason::kOccupied;
  if (backing == nullptr) return MissReason::kUnbacked;
  using enum ArenaBacking::MayTake;
  bool backed = false;
  if (dynamic.IsSmall(granules)) {
    backed = backing->Spare() > 0 && AskBacking(place.granule, granules, kSpare, lock);
  } else {
    backed = AskBacking(place.granule, granules, kNoMore, lock);
    if (!backed && !HasMappedRoom(granules, entry, stream)) {
      backed = AskBacking(place.granule, granules, kMore, lock);
    }
  }
  if (!active) return MissReason::kInactive;
  return backed && MayPlace(place.granule, end) ? MissReason::kNone : MissReason::kUnbacked;
}

// The lock is open meanwhile. False, too, when the engine has stopped serving by then.
bool PlanEngine::Impl::AskBacking(std::uint32_t granule, std::uint32_t granules, ArenaBacking::MayTake may_take,
                                  Lock& lock) noexcept {
  if (!active) return false;
  const std::uint64_t now = cursor.PositionOf(matcher.cursor());
  lock.unlock();
  const bool backed =
      backing->Back(Offset{granule} * kBlockAlignment, Bytes{granules} * kBlockAlignment, now, may_take);
  lock.lock();
  return backed && active;
}

// From now on the blocks of this stream leave a trace at their frees.
void PlanEngine::Impl::ForgetPrivacyOf(StreamIndex home) noexcept {
  occupancy.ForEachInOrder([&](LiveRecord& record) {
    if (record.stream == home) record.flags &= static_cast<std::uint16_t>(~LiveRecord::kPrivate);
  });
}

// The block is its owner's already, so that nobody else can take the bytes while the lock is open.
bool PlanEngine::Impl::OrderOrPutBack(std::uint32_t granule, StreamIndex stream, const StreamNeeds& needs,
                                      std::uint64_t& hits, Lock& lock) noexcept {
  if (clocks.Order(stream, needs, lock)) return true;
  Vacate(*occupancy.Find(granule));
  --hits;
  freed.PutBack(granule, needs);
  return false;
}

void PlanEngine::Impl::Occupy(std::uint32_t granule, Bytes requested, StreamIndex stream, std::uint16_t flags,
                              Observations::Stamp stamp) noexcept {
  LiveRecord record;
  record.granule = granule;
  record.granules = static_cast<std::uint32_t>(BlockBytes(requested) / kBlockAlignment);
  record.slack = static_cast<std::uint16_t>(record.bytes() - requested);
  record.flags = flags;
  record.stream = static_cast<std::uint8_t>(stream);
  record.stamp = stamp;
  STALLOC_DCHECK(MayPlace(granule, record.end()));
  occupancy.Insert(record);
  ++stats.live_blocks;
  stats.live_bytes += record.bytes();
  stats.peak_live_bytes = std::max(stats.peak_live_bytes, stats.live_bytes);
  CheckNow();
}

void PlanEngine::Impl::Vacate(LiveRecord& block) noexcept {
  stats.live_bytes -= block.bytes();
  --stats.live_blocks;
  if (block.Is(LiveRecord::kBeside)) dynamic.GiveBack(block.granule, block.granules);
  // Flags of live blocks alone: what they leave behind is decided by the others.
  constexpr std::uint16_t kOfLive = LiveRecord::kBeside | LiveRecord::kWatched;
  block.flags &= static_cast<std::uint16_t>(~kOfLive);
}

Bytes PlanEngine::Impl::Free(void* pointer, std::optional<StreamHandle> current) noexcept {
  Lock lock(mutex);
  const std::uint32_t granule = GranuleOf(pointer);
  LiveRecord* const block = granule != kNoGranule ? occupancy.Find(granule) : nullptr;
  if (block == nullptr || block->Is(LiveRecord::kFreed)) {
    ++stats.unknown_frees;
    return 0;
  }
  const Bytes bytes = block->bytes();
  if (block->Is(LiveRecord::kWatched)) observations.Freed(*block, matcher.cursor(), matcher.in_sync());
  Vacate(*block);
  last_frees.Note(granule, block->end(), clocks.NewStamp());
  if (current && *current != clocks.HandleOf(block->stream)) freed.NoteFreedOn(*block, clocks.IndexOf(*current));
  if (FreedBlocks::LeavesNothing(*block)) {
    occupancy.Erase(granule);
  } else if (active) {
    freed.Free(granule, lock);
  } else {
    freed.Forget(granule);  // nothing is served any more, and the driver may be gone
  }
  return bytes;
}

void PlanEngine::Impl::Follow() noexcept {
  const LoadedScript* script = cursor.script();
  matcher.Follow(script != nullptr ? &script->index() : nullptr, cursor.entry());
  observations.Follow(cursor.script_number(), cursor.iterations());
}

// An iteration is about to begin.
void PlanEngine::Impl::TakeFittingTurn() noexcept {
  const std::optional<std::uint32_t> next = cursor.NextInCycle();
  if (turns.empty() || !next) return;
  cursor.SetNextInCycle(turns.Fitting(*next, [this](std::uint32_t granule) {
    const LiveRecord* const block = occupancy.Find(granule);
    return block != nullptr && !block->Is(LiveRecord::kFreed);
  }));
}

// The class -----------------------------------------------------------------------------------------------------------

PlanEngine::PlanEngine(const DevicePlan& plan, void* base, StreamFence* fence, const DynamicSpaceOptions& dynamic)
    : impl_(std::make_unique<Impl>(plan, base, fence, dynamic)) {}
PlanEngine::~PlanEngine() = default;

PlanEngine::Allocation PlanEngine::Allocate(Bytes requested, StreamHandle stream) noexcept {
  return impl_->Allocate(requested, stream);
}

Bytes PlanEngine::Free(void* pointer, std::optional<StreamHandle> current) noexcept {
  return impl_->Free(pointer, current);
}

PlanEngine::Allocation PlanEngine::AllocateUnexpected(Bytes requested, StreamHandle stream,
                                                      MissReason reason) noexcept {
  Impl::Lock lock(impl_->mutex);
  ++impl_->stats.requests;
  if (!impl_->active) reason = MissReason::kInactive;
  return impl_->ServeUnplanned(requested, stream, -1, 0, reason, lock);
}

void PlanEngine::RecordStream(void* pointer, StreamHandle stream) noexcept {
  Impl::Lock lock(impl_->mutex);
  const std::uint32_t granule = impl_->GranuleOf(pointer);
  LiveRecord* block = granule != Impl::kNoGranule ? impl_->occupancy.Find(granule) : nullptr;
  if (block == nullptr || block->Is(LiveRecord::kFreed)) return;
  const StreamIndex index = impl_->clocks.IndexOf(stream);
  if (index == kNoStream || index != block->stream || !impl_->clocks.IsOneStream(index)) {
    impl_->freed.Note(*block, index);
  }
}

bool PlanEngine::Withdraw(Offset offset, Bytes bytes) noexcept {
  const auto lo = static_cast<std::uint32_t>(offset / kBlockAlignment);
  const auto hi = static_cast<std::uint32_t>((offset + bytes) / kBlockAlignment);
  const Impl::Lock lock(impl_->mutex);
  // Above the limit there is no occupancy to ask.
  const std::uint32_t top = std::min(hi, impl_->arena_granules);
  if (lo < top && !impl_->freed.OnlyFreedIn(lo, top)) return false;
  return impl_->withdrawn.Add(lo, hi);
}

std::uint64_t PlanEngine::LastFreeIn(Offset offset, Bytes bytes) const noexcept {
  const auto lo = static_cast<std::uint32_t>(offset / kBlockAlignment);
  const auto hi = static_cast<std::uint32_t>((offset + bytes) / kBlockAlignment);
  const Impl::Lock lock(impl_->mutex);
  const std::uint32_t top = std::min(hi, impl_->arena_granules);
  return lo < top ? impl_->last_frees.In(lo, top) : 0;
}

std::uint64_t PlanEngine::NewStamp() noexcept {
  const Impl::Lock lock(impl_->mutex);
  return impl_->clocks.NewStamp();
}

void PlanEngine::Restore(Offset offset, Bytes bytes) noexcept {
  const Impl::Lock lock(impl_->mutex);
  impl_->withdrawn.Remove(static_cast<std::uint32_t>(offset / kBlockAlignment),
                          static_cast<std::uint32_t>((offset + bytes) / kBlockAlignment));
}

void PlanEngine::Extend(Bytes mapped_bytes) noexcept {
  const Impl::Lock lock(impl_->mutex);
  impl_->dynamic.SetMapped(static_cast<std::uint32_t>(mapped_bytes / kBlockAlignment));
}

void PlanEngine::SetBacking(ArenaBacking* backing) noexcept {
  const Impl::Lock lock(impl_->mutex);
  impl_->backing = backing;
}

void PlanEngine::OnMark(const Mark& mark) noexcept {
  Impl::Lock lock(impl_->mutex);
  if (mark.kind == MarkKind::kIteration && mark.edge == MarkEdge::kBegin) impl_->TakeFittingTurn();
  if (impl_->cursor.OnMark(mark, impl_->matcher.cursor())) impl_->Follow();
  const auto [begin, end] = impl_->cursor.Expected();
  impl_->matcher.Expect(begin, end);
  // Layers come by the thousand; the coarser marks are often enough.
  if (mark.kind == MarkKind::kLayer || !impl_->active) return;
  impl_->freed.Sweep(lock);
}

void PlanEngine::Deactivate() noexcept {
  const Impl::Lock lock(impl_->mutex);
  impl_->active = false;
}

}  // namespace stalloc
