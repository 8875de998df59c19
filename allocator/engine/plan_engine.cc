#include "allocator/engine/plan_engine.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <unordered_set>

#include "allocator/base/check.h"
#include "allocator/base/spin_mutex.h"
#include "allocator/engine/dynamic_space.h"
#include "allocator/engine/freed_blocks.h"
#include "allocator/engine/matcher.h"
#include "allocator/engine/observations.h"
#include "allocator/engine/occupancy.h"
#include "allocator/engine/script_cursor.h"
#include "allocator/engine/slot_streams.h"
#include "allocator/engine/stream_binding.h"
#include "allocator/engine/stream_clocks.h"
#include "allocator/engine/withdrawn_ranges.h"

namespace stalloc {
namespace {

using Lock = std::unique_lock<SpinMutex>;
using Place = LoadedScript::Place;

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

// To the program. What only keeps in mind which stream had the bytes last is free memory.
bool IsInUse(const LiveRecord& record) {
  return !record.Is(LiveRecord::kFreed) || record.uses != 0 || record.Is(LiveRecord::kRetained);
}

}  // namespace

const char* MissReasonName(MissReason reason) noexcept {
  switch (reason) {
    case MissReason::kNone:
      return "none";
    case MissReason::kUnplanned:
      return "unplanned";
    case MissReason::kUnknownSize:
      return "unknown_size";
    case MissReason::kUnmatched:
      return "unmatched";
    case MissReason::kOccupied:
      return "occupied";
    case MissReason::kStream:
      return "stream";
    case MissReason::kFenced:
      return "fenced";
    case MissReason::kCapturing:
      return "capturing";
    case MissReason::kParallel:
      return "parallel";
    case MissReason::kInactive:
      return "inactive";
    case MissReason::kUnbacked:
      return "unbacked";
    case MissReason::kCount:
      break;
  }
  return "?";
}

struct PlanEngine::Impl {
  Impl(const DevicePlan& plan, void* base_address, StreamFence* fence, const DynamicSpaceOptions& options)
      : base(static_cast<std::byte*>(base_address)),
        arena_granules(ArenaGranules(plan, options)),
        cursor(plan),
        observations(plan),
        occupancy(arena_granules, MaxBlocks(plan)),
        clocks(fence),
        freed(occupancy, clocks, MaxBlocks(plan)),
        dynamic(plan, options, occupancy, freed, withdrawn),
        bindings(CountStreams(plan)),
        main_stream(MainStream(plan)),
        active(arena_granules > 0) {
    Follow();
  }

  Allocation Allocate(Bytes requested, StreamHandle stream) noexcept;
  [[nodiscard]] MissReason FindPlace(Bytes requested, Place& place, std::int32_t& entry,
                                     Observations::Stamp& stamp) noexcept;
  Allocation ServeUnplanned(Bytes requested, StreamHandle stream, std::int32_t entry, Observations::Stamp stamp,
                            MissReason reason, Lock& lock) noexcept;
  [[nodiscard]] bool Disordered() const noexcept;
  [[nodiscard]] IdleGaps::Room RoomFor(std::int32_t entry, Granules granules, MissReason reason) const noexcept;
  [[nodiscard]] Place FindLentSlot(std::int32_t entry, Granules granules, StreamHandle stream) const noexcept;
  [[nodiscard]] bool TakeLentSlot(const Place& place, Bytes requested, StreamHandle stream, Lock& lock) noexcept;
  [[nodiscard]] std::uint32_t FindRoom(DynamicSpace::Request request, const IdleGaps::Room& room, Lock& lock) noexcept;
  [[nodiscard]] std::uint32_t FindMapped(const DynamicSpace::Request& request) const noexcept;
  [[nodiscard]] bool OccupyRoom(std::uint32_t granule, Bytes requested, StreamIndex stream, Lock& lock) noexcept;
  [[nodiscard]] MissReason OccupyInOrder(const Place& place, Bytes requested, StreamHandle handle,
                                         Observations::Stamp stamp, Lock& lock) noexcept;
  [[nodiscard]] bool NeedsOfHome(StreamBinding& binding, StreamIndex stream, StreamNeeds& needs) noexcept;
  [[nodiscard]] bool OrderOrPutBack(std::uint32_t granule, StreamIndex stream, const StreamNeeds& needs,
                                    std::uint64_t& hits, Lock& lock) noexcept;
  void ForgetPrivacyOf(StreamIndex home) noexcept;
  void Occupy(std::uint32_t granule, Bytes requested, StreamIndex stream, std::uint16_t flags,
              Observations::Stamp stamp = 0) noexcept;
  void Vacate(LiveRecord& block) noexcept;
  [[nodiscard]] MissReason BackUp(const Place& place, std::uint32_t granules, Lock& lock) noexcept;
  Bytes Free(void* pointer) noexcept;
  void Follow() noexcept;
  void CheckNow() const noexcept;
  [[nodiscard]] std::string CheckLocked() const;
  [[nodiscard]] LiveBlock Describe(const LiveRecord& record) const noexcept;

  // kNoGranule if the address is not that of a granule of the arena.
  static constexpr std::uint32_t kNoGranule = 0xffffffffu;
  [[nodiscard]] std::uint32_t GranuleOf(const void* pointer) const noexcept {
    const auto offset = static_cast<Offset>(static_cast<const std::byte*>(pointer) - base);
    if (offset % kBlockAlignment != 0 || offset / kBlockAlignment >= arena_granules) return kNoGranule;
    return static_cast<std::uint32_t>(offset / kBlockAlignment);
  }

  alignas(64) mutable SpinMutex mutex;  // guards all below it but `active`
  std::byte* const base;
  const std::uint32_t arena_granules;
  Matcher matcher;
  ScriptCursor cursor;
  Observations observations;
  Occupancy occupancy;
  StreamClocks clocks;
  FreedBlocks freed;
  WithdrawnRanges withdrawn;
  DynamicSpace dynamic;
  std::vector<StreamBinding> bindings;  // by the plan's ordinals
  const std::uint32_t main_stream;      // ordinal
  ArenaBacking* backing = nullptr;
  EngineStats stats;
  mutable std::uint64_t checks = 0;
  std::atomic<bool> active;
};

// Allocation ----------------------------------------------------------------------------------------------------------

PlanEngine::Allocation PlanEngine::Impl::Allocate(Bytes requested, StreamHandle stream) noexcept {
  Lock lock(mutex);
  ++stats.requests;
  Place place;
  std::int32_t entry = -1;
  Observations::Stamp stamp = 0;
  MissReason reason = FindPlace(requested, place, entry, stamp);
  const auto granules = static_cast<std::uint32_t>(BlockBytes(requested) / kBlockAlignment);
  if (reason == MissReason::kNone && !withdrawn.empty()) reason = BackUp(place, granules, lock);
  if (reason == MissReason::kNone) {
    StreamBinding& binding = bindings[place.stream];
    if (stream == binding.handle() && occupancy.LastIn(place.granule, place.granule + granules) == nullptr) {
      binding.Used(cursor.iterations());
      Occupy(place.granule, requested, binding.home(), place.flags, stamp);
      ++stats.planned_hits;
    } else {
      reason = OccupyInOrder(place, requested, stream, stamp, lock);
    }
  }
  if (reason == MissReason::kNone) return {base + Offset{place.granule} * kBlockAlignment, reason};
  return ServeUnplanned(requested, stream, entry, stamp, reason, lock);
}

// Where the plan wants the request. The matcher sees every request of the loop, served or not, or it would lose the
// track.
MissReason PlanEngine::Impl::FindPlace(Bytes requested, Place& place, std::int32_t& entry,
                                       Observations::Stamp& stamp) noexcept {
  if (!active.load(std::memory_order_relaxed)) return MissReason::kInactive;
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
  return place.granules < granules ? MissReason::kUnplanned : MissReason::kNone;  // no place, or of a varying entry a
                                                                                  // larger size
}

// From the room beside the slots. `entry`: of the present script, whose request it is; -1: nobody knows.
[[gnu::noinline]] PlanEngine::Allocation PlanEngine::Impl::ServeUnplanned(Bytes requested, StreamHandle stream,
                                                                          std::int32_t entry, Observations::Stamp stamp,
                                                                          MissReason reason, Lock& lock) noexcept {
  const Granules granules = ToGranules(requested);
  // The lock may have been open since the entry was found, and the script another by now.
  if (cursor.script() != nullptr && entry >= cursor.script()->index().size()) entry = -1;
  // Before the loop (and with no plan) nothing is known of the time to come.
  if (granules != 0 && dynamic.Takes(granules) && reason != MissReason::kInactive && cursor.script() != nullptr) {
    if (reason == MissReason::kOccupied || (reason == MissReason::kUnmatched && Disordered())) {
      const Place lent = FindLentSlot(entry, granules, stream);
      if (lent.granules > 0 && TakeLentSlot(lent, requested, stream, lock)) {
        observations.Watch(*occupancy.Find(lent.granule), stamp);
        return {base + Offset{lent.granule} * kBlockAlignment, reason};
      }
    }
    DynamicSpace::Request request{granules, clocks.IndexOf(stream), {}};
    const IdleGaps::Room room = RoomFor(entry, granules, reason);
    request.soon_over = reason == MissReason::kFenced || reason == MissReason::kParallel;
    std::uint32_t granule = FindRoom(request, room, lock);
    // The arena may not grow, so there is no memory left for anybody: better in a slot's way than out of memory.
    if (granule == DynamicSpace::kNone && !room.empty()) granule = FindRoom(request, {}, lock);
    if (granule != DynamicSpace::kNone && OccupyRoom(granule, requested, request.stream, lock)) {
      observations.Watch(*occupancy.Find(granule), stamp);
      return {base + Offset{granule} * kBlockAlignment, reason};
    }
  }
  observations.Missed(stamp, granules);
  ++stats.misses[static_cast<std::size_t>(reason)];
  return {nullptr, reason};
}

// Requests come in another order than the plan's, or in another number: an unexpected one is probably one of those.
// Else it is one that the traced run did not have, and nothing is known of it.
bool PlanEngine::Impl::Disordered() const noexcept {
  return !matcher.in_sync() || dynamic.gaps().VariesAround(cursor.script_number(), matcher.cursor());
}

// When the block will go, as far as the plan tells: nothing of requests outside the loop.
IdleGaps::Room PlanEngine::Impl::RoomFor(std::int32_t entry, Granules granules, MissReason reason) const noexcept {
  if (reason == MissReason::kFenced || reason == MissReason::kParallel) return {};
  const IdleGaps& gaps = dynamic.gaps();
  const std::uint32_t script = cursor.script_number();
  if (entry >= 0) return matcher.in_sync() ? gaps.Of(script, entry) : gaps.OfDoubtful(script, entry);
  if (!Disordered()) return gaps.Above();
  const IdleGaps::Room of_size = gaps.OfSize(script, matcher.cursor(), granules);
  return of_size.empty() ? gaps.Around(script, matcher.cursor()) : of_size;
}

// Entries of one size near each other often differ in order only, or one of them has no request this time: a slot that
// its owner was to have taken by now serves another of them as well. Not one that goes much earlier than this block is
// expected to. Of several the one that goes first.
Place PlanEngine::Impl::FindLentSlot(std::int32_t entry, Granules granules, StreamHandle stream) const noexcept {
  const IdleGaps& gaps = dynamic.gaps();
  const std::uint32_t script = cursor.script_number();
  const std::int32_t at = entry >= 0 ? entry : matcher.cursor();
  const std::uint64_t life = entry >= 0 ? gaps.LifeOf(script, entry) : gaps.LifeOfSize(script, at, granules);
  const std::uint64_t least = life - life / 8;
  std::uint64_t best_life = ~std::uint64_t{0};
  Place best;
  gaps.ForEachOfSize(script, at, granules, [&](std::int32_t other) {
    const std::uint64_t left = gaps.LifeLeft(script, other, at);
    if (other >= at || left < least || (best.granules > 0 && left >= best_life)) return;
    const Place& place = cursor.script()->PlaceOf(other);
    const bool fits = place.granules >= granules && bindings[place.stream].handle() == stream;
    if (!fits || !freed.OnlyFreedIn(place.granule, place.granule + granules)) return;
    best = place;
    best_life = left;
  });
  return best;
}

bool PlanEngine::Impl::TakeLentSlot(const Place& place, Bytes requested, StreamHandle stream, Lock& lock) noexcept {
  const auto granules = static_cast<std::uint32_t>(BlockBytes(requested) / kBlockAlignment);
  if (!withdrawn.empty() && withdrawn.Touches(place.granule, place.granule + granules)) return false;
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

// Asks for memory where it has to; the lock is open meanwhile, so that the room is looked for again.
std::uint32_t PlanEngine::Impl::FindRoom(DynamicSpace::Request request, const IdleGaps::Room& room,
                                         Lock& lock) noexcept {
  if (request.stream == kNoStream) return DynamicSpace::kNone;
  constexpr int kTries = 4;  // other threads may take what was mapped for this one
  for (int tries = 0; tries < kTries; ++tries) {
    for (const IdleGaps::Window window : {room.idle, room.open}) {
      request.window = window;
      const std::uint32_t granule = FindMapped(request);
      if (granule != DynamicSpace::kNone) return granule;
      if (room.open.empty()) break;
    }
    request.window = room.idle;
    std::uint32_t granule = DynamicSpace::kNone;
    if (!withdrawn.empty()) granule = dynamic.Find(request, DynamicSpace::Cost::kMapping);
    if (granule == DynamicSpace::kNone) granule = dynamic.FindAbove(request);
    if (granule == DynamicSpace::kNone || backing == nullptr) break;
    lock.unlock();
    const bool backed = backing->Back(Offset{granule} * kBlockAlignment, Bytes{request.granules} * kBlockAlignment);
    lock.lock();
    if (!backed || !active.load(std::memory_order_relaxed)) break;
  }
  return DynamicSpace::kNone;
}

// A block beside the slots leaves a trace at its free, unless there is but one stream in the plan and this is it. Where
// the main stream's slots are, blocks may have been freed without one (slot_streams.h).
bool PlanEngine::Impl::OccupyRoom(std::uint32_t granule, Bytes requested, StreamIndex stream, Lock& lock) noexcept {
  const std::uint32_t end = granule + static_cast<std::uint32_t>(BlockBytes(requested) / kBlockAlignment);
  StreamBinding& main = bindings[main_stream];
  const bool at_home = main.settled() && main.home() == stream;
  StreamNeeds needs;
  if (!freed.Gather(granule, end, stream, needs)) return false;
  if (!at_home && !main.unbound() && main.home() != stream &&
      !needs.Add(main.home(), main.settled() ? clocks.NewStamp() : main.until())) {
    return false;
  }
  if (!needs.empty() && !clocks.can_order()) return false;
  freed.Take(granule, end);
  const std::uint16_t privacy = at_home && bindings.size() == 1 ? LiveRecord::kPrivate : 0;
  Occupy(granule, requested, stream, static_cast<std::uint16_t>(privacy | LiveRecord::kBeside));
  dynamic.Take(granule, end - granule);
  ++stats.dynamic_hits;
  return needs.empty() || OrderOrPutBack(granule, stream, needs, stats.dynamic_hits, lock);
}

// The place was used before by blocks that left a trace, or the request comes from another stream than its entry's.
[[gnu::noinline]] MissReason PlanEngine::Impl::OccupyInOrder(const Place& place, Bytes requested, StreamHandle handle,
                                                             Observations::Stamp stamp, Lock& lock) noexcept {
  const StreamIndex stream = clocks.IndexOf(handle);
  if (stream == kNoStream) return MissReason::kStream;
  const std::uint32_t end = place.granule + static_cast<std::uint32_t>(BlockBytes(requested) / kBlockAlignment);
  StreamNeeds needs;
  if (!freed.Gather(place.granule, end, stream, needs)) {
    observations.WatchLast(occupancy, place.granule, end);
    return MissReason::kOccupied;
  }
  StreamBinding& binding = bindings[place.stream];
  if (!NeedsOfHome(binding, stream, needs) || (!needs.empty() && !clocks.can_order())) return MissReason::kStream;

  const bool at_home = binding.settled() && binding.home() == stream;
  freed.Take(place.granule, end);
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
  return needs.Add(binding.home(), binding.settled() ? clocks.NewStamp() : binding.until());
}

// Parts of the arena are withdrawn. kNone if the range is none of them, or is mapped again.
[[gnu::noinline]] MissReason PlanEngine::Impl::BackUp(const Place& place, std::uint32_t granules, Lock& lock) noexcept {
  const std::uint32_t end = place.granule + granules;
  if (!withdrawn.Touches(place.granule, end)) return MissReason::kNone;
  if (!freed.OnlyFreedIn(place.granule, end)) return MissReason::kOccupied;
  if (backing == nullptr) return MissReason::kUnbacked;
  lock.unlock();
  const bool backed = backing->Back(Offset{place.granule} * kBlockAlignment, Bytes{granules} * kBlockAlignment);
  lock.lock();
  if (!active.load(std::memory_order_relaxed)) return MissReason::kInactive;
  return backed && !withdrawn.Touches(place.granule, end) ? MissReason::kNone : MissReason::kUnbacked;
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
  record.stream = stream;
  record.stamp = stamp;
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
  block.flags &= static_cast<std::uint16_t>(~(LiveRecord::kBeside | LiveRecord::kWatched));
}

Bytes PlanEngine::Impl::Free(void* pointer) noexcept {
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
  if (FreedBlocks::LeavesNothing(*block)) {
    occupancy.Erase(granule);
  } else if (active.load(std::memory_order_relaxed)) {
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

// Looking
// ----------------------------------------------------------------------------------------------------------------

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

// In the checked build: walks everything after one operation in 256, so that tests of large arenas still end.
void PlanEngine::Impl::CheckNow() const noexcept { STALLOC_DCHECK((++checks & 255) != 0 || CheckLocked().empty()); }

// The class
// ------------------------------------------------------------------------------------------------------------

PlanEngine::PlanEngine(const DevicePlan& plan, void* base, StreamFence* fence, const DynamicSpaceOptions& dynamic)
    : impl_(std::make_unique<Impl>(plan, base, fence, dynamic)) {}
PlanEngine::~PlanEngine() = default;

PlanEngine::Allocation PlanEngine::Allocate(Bytes requested, StreamHandle stream) noexcept {
  return impl_->Allocate(requested, stream);
}

Bytes PlanEngine::Free(void* pointer) noexcept { return impl_->Free(pointer); }

PlanEngine::Allocation PlanEngine::AllocateUnexpected(Bytes requested, StreamHandle stream,
                                                      MissReason reason) noexcept {
  Lock lock(impl_->mutex);
  ++impl_->stats.requests;
  if (!impl_->active.load(std::memory_order_relaxed)) reason = MissReason::kInactive;
  return impl_->ServeUnplanned(requested, stream, -1, 0, reason, lock);
}

void PlanEngine::RecordStream(void* pointer, StreamHandle stream) noexcept {
  Lock lock(impl_->mutex);
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
  const Lock lock(impl_->mutex);
  // Above the plan's height there is no occupancy to ask.
  const std::uint32_t top = std::min(hi, impl_->arena_granules);
  if (lo < top && !impl_->freed.IsIdle(lo, top)) return false;
  return impl_->withdrawn.Add(lo, hi);
}

void PlanEngine::Restore(Offset offset, Bytes bytes) noexcept {
  const Lock lock(impl_->mutex);
  impl_->withdrawn.Remove(static_cast<std::uint32_t>(offset / kBlockAlignment),
                          static_cast<std::uint32_t>((offset + bytes) / kBlockAlignment));
}

void PlanEngine::Extend(Bytes mapped_bytes) noexcept {
  const Lock lock(impl_->mutex);
  impl_->dynamic.SetMapped(static_cast<std::uint32_t>(mapped_bytes / kBlockAlignment));
}

void PlanEngine::SetBacking(ArenaBacking* backing) noexcept {
  const Lock lock(impl_->mutex);
  impl_->backing = backing;
}

void PlanEngine::ReclaimPending() noexcept {
  Lock lock(impl_->mutex);
  if (impl_->active.load(std::memory_order_relaxed)) impl_->freed.Sweep(lock);
}

void PlanEngine::OnMark(const Mark& mark) noexcept {
  Lock lock(impl_->mutex);
  if (impl_->cursor.OnMark(mark)) impl_->Follow();
  const auto [begin, end] = impl_->cursor.Expected();
  impl_->matcher.Expect(begin, end);
  // Layers come by the thousand; the coarser marks are often enough.
  if (mark.kind != MarkKind::kLayer && impl_->active.load(std::memory_order_relaxed)) impl_->freed.Sweep(lock);
}

void PlanEngine::Deactivate() noexcept { impl_->active.store(false, std::memory_order_relaxed); }

EngineStats PlanEngine::Stats() const {
  const Lock lock(impl_->mutex);
  EngineStats stats = impl_->stats;
  stats.iterations = impl_->cursor.iterations();
  stats.sync_losses = impl_->matcher.times_lost();
  stats.reanchorings = impl_->matcher.times_reanchored();
  stats.pending_blocks = impl_->freed.pending();
  stats.pending_bytes = impl_->freed.pending_bytes();
  stats.retained_blocks = impl_->freed.retained();
  stats.stream_events = impl_->clocks.events_recorded();
  stats.stream_waits = impl_->clocks.waits();
  stats.active = impl_->active.load(std::memory_order_relaxed);
  return stats;
}

void PlanEngine::ResetPeak() noexcept {
  const Lock lock(impl_->mutex);
  impl_->stats.peak_live_bytes = impl_->stats.live_bytes;
}

LiveBlock PlanEngine::FindLive(const void* pointer) const noexcept {
  const Lock lock(impl_->mutex);
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
    const Lock lock(impl_->mutex);
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
  const Lock lock(impl_->mutex);
  std::size_t count = 0;
  impl_->occupancy.ForEachInOrder([&](const LiveRecord& record) {
    if (!IsInUse(record)) return;
    if (count < blocks.size()) blocks[count] = impl_->Describe(record);
    ++count;
  });
  return count;
}

PlanPosition PlanEngine::Position() const noexcept {
  const Lock lock(impl_->mutex);
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
  const Lock lock(impl_->mutex);
  for (std::size_t number = 0; number < impl_->observations.size(); ++number) {
    const ObservedEntry entry = impl_->observations.Of(number);
    if (entry.requests > 0) observed.entries.push_back(entry);
  }
  return observed;
}

std::string PlanEngine::CheckInvariants() const {
  const Lock lock(impl_->mutex);
  return impl_->CheckLocked();
}

}  // namespace stalloc
