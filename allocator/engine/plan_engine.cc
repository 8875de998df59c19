#include "allocator/engine/plan_engine.h"

#include <algorithm>
#include <unordered_set>

namespace stalloc {
namespace {

constexpr Bytes kMaxArenaBytes = Bytes{0xfffffffe} * kBlockAlignment;
constexpr std::size_t kBlocksWithoutPlan = 65536;

// Two blocks never start at the same byte, so this is how many there can be. What is left of a freed block may start
// where a slot ends.
std::size_t MaxBlocks(const DevicePlan& plan) {
  if (IsEmpty(plan)) return kBlocksWithoutPlan;
  std::unordered_set<Offset> starts;
  for (const Slot& slot : plan.slots) {
    starts.insert(slot.offset);
    if (!plan.stream_edges.empty()) starts.insert(slot.offset + slot.capacity);
  }
  return std::max<std::size_t>(starts.size(), 1);
}

// Where the arena's addresses end; 0 if nothing can be served.
Granules ArenaGranules(const DevicePlan& plan, const DynamicSpaceOptions& options) {
  Bytes end = std::max(plan.arena_bytes, std::min(options.limit_bytes, kMaxArenaBytes));
  if (options.lent_bytes > 0) end = std::max(end, options.lent_begin + options.lent_bytes);
  return end <= kMaxArenaBytes ? WholeGranules(end) : 0;
}

}  // namespace

PlanEngine::PlanEngine(const DevicePlan& plan, void* base, StreamFence* fence, const DynamicSpaceOptions& options)
    : base_(static_cast<std::byte*>(base)),
      arena_granules_(ArenaGranules(plan, options)),
      plan_granules_(std::min(arena_granules_, WholeGranules(plan.arena_bytes))),
      streams_(plan),
      cursor_(plan, streams_, WholeGranules(options.lent_bytes > 0 ? options.lent_begin : 0)),
      observations_(plan),
      occupancy_(arena_granules_, MaxBlocks(plan)),
      clocks_(fence),
      freed_(occupancy_, clocks_, MaxBlocks(plan)),
      freed_at_(arena_granules_),
      space_(plan, options, occupancy_, freed_, withdrawn_, live_),
      lent_(plan.lent_pools, WholeGranules(options.lent_begin), WholeGranules(options.lent_begin + options.lent_bytes)),
      bindings_(std::max<std::size_t>(streams_.size(), 1)),
      kept_(plan.kept, plan.slots, FlagsOfSlots(plan, streams_), streams_),
      turns_(plan),
      rules_(options.rules),
      has_plan_(!IsEmpty(plan)),
      state_(arena_granules_ > 0 ? State::kServes : State::kStopped) {
  occupancy_.Populate(plan_granules_);
  Follow();
}

// Allocation ----------------------------------------------------------------------------------------------------------

PlanEngine::Allocation PlanEngine::Allocate(Bytes requested, StreamHandle stream) noexcept {
  Lock lock(mutex_);
  ++stats_.requests;
  Request request{requested, ToGranules(requested), stream};
  Place place;
  MissReason reason = FindPlace(request, place);
  if (reason == MissReason::kNone && !withdrawn_.empty() && TakeLentInstead(request, place, lock)) {
    return {AddressOf(place.granule), reason};
  }
  if (reason == MissReason::kNone) reason = TakePlace(place, request, lock);
  if (reason == MissReason::kUnplanned && TakeLentSlot(request, place, lock)) reason = MissReason::kNone;
  if (reason == MissReason::kNone) return {AddressOf(place.granule), reason};
  return ServeUnplanned(request, reason, lock);
}

PlanEngine::Allocation PlanEngine::AllocateUnexpected(Bytes requested, StreamHandle stream,
                                                      MissReason reason) noexcept {
  Lock lock(mutex_);
  ++stats_.requests;
  return ServeUnplanned({requested, ToGranules(requested), stream}, active() ? reason : MissReason::kInactive, lock);
}

inline MissReason PlanEngine::TakePlace(const Place& place, const Request& request, Lock& lock) noexcept {
  if (!withdrawn_.empty()) {
    const MissReason reason = BackUp(place, request, lock);
    if (reason != MissReason::kNone) return reason;
  }
  StreamBinding& binding = bindings_[place.stream];
  if (request.stream != binding.handle() ||
      occupancy_.LastIn(place.granule, place.granule + request.granules) != nullptr) {
    return OccupyInOrder(place, request, stats_.planned_hits, lock);
  }
  binding.Used(cursor_.iterations());
  Occupy(place.granule, request, binding.home(), place.flags);
  ++stats_.planned_hits;
  return MissReason::kNone;
}

// Where the plan wants the request. The matcher sees every request of the loop, served or not, or it would lose the
// track.
MissReason PlanEngine::FindPlace(Request& request, Place& place) noexcept {
  if (!active() || plan_ != Plan::kServed) return MissReason::kInactive;
  if (cursor_.fenced()) return MissReason::kFenced;
  const Matcher::Match match = matcher_.Next(request.granules);
  request.entry = match.entry;
  if (match.entry < 0) {
    return match.outcome == Matcher::Outcome::kUnknownSize ? MissReason::kUnknownSize : MissReason::kUnmatched;
  }
  place = cursor_.script()->PlaceOf(match.entry);
  if (matcher_.in_sync()) request.stamp = observations_.StampOf(match.entry);
  if (match.outcome == Matcher::Outcome::kVarying) place.flags |= observations_.watched();
  // No place, or of a varying entry a larger size. 0: larger than any place.
  return request.granules == 0 || place.granules < request.granules ? MissReason::kUnplanned : MissReason::kNone;
}

// The place was used before by blocks that left a trace, or the request comes from another stream than its entry's.
[[gnu::noinline]] MissReason PlanEngine::OccupyInOrder(const Place& place, const Request& request, std::uint64_t& hits,
                                                       Lock& lock) noexcept {
  const StreamIndex stream = clocks_.IndexOf(request.stream);
  if (stream == kNoStream) return MissReason::kStream;
  const Granules end = place.granule + request.granules;
  if (!MayPlace(place.granule, end)) return MissReason::kUnbacked;
  StreamNeeds needs;
  if (!freed_.Gather(place.granule, end, stream, needs)) {
    observations_.WatchLast(occupancy_, place.granule, end);
    return MissReason::kOccupied;
  }
  StreamBinding& binding = bindings_[place.stream];
  if (!NeedsOfHome(binding, stream, needs) || (!needs.empty() && !clocks_.can_order())) return MissReason::kStream;

  const bool at_home = binding.settled() && binding.home() == stream;
  freed_.Take(place.granule, end, stream);
  constexpr std::uint16_t kAnywhere = LiveRecord::kHandedOver | LiveRecord::kWatched;
  Occupy(place.granule, request, stream, at_home ? place.flags : place.flags & kAnywhere);
  ++hits;
  if (needs.empty()) return MissReason::kNone;
  const std::uint64_t moving_until = binding.until();
  if (!OrderOrPutBack(place.granule, stream, needs, hits, lock)) return MissReason::kStream;
  // The lock was open: the move is over only if it is still the same.
  if (moving_until != 0 && binding.until() == moving_until && clocks_.IsOneStream(stream)) {
    binding.Settle(stream, clocks_.HandleOf(stream), cursor_.iterations());
  }
  return MissReason::kNone;
}

// Adds what a request of `stream` must be ordered after where the home's blocks left no trace. False if there is no
// space for it.
bool PlanEngine::NeedsOfHome(StreamBinding& binding, StreamIndex stream, StreamNeeds& needs) noexcept {
  if (binding.unbound() || binding.home() == stream) {
    if (clocks_.IsOneStream(stream)) binding.Settle(stream, clocks_.HandleOf(stream), cursor_.iterations());
    return true;
  }
  if (clocks_.can_order() && clocks_.IsOneStream(stream) && binding.MayMove(cursor_.iterations())) {
    ForgetPrivacyOf(binding.home());
    binding.BeginMove(clocks_.NewStamp());
  }
  return AddHome(binding, stream, needs);
}

bool PlanEngine::AddHome(const StreamBinding& binding, StreamIndex stream, StreamNeeds& needs) noexcept {
  const std::uint64_t stamp = binding.settled() ? clocks_.NewStamp() : binding.until();
  return needs.Add(binding.home(), stamp) &&
         clocks_.AllDebts(binding.home(), [&](StreamIndex other, std::uint64_t until) {
           mutex_.AssertHeld();
           return clocks_.IsOrdered(stream, other, until) || needs.Add(other, until);
         });
}

// Parts of the arena are withdrawn. kNone if the range is none of them, or is mapped again. A small block is worth no
// more than what an emptied cache gave back: upstream has a pool for such.
[[gnu::noinline]] MissReason PlanEngine::BackUp(const Place& place, const Request& request, Lock& lock) noexcept {
  const Granules end = place.granule + request.granules;
  if (!withdrawn_.Touches(place.granule, end)) return MissReason::kNone;
  if (!freed_.OnlyFreedIn(place.granule, end)) return MissReason::kOccupied;
  if (backing_ == nullptr) return MissReason::kUnbacked;
  const auto request_backing = [&](Growth growth) {
    mutex_.AssertHeld();
    return RequestBacking(place.granule, request.granules, growth, lock);
  };
  const bool backed = space_.IsSmall(request.granules) ? backing_->Spare() > 0 && request_backing(Growth::kSpare)
                                                       : request_backing(Growth::kAllowed);
  if (!active()) return MissReason::kInactive;
  return backed && MayPlace(place.granule, end) ? MissReason::kNone : MissReason::kUnbacked;
}

// The lock is open meanwhile. False, too, when the engine has stopped serving by then.
bool PlanEngine::RequestBacking(Granules granule, Granules granules, Growth growth, Lock& lock) noexcept {
  if (!active()) return false;
  const std::uint64_t now = cursor_.PositionOf(matcher_.cursor());
  lock.unlock();
  const bool backed =
      backing_->EnsureBacked(Offset{granule} * kBlockAlignment, Bytes{granules} * kBlockAlignment, now, growth);
  lock.lock();
  return backed && active();
}

// From now on the blocks of this stream leave a trace at their frees.
void PlanEngine::ForgetPrivacyOf(StreamIndex home) noexcept {
  occupancy_.ForEachDownwards([&](const LiveRecord& record) {
    mutex_.AssertHeld();
    if (record.stream != home) return;
    occupancy_.Find(record.granule)->flags &= static_cast<std::uint16_t>(~LiveRecord::kPrivate);
  });
}

// The block is its owner's already, so that nobody else can take the bytes while the lock is open.
bool PlanEngine::OrderOrPutBack(Granules granule, StreamIndex stream, const StreamNeeds& needs, std::uint64_t& hits,
                                Lock& lock) noexcept {
  if (clocks_.Order(stream, needs, lock)) return true;
  LiveRecord& block = *occupancy_.Find(granule);
  Vacate(block);
  --hits;
  freed_.PutBack(granule, needs);
  return false;
}

void PlanEngine::Occupy(Granules granule, const Request& request, StreamIndex stream, std::uint16_t flags) noexcept {
  LiveRecord record;
  record.granule = granule;
  record.granules = request.granules;
  record.slack = static_cast<std::uint16_t>(record.bytes() - request.bytes);
  record.flags = flags;
  record.stream = static_cast<std::uint8_t>(stream);
  record.stamp = request.stamp;
  STALLOC_DCHECK(MayPlace(granule, record.end()));
  occupancy_.Insert(record);
  live_.Add(granule, record.end());
  ++stats_.live_blocks;
  stats_.live_bytes += record.bytes();
  stats_.peak_live_bytes = std::max(stats_.peak_live_bytes, stats_.live_bytes);
  CheckNow();
}

void PlanEngine::Vacate(LiveRecord& block) noexcept {
  stats_.live_bytes -= block.bytes();
  --stats_.live_blocks;
  live_.Remove(block.granule, block.end());
  freed_at_.Set(block.granule, block.end(), clocks_.NewStamp());
  if (block.Is(LiveRecord::kWithoutSlot)) space_.GiveBack(block.granule, block.granules);
  block.flags &= static_cast<std::uint16_t>(~LiveRecord::kOfLive);
}

// Frees ---------------------------------------------------------------------------------------------------------------

inline LiveRecord* PlanEngine::RecordAt(const void* pointer) noexcept {
  const auto offset = static_cast<Offset>(static_cast<const std::byte*>(pointer) - base_);
  if (offset % kBlockAlignment != 0 || offset / kBlockAlignment >= arena_granules_) return nullptr;
  return occupancy_.Find(WholeGranules(offset));
}

inline LiveRecord* PlanEngine::LiveAt(const void* pointer) noexcept {
  LiveRecord* const block = RecordAt(pointer);
  return block != nullptr && IsProgramsBlock(*block) ? block : nullptr;
}

inline LiveRecord* PlanEngine::FreeableAt(const void* pointer) noexcept {
  LiveRecord* const block = RecordAt(pointer);
  if (block == nullptr || !block->IsFreeable()) [[unlikely]] {
    ++stats_.unknown_frees;
    return nullptr;
  }
  return block;
}

Bytes PlanEngine::Free(void* pointer, std::optional<StreamHandle> current, Bytes* requested) noexcept {
  Lock lock(mutex_);
  LiveRecord* const block = FreeableAt(pointer);
  if (block == nullptr) [[unlikely]]
    return 0;
  if (requested != nullptr) *requested = block->requested();
  return End(*block, current, lock);
}

FreeTicket PlanEngine::BeginFree(void* pointer) noexcept {
  const Lock lock(mutex_);
  LiveRecord* const block = FreeableAt(pointer);
  if (block == nullptr) return {.pointer = pointer};
  const Bytes requested = block->requested();
  block->slack |= LiveRecord::kEnding;
  return {pointer, requested, clocks_.HandleOf(block->stream)};
}

Bytes PlanEngine::Free(const FreeTicket& ticket, std::optional<StreamHandle> current) noexcept {
  Lock lock(mutex_);
  return End(*RecordAt(ticket.pointer), current, lock);
}

[[gnu::always_inline]] inline Bytes PlanEngine::End(LiveRecord& block, std::optional<StreamHandle> current,
                                                    Lock& lock) noexcept {
  const Bytes bytes = block.bytes();
  if (block.Is(LiveRecord::kWatched)) observations_.Freed(block, matcher_.cursor(), matcher_.in_sync());
  Vacate(block);
  if (current && *current != clocks_.HandleOf(block.stream)) freed_.NoteFreedOn(block, clocks_.IndexOf(*current));
  if (FreedBlocks::LeavesNothing(block)) {
    occupancy_.Erase(block);
  } else if (state_ != State::kStopped) {
    freed_.Free(block, lock);
  } else {
    freed_.FreeForGood(block);
  }
  return bytes;
}

void PlanEngine::RecordStream(void* pointer, StreamHandle stream) noexcept {
  const Lock lock(mutex_);
  LiveRecord* const block = LiveAt(pointer);
  if (block == nullptr) return;
  const StreamIndex index = clocks_.IndexOf(stream);
  if (index == kNoStream || index != block->stream || !clocks_.IsOneStream(index)) freed_.Note(*block, index);
}

bool PlanEngine::Flag(const void* pointer, std::uint16_t set, std::uint16_t cleared) noexcept {
  const Lock lock(mutex_);
  LiveRecord* const block = LiveAt(pointer);
  if (block == nullptr) return false;
  block->flags = static_cast<std::uint16_t>((block->flags & ~cleared) | set);
  return true;
}

// Memory --------------------------------------------------------------------------------------------------------------

// Above the limit there is no occupancy to query.
GranuleRange PlanEngine::InArena(Offset offset, Bytes bytes) const noexcept {
  return {WholeGranules(offset), std::min(WholeGranules(offset + bytes), arena_granules_)};
}

bool PlanEngine::Withdraw(Offset offset, Bytes bytes) noexcept {
  const auto [lo, hi] = InArena(offset, bytes);
  const Lock lock(mutex_);
  if (lo < hi && !freed_.OnlyThisDevicesIn(lo, hi)) return false;
  return withdrawn_.Add(lo, WholeGranules(offset + bytes));
}

std::uint64_t PlanEngine::LastFreeIn(Offset offset, Bytes bytes) const noexcept {
  const auto [lo, hi] = InArena(offset, bytes);
  const Lock lock(mutex_);
  return lo < hi ? freed_at_.LastIn(lo, hi) : 0;
}

// Marks ---------------------------------------------------------------------------------------------------------------

void PlanEngine::StartAt(const PlanStart& start) noexcept {
  const Lock lock(mutex_);
  cursor_.StartAt(start);
  Follow();
}

void PlanEngine::Follow() noexcept {
  const LoadedScript* script = cursor_.script();
  matcher_.Follow(script != nullptr ? &script->index() : nullptr, cursor_.entry());
  observations_.Follow(cursor_.script_number(), cursor_.iterations());
}

void PlanEngine::OnMark(const Mark& mark) noexcept {
  Lock lock(mutex_);
  const bool begins_iteration = mark.kind == MarkKind::kIteration && mark.edge == MarkEdge::kBegin;
  if (const auto next = cursor_.NextInCycle(); begins_iteration && next && !turns_.empty()) {
    const auto is_live = [this](Granules granule) {
      mutex_.AssertHeld();
      return LiveAt(AddressOf(granule)) != nullptr;
    };
    cursor_.LeaveOut(turns_.Skipped(*next, is_live));
  }
  if (cursor_.OnMark(mark, matcher_.cursor())) Follow();
  const auto [begin, end] = cursor_.Expected();
  matcher_.Expect(begin, end);
  // Layers come by the thousand; the coarser marks are often enough.
  if (mark.kind != MarkKind::kLayer && state_ == State::kServes) freed_.Sweep(lock);
}

}  // namespace stalloc
