#include "allocator/runtime/device_runtime.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "allocator/runtime/device_runtime_impl.h"
#include "allocator/runtime/human_bytes.h"

namespace stalloc {

// Allocate ------------------------------------------------------------------------------------------------------------

void* DeviceRuntime::Allocate(Bytes requested, StreamHandle stream, Origin origin, std::uint32_t pool) {
  Impl& self = *impl_;
  if (requested == 0 || self.inert.load(std::memory_order_relaxed))
    return self.parts.upstream->Allocate(requested, stream);
  const unsigned tag = SleepTags::Present();
  const bool apart = origin == Origin::kCaptured;
  if (tag == SleepTags::kOutside && origin == Origin::kProgram) origin = Origin::kCaptured;
  if (self.sleep != nullptr && !self.sleep->awake()) [[unlikely]] {
    self.sleep->AwaitAwake(requested, origin == Origin::kCaptured);
  }
  self.counts.Request(requested);
  void* pointer = nullptr;
  MissReason reason = MissReason::kNone;
  BlockSource source = self.traces_exactly ? BlockSource::kHeap : BlockSource::kArena;
  if (PlannedSpace* const space = self.spaces.Serving(); space != nullptr) {
    pointer = self.Serve(*space, requested, stream, origin, &reason);
  }
  if (pointer == nullptr) {
    pointer = self.ServeFromUpstream(requested, stream, origin, apart);
    source = BlockSource::kUpstream;
  } else if (tag != 0) {
    self.Tag(pointer, tag);
  }
  // Known to the ledger by now.
  self.observers.Began({pointer, requested, stream, pool, origin, source, reason, apart});
  return pointer;
}

inline void* DeviceRuntime::Impl::Serve(PlannedSpace& space, Bytes requested, StreamHandle stream, Origin origin,
                                        MissReason* reason) noexcept {
  if (space.has_plan()) return ServeFromPlan(space, requested, stream, origin, reason);
  return traces_exactly ? ServeExactly(space, requested, stream, origin)
                        : ServeInSetUp(space, requested, stream, origin);
}

void* DeviceRuntime::Impl::ServeFromPlan(PlannedSpace& space, Bytes requested, StreamHandle stream, Origin origin,
                                         MissReason* reason) noexcept {
  if (origin == Origin::kCaptured) {
    *reason = MissReason::kCapturing;
    counts.Withheld(requested, *reason);
    return nullptr;
  }
  PlanEngine::Allocation allocation;
  if (origin == Origin::kParallel) {
    allocation = space.engine().AllocateUnexpected(requested, stream, MissReason::kParallel);
    counts.Withheld(requested, allocation.reason);
  } else {
    allocation = space.engine().Allocate(requested, stream);
    counts.Planned(requested, allocation.reason, space.IsPlaced(requested, allocation),
                   space.IsKnownSize(requested, allocation));
    if (doubt.open() && doubt.Doubts(counts.Expected())) [[unlikely]]
      LeavePlan();
  }
  *reason = allocation.reason;
  if (allocation.pointer != nullptr) ledger.Add(BlockBytes(requested));
  return allocation.pointer;
}

void* DeviceRuntime::Impl::ServeInSetUp(PlannedSpace& space, Bytes requested, StreamHandle stream,
                                        Origin origin) noexcept {
  if (set_up.open() && PassOf(parts.pass_here) != RunningPass::kOther) set_up.SeeBackwardPass();
  // What a region names is to sleep, so it is in the arena at any time.
  if ((!set_up.open() && SleepTags::Present() == 0) || origin != Origin::kProgram) return nullptr;
  void* const pointer = space.engine().AllocateUnexpected(requested, stream, MissReason::kUnplanned).pointer;
  if (pointer != nullptr) ledger.Add(BlockBytes(requested));
  return pointer;
}

void DeviceRuntime::Impl::Tag(const void* pointer, unsigned tag) noexcept {
  if (PlannedSpace* const space = spaces.Of(pointer); space != nullptr) space->engine().SetTag(pointer, tag);
}

void* DeviceRuntime::Impl::ServeExactly(PlannedSpace& space, Bytes requested, StreamHandle stream,
                                        Origin origin) noexcept {
  if (origin == Origin::kCaptured) return nullptr;
  void* const pointer = space.engine().AllocateUnexpected(requested, stream, MissReason::kUnplanned).pointer;
  if (pointer != nullptr) {
    ledger.Add(BlockBytes(requested));
  } else if (exact_full.Pass()) {
    Log(LogSeverity::kWarning,
        "device %d: exact trace: %s live in the heap and %s requested do not fit; the native allocator serves the "
        "request "
        "(time %llu)",
        parts.device, HumanBytes(space.engine().Stats().live_bytes).text, HumanBytes(requested).text,
        static_cast<unsigned long long>(exact_full.count()));
  }
  return pointer;
}

void* DeviceRuntime::Impl::ServeFromUpstream(Bytes requested, StreamHandle stream, Origin origin, bool apart) {
  constexpr int kMostTries = 5;  // others may take what was given back for this one
  void* pointer = nullptr;
  // Upstream that caches has a limit of its own, and finds itself out of memory there.
  const bool has_limit = held_limit.load(std::memory_order_relaxed) != 0 && !parts.upstream->Caches();
  if (has_limit && !IsWithinLimit(BlockBytes(requested))) (void)Reclaim(origin);
  for (int tries = 1;; ++tries) {
    const std::uint64_t before = reclaims.load();
    try {
      pointer =
          tries == 1 ? parts.upstream->Allocate(requested, stream) : parts.upstream->AllocateAgain(requested, stream);
      break;
    } catch (...) {
      // Upstream is out of memory after its own retries. What lies idle here may be what it lacks, or what another
      // thread has given back meanwhile.
      if (tries == kMostTries || !parts.upstream->IsOutOfMemory(std::current_exception())) throw;
      if (Reclaim(origin) == 0 && reclaims.load() == before) throw;
    }
  }
  counts.UpstreamServed();
  if (pointer != nullptr) ledger.AddUpstream(pointer, BlockBytes(requested), stream, apart);
  return pointer;
}

Bytes DeviceRuntime::Impl::GiveBackIdle() noexcept {
  const std::shared_ptr<PlannedSpace> prepared = NextSpace();
  return spaces.GiveBackIdle() + (prepared != nullptr ? prepared->GiveBackIdle() : 0);
}

// Gives idle memory back to the device; bytes. Not for a captured request: its capture forbids to wait for the device.
Bytes DeviceRuntime::Impl::Reclaim(Origin origin) noexcept {
  if (origin == Origin::kCaptured) return 0;
  const Bytes bytes = GiveBackIdle();
  if (bytes > 0) ++reclaims;
  return bytes;
}

// Free ----------------------------------------------------------------------------------------------------------------

// In one step where nobody has to learn of it before.
DeviceRuntime::Freed DeviceRuntime::Free(void* pointer, std::optional<StreamHandle> current) noexcept {
  Impl& self = *impl_;
  PlannedSpace* const space = self.spaces.Of(pointer);
  if (space == nullptr || self.observers.AnyListens() || self.inert.load(std::memory_order_relaxed)) {
    const Ending ending = BeginFree(pointer);
    Free(ending, current);
    return {ending.bytes, ending.requested};
  }
  Freed freed;
  freed.bytes = space->engine().Free(pointer, current, &freed.requested);
  self.ledger.Remove(freed.bytes);
  if (freed.bytes == 0) self.UnknownFree(pointer);
  return freed;
}

DeviceRuntime::Ending DeviceRuntime::BeginFree(void* pointer) noexcept {
  Impl& self = *impl_;
  PlannedSpace* const space = self.spaces.Of(pointer);
  Ending ending{{.pointer = pointer}, 0, space};
  if (pointer == nullptr || self.inert.load(std::memory_order_relaxed)) return ending;
  if (space != nullptr) {
    static_cast<FreeTicket&>(ending) = space->engine().BeginFree(pointer);
    ending.bytes = ending.requested != 0 ? BlockBytes(ending.requested) : 0;
  } else {
    ending.bytes = self.ledger.RemoveUpstream(pointer);
  }
  return ending;
}

void DeviceRuntime::Free(const Ending& ending, std::optional<StreamHandle> current) noexcept {
  Impl& self = *impl_;
  if (ending.pointer == nullptr) return;
  if (!self.inert.load(std::memory_order_relaxed)) {
    self.observers.Ends({ending.pointer, ending.bytes, current});
    if (ending.bytes == 0) {
      self.UnknownFree(ending.pointer);
    } else if (ending.space != nullptr) {
      self.ledger.Remove(ending.space->engine().Free(ending, current));
    }
  }
  if (ending.space == nullptr) self.parts.upstream->Free(ending.pointer);
}

// As what a capture requests.
void DeviceRuntime::Adopt(void* pointer, Bytes requested, StreamHandle stream, std::uint32_t pool) noexcept {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return;
  self.ledger.AddUpstream(pointer, BlockBytes(requested), stream, /*apart=*/true);
  self.observers.Began({.pointer = pointer,
                        .requested = requested,
                        .stream = stream,
                        .pool = pool,
                        .origin = Origin::kCaptured,
                        .reason = MissReason::kCapturing,
                        .apart = true});
}

void DeviceRuntime::Forget(void* pointer) noexcept {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return;
  if (const Bytes bytes = self.ledger.RemoveUpstream(pointer); bytes != 0) {
    self.observers.Ends({pointer, bytes, std::nullopt});
  }
}

void DeviceRuntime::Impl::UnknownFree(const void* pointer) noexcept {
  if (!unknown_frees.Pass()) return;
  Log(LogSeverity::kWarning, "device %d: free of %p, which was not allocated here (time %llu)", parts.device, pointer,
      static_cast<unsigned long long>(unknown_frees.count()));
}

void DeviceRuntime::RecordStream(void* pointer, StreamHandle stream) {
  Impl& self = *impl_;
  if (pointer == nullptr) return;
  PlannedSpace* const space = self.spaces.Of(pointer);
  if (self.inert.load(std::memory_order_relaxed)) {
    if (space == nullptr) self.parts.upstream->RecordStream(pointer, stream);
    return;
  }
  self.observers.Used(pointer, stream);
  if (space != nullptr) {
    space->engine().RecordStream(pointer, stream);
  } else {
    self.parts.upstream->RecordStream(pointer, stream);
  }
}

// Marks ---------------------------------------------------------------------------------------------------------------

void DeviceRuntime::OnMark(const Mark& mark) {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return;
  self.observers.OnMark(mark);
  PlannedSpace* const space = self.spaces.Serving();
  if (space != nullptr) space->engine().OnMark(mark);
  if (self.doubt.open()) self.doubt.See(mark, self.counts.Expected());
  if (space != nullptr && self.set_up.See(mark) && !space->has_plan()) space->GiveBackEnded();
  if (mark.kind != MarkKind::kLayer) {  // there are thousands of those, and upstream's figures cost a lock
    if (space != nullptr) space->OnMark();
    self.GiveBackSoonEnded();
    self.observers.Held(self.Sample().current);
  }
  if (mark.kind == MarkKind::kIteration && mark.edge == MarkEdge::kBegin) self.OnIteration();
  if (mark.kind == MarkKind::kFence) self.counts.Fence(mark.edge);
}

void DeviceRuntime::Impl::OnIteration() {
  // The engine decides what an iteration is: one inside a fence is none.
  PlannedSpace* const space = spaces.Serving();
  if (space != nullptr && space->engine().Stats().iterations == counts.iterations()) return;
  counts.Iteration();
  const bool is_awake = sleep == nullptr || sleep->awake();
  for (PlannedSpace* const each : spaces.All()) {
    if (each->lending() != nullptr && is_awake) each->lending()->OnIteration();
  }
  const IterationPeaks peaks = EndIteration();
  Judge(space, peaks);
  GiveBackEnded();
  if (space != nullptr && !traces_exactly) {
    if (const auto now = UpstreamNow(); upstream_cache.HasLess(now)) ReleaseUpstream(now);
  }
  BeginIteration();
}

// For arenas whose plans serve no more.
void DeviceRuntime::Impl::GiveBackEnded() noexcept {
  PlannedSpace* const space = spaces.Serving();
  if (space != nullptr && space->gave_up()) (void)space->GiveBackEnded();
  (void)spaces.GiveBackRetired();
}

// In the first iterations without their plan, what ends in them goes back at each mark.
void DeviceRuntime::Impl::GiveBackSoonEnded() noexcept {
  PlannedSpace* const space = spaces.Serving();
  if (space == nullptr) return;
  if (space->drains() || counts.iterations() < settled_at.load(std::memory_order_relaxed)) GiveBackEnded();
}

void DeviceRuntime::Impl::BeforeArenaChange() noexcept {
  change.lock();
  Sample();
  if (ArenaListener* notified = listener.load(std::memory_order_acquire); notified != nullptr)
    notified->BeforeArenaChange();
}

void DeviceRuntime::Impl::AfterArenaChange() noexcept {
  Sample();
  if (ArenaListener* notified = listener.load(std::memory_order_acquire); notified != nullptr)
    notified->AfterArenaChange();
  change.unlock();
}

// A limit counts what the native allocator has as well. Before a plan has its memory what that one caches goes first,
// and what ends in arenas before it.
bool DeviceRuntime::Impl::MayHold(Bytes more) noexcept {
  const bool settles =
      !spaces.Serving()->has_plan() || counts.iterations() < settled_at.load(std::memory_order_relaxed);
  if (settles && !traces_exactly) {
    const UpstreamCache::Figures now = UpstreamNow();
    if (upstream_cache.HasMore(now) || upstream_cache.HasLess(now)) ReleaseUpstream(now);
    (void)spaces.GiveBackRetiredForServing();
  }
  return IsWithinLimit(more);
}

bool DeviceRuntime::Impl::IsWithinLimit(Bytes more) const noexcept {
  const Bytes limit = held_limit.load(std::memory_order_relaxed);
  if (traces_exactly && parts.limit_bytes != 0 && OwnBytes() + more > parts.limit_bytes) return false;
  return limit == 0 || OwnBytes() + more + parts.upstream->HeldBytes().current <= limit;
}

Bytes DeviceRuntime::Impl::LiveUpstream() const noexcept {
  const Bytes own = spaces.Sum([](const PlannedSpace& space) { return space.engine().Stats().live_bytes; });
  const Bytes live = ledger.live_bytes();
  return live - std::min(live, own);
}

UpstreamCache::Figures DeviceRuntime::Impl::UpstreamNow() const noexcept {
  const Bytes live = LiveUpstream();
  return {.held = parts.upstream->HeldBytes().current, .live = live};
}

void DeviceRuntime::Impl::ReleaseUpstream(const UpstreamCache::Figures& now) noexcept {
  if (!parts.driver->Synchronize().ok()) return;  // a graph is being captured
  parts.upstream->ReleaseCached();
  upstream_cache.Released(now, UpstreamNow());
}

// The rest ------------------------------------------------------------------------------------------------------------

bool DeviceRuntime::Owns(const void* pointer) const noexcept { return impl_->Owns(pointer); }
Bytes DeviceRuntime::UpstreamBlockBytes(const void* pointer) const noexcept {
  return impl_->ledger.FindUpstream(pointer);
}
std::span<PlannedSpace* const> DeviceRuntime::spaces() const noexcept { return impl_->spaces.All(); }
const PlannedSpace* DeviceRuntime::SpaceOf(const void* pointer) const noexcept { return impl_->spaces.Of(pointer); }
const Arena* DeviceRuntime::arena() const noexcept {
  const PlannedSpace* const space = impl_->spaces.Serving();
  return space != nullptr && space->has_plan() ? &space->arena() : nullptr;
}
const PlanEngine* DeviceRuntime::engine() const noexcept {
  const PlannedSpace* const space = impl_->spaces.Serving();
  return space != nullptr && space->has_plan() ? &space->engine() : nullptr;
}
bool DeviceRuntime::exact() const noexcept { return impl_->traces_exactly; }
const std::string& DeviceRuntime::degraded() const noexcept { return impl_->degraded; }
Bytes DeviceRuntime::EmptyCache() noexcept {
  if (impl_->inert.load(std::memory_order_relaxed)) return 0;
  for (PlannedSpace* const space : impl_->spaces.All()) space->TryAgain();
  impl_->native.EmptiedCache(impl_->ledger.apart_bytes());
  return impl_->Reclaim(Origin::kProgram);
}

void DeviceRuntime::SetHeldLimit(Bytes limit) noexcept {
  Impl& self = *impl_;
  self.held_limit.store(limit, std::memory_order_relaxed);
  if (self.spaces.Serving() == nullptr || self.inert.load(std::memory_order_relaxed)) return;
  self.spaces.Serving()->TryAgain();
  if (!self.MayHold(0)) self.Reclaim(Origin::kProgram);
}

void DeviceRuntime::SetArenaListener(ArenaListener* listener) noexcept {
  impl_->listener.store(listener, std::memory_order_release);
}

}  // namespace stalloc
