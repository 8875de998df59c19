#include "allocator/runtime/device_runtime.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "allocator/runtime/device_runtime_impl.h"
#include "allocator/runtime/human_bytes.h"
#include "allocator/runtime/run_signature.h"

namespace stalloc {

std::uint32_t DeviceRuntime::Impl::FlagsOf(Origin origin, std::uint32_t pool) const noexcept {
  switch (origin) {
    case Origin::kProgram:
      break;
    case Origin::kCaptured:
      return kAllocCaptured | pool << kAllocPoolShift;
    case Origin::kParallel:
      return kAllocParallel;
  }
  return PassOfThisThread() == RunningPass::kForwardAgain ? kAllocRecomputed : 0;
}

// Set-up --------------------------------------------------------------------------------------------------------------

void DeviceRuntime::Impl::SetUpPlan() {
  std::unique_ptr<PlannedSpace> made =
      BuildSpace(*parts.plan, {.dynamic = parts.dynamic, .maps_late = parts.maps_late}, &degraded);
  if (made != nullptr) {
    if (parts.maps_late) settled_at.store(kSettledAfter, std::memory_order_relaxed);
    if (parts.doubts) without_plan = BuildWithoutPlan();
    if (without_plan != nullptr) doubt.Open();
    Announce(*made);
    spaces.Add(std::move(made));
  }
  if (!degraded.empty()) {
    Log(LogSeverity::kWarning, "device %d: %s; the run goes on unplanned", parts.device, degraded.c_str());
  }
}

// Without it upstream serves them, too. Nothing is mapped yet.
std::unique_ptr<PlannedSpace> DeviceRuntime::Impl::BuildWithoutPlan() {
  if (parts.driver == nullptr || watch != nullptr || !parts.dynamic) return nullptr;
  std::string why;
  VmmDriver& driver = *parts.driver;
  std::unique_ptr<PlannedSpace> made =
      PlannedSpace::Create(driver, parts.fence, {}, {.dynamic = true, .moves_at_marks = parts.moves_at_marks}, &why);
  if (made == nullptr) {
    Log(LogSeverity::kDebug, "device %d: %s", parts.device, why.c_str());
  } else {
    made->SetListener(this);
  }
  return made;
}

void DeviceRuntime::Impl::LeavePlan() noexcept {
  const std::lock_guard lock(adding);
  const auto still = sleep != nullptr ? sleep->HoldStill() : std::unique_lock<std::mutex>();
  if (sleep != nullptr && sleep->everything_sleeps()) return;
  PlannedSpace* const before = spaces.Serving();
  if (without_plan == nullptr || !before->has_plan() || before->gave_up() || spaces.full()) return;
  before->GiveUp();
  before->Retire();
  before->GiveBackIdle();
  without_plan->engine().StartAt({counts.iterations(), doubt.explicit_kinds()});
  AddSpace(std::move(without_plan));
  left.store(true, std::memory_order_relaxed);
}

// Whoever listens counts what is ours from the first block on. REQUIRES: adding is held.
void DeviceRuntime::Impl::AddSpace(std::shared_ptr<PlannedSpace> space) noexcept {
  BeforeArenaChange();
  {
    const std::lock_guard lock(next_space_mutex);
    if (next_space.lock() == space) {
      next_space.reset();
      has_next_space.store(false, std::memory_order_release);
    }
  }
  spaces.Add(std::move(space));
  AfterArenaChange();
}

std::unique_ptr<PlannedSpace> DeviceRuntime::Impl::BuildSpace(const DevicePlan& plan, PlannedSpace::Options options,
                                                              std::string* why) {
  if (plan.arena_bytes == 0) *why = "the plan has no arena: it serves no request";
  if (why->empty() && parts.driver == nullptr) *why = "this device has no driver for an arena";
  if (!why->empty()) return nullptr;
  VmmDriver& driver = noticed != nullptr ? *noticed : *parts.driver;
  options.moves_at_marks = parts.moves_at_marks;
  options.rules = parts.rules;
  options.keep_free = parts.keep_free;
  options.device = parts.device;
  options.graphs = watch == nullptr && parts.shares_graphs ? parts.graphs : nullptr;
  options.poison = poison.get();
  return PlannedSpace::Create(driver, parts.fence, plan, options, why);
}

// It will serve.
void DeviceRuntime::Impl::Announce(PlannedSpace& space) {
  space.SetListener(this);
  if (parts.reports != nullptr) entries.Publish(std::make_unique<PlanEntries>(space.plan()));
  if (watch != nullptr) watch->SetArena(space.arena().base(), space.arena().reserved_bytes());
}

void DeviceRuntime::Impl::SetUpHeap() {
  if (parts.driver != nullptr) heap = PageHeap::Create(*parts.driver, parts.limit_bytes);
  if (heap != nullptr) return;
  degraded = "exact tracing is not possible on this device; it is traced in fast mode";
  Log(LogSeverity::kWarning, "device %d: %s", parts.device, degraded.c_str());
}

DeviceRuntime::DeviceRuntime(const Parts& parts) : impl_(std::make_unique<Impl>(parts)) {
  if (parts.plan != nullptr) {
    impl_->SetUpPlan();
  } else if (parts.recorder != nullptr && parts.exact) {
    impl_->SetUpHeap();
  } else if (parts.awaits_plan) {
    if (auto made = impl_->BuildWithoutPlan(); made != nullptr) impl_->spaces.Add(std::move(made));
  }
  if (parts.plan != nullptr || parts.awaits_plan) {
    impl_->native.feed().Open([] { return std::vector<NativeFeed::LiveBlock>(); });
  }
  impl_->Sample();
  const bool listens = !impl_->spaces.All().empty() || parts.recorder != nullptr;
  if (parts.graphs != nullptr && listens) parts.graphs->SetListener(parts.device, impl_.get());
}

DeviceRuntime::~DeviceRuntime() {
  if (impl_->parts.graphs != nullptr) impl_->parts.graphs->SetListener(impl_->parts.device, nullptr);
}

void DeviceRuntime::DropPlan() noexcept {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return;
  const std::lock_guard adding(self.adding);
  PlannedSpace* const space = self.spaces.Serving();
  if (space == nullptr || !space->has_plan() || space->gave_up()) return;
  space->GiveUp();
  space->GiveBackIdle();
}

// On a free card its memory comes now, out of the run's way.
std::shared_ptr<PlannedSpace> DeviceRuntime::PreparePlan(const DevicePlan& plan, std::string* why) {
  Impl& self = *impl_;
  std::shared_ptr<PlannedSpace> made = self.BuildSpace(plan, {.dynamic = self.parts.dynamic, .maps_late = true}, why);
  const bool is_awake = self.sleep == nullptr || self.sleep->awake();
  if (made == nullptr || !is_awake || !self.IsWithinLimit(plan.arena_bytes)) return made;
  {
    const std::lock_guard lock(self.next_space_mutex);
    self.next_space = made;
    self.has_next_space.store(true, std::memory_order_release);
  }
  made->MapAhead();
  self.Sample();
  return made;
}

std::string DeviceRuntime::TakePlan(const DevicePlan& plan, std::uint32_t explicit_kinds) {
  std::string why;
  std::shared_ptr<PlannedSpace> prepared =
      impl_->BuildSpace(plan, {.dynamic = impl_->parts.dynamic, .maps_late = true}, &why);
  return prepared != nullptr ? TakePlan(prepared, explicit_kinds) : why;
}

std::string DeviceRuntime::TakePlan(std::shared_ptr<PlannedSpace>& prepared, std::uint32_t explicit_kinds) {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return "this process was forked";
  if (self.heap != nullptr) return "this device is traced exactly";
  const std::lock_guard adding(self.adding);
  if (self.spaces.full()) return "this device has taken as many plans up as it can";
  const auto still = self.sleep != nullptr ? self.sleep->HoldStill() : std::unique_lock<std::mutex>();
  if (self.sleep != nullptr && self.sleep->everything_sleeps()) return "this device is asleep";
  PlannedSpace* const before = self.spaces.Serving();
  if (self.parts.driver != nullptr && !self.parts.driver->Synchronize().ok()) {
    return "the device cannot be waited for: a graph is being captured";
  }
  const PlanStart start{self.counts.iterations(), explicit_kinds};
  prepared->engine().StartAt(start);
  self.Announce(*prepared);
  // What is mapped comes as requests need it, so that nothing is held twice: not even what lives in the first iteration
  // only (gradients that it frees).
  if (before != nullptr) before->Retire();
  self.spaces.GiveBackIdle();
  self.parts.upstream->ReleaseCached();
  self.upstream_cache.BeginPlan(self.UpstreamNow());
  self.settled_at.store(start.iterations + Impl::kSettledAfter, std::memory_order_relaxed);
  self.AddSpace(std::move(prepared));
  const Upstream::Held held = self.Sample();
  const Bytes own = self.OwnBytes();
  self.counts.BeginSteady();
  const std::lock_guard lock(self.cold);
  self.ledger.Begin(Span::kPlan);
  self.meter.Begin(Span::kPlan, own, held);
  self.taken_up_at = start.iterations;
  return {};
}

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
  if (PlannedSpace* const space = self.spaces.Serving(); space != nullptr) {
    pointer = space->has_plan() ? self.ServeFromPlan(*space, requested, stream, origin, &reason)
                                : self.ServeInSetUp(*space, requested, stream, origin);
  } else if (self.heap != nullptr && origin != Origin::kCaptured) {
    pointer = self.ServeFromHeap(requested, stream);
  }
  const bool of_upstream = pointer == nullptr;
  if (tag != 0 && !of_upstream) self.Tag(pointer, tag);
  if (of_upstream) pointer = self.ServeFromUpstream(requested, stream, origin, apart);
  if (!apart) self.native.feed().Allocated(pointer, requested, stream);
  // Known to the trace only once it is known to the ledger, and before the caller can free it.
  if (Recorder* const recorder = self.recorder(); recorder != nullptr) {
    self.RecordGrowth(*recorder, of_upstream);
    recorder->Allocated(self.parts.device, pointer, requested, stream, self.FlagsOf(origin, pool));
  }
  if (RunSignature* const signature = self.parts.signature; signature != nullptr && signature->open()) [[unlikely]] {
    if (origin == Origin::kProgram) signature->Add(self.parts.device, requested, self.ledger.live_bytes());
  }
  if (self.events != nullptr) self.NoteAllocated(pointer, requested, stream, reason);
  if (self.watch != nullptr) self.Watch(pointer, requested, stream, origin);
  return pointer;
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
  if (set_up.open() && PassOfThisThread() != RunningPass::kOther) set_up.SeeBackwardPass();
  // What a region names is to sleep, so it is in the arena at any time.
  if ((!set_up.open() && SleepTags::Present() == 0) || origin != Origin::kProgram) return nullptr;
  void* const pointer = space.engine().AllocateUnexpected(requested, stream, MissReason::kUnplanned).pointer;
  if (pointer != nullptr) ledger.Add(BlockBytes(requested));
  return pointer;
}

void DeviceRuntime::Impl::Tag(const void* pointer, unsigned tag) noexcept {
  if (PlannedSpace* const space = spaces.Of(pointer); space != nullptr) space->engine().SetTag(pointer, tag);
}

void* DeviceRuntime::Impl::ServeFromHeap(Bytes requested, StreamHandle stream) noexcept {
  void* const pointer = heap->Allocate(requested, stream);
  if (pointer != nullptr) {
    counts.HeapHit();
    ledger.Add(BlockBytes(requested));
  } else if (heap_full.Pass()) {
    const PageHeap::Stats stats = heap->GetStats();
    Log(LogSeverity::kWarning,
        "device %d: exact trace: %s live in the heap and %s requested do not fit; the native allocator is asked "
        "(time %llu)",
        parts.device, HumanBytes(stats.live_bytes).text, HumanBytes(requested).text,
        static_cast<unsigned long long>(heap_full.count()));
  }
  return pointer;
}

void* DeviceRuntime::Impl::ServeFromUpstream(Bytes requested, StreamHandle stream, Origin origin, bool apart) {
  constexpr int kMostTries = 5;  // others may take what was given back for this one
  void* pointer = nullptr;
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
  const Bytes bytes = heap != nullptr ? heap->ReleaseCached() : GiveBackIdle();
  if (bytes > 0) ++reclaims;
  return bytes;
}

// What is captured is neither filled nor asked about: that would become a part of the graph.
void DeviceRuntime::Impl::Watch(const void* pointer, Bytes requested, StreamHandle stream, Origin origin) noexcept {
  if (pointer == nullptr || origin == Origin::kCaptured) return;
  BlockWatch::Place place = parts.upstream->PadsBlocks() ? BlockWatch::Place::kPadded : BlockWatch::Place::kExact;
  if (Owns(pointer)) place = heap == nullptr ? BlockWatch::Place::kArena : BlockWatch::Place::kPadded;
  watch->Allocated(pointer, requested, stream, place);
}

// Free ----------------------------------------------------------------------------------------------------------------

void DeviceRuntime::Free(void* pointer, std::optional<StreamHandle> current) noexcept {
  Impl& self = *impl_;
  if (pointer == nullptr) return;
  const bool owned = self.Owns(pointer);
  if (self.inert.load(std::memory_order_relaxed)) {
    if (!owned) self.parts.upstream->Free(pointer);
    return;
  }
  if (self.watch != nullptr) self.TellWatchOfFree(pointer, current);
  // The two below: before the address can be given out again.
  if (self.known_blocks != nullptr) self.known_blocks->Remove(pointer);
  self.native.feed().Freed(pointer);
  if (owned) {
    // The trace has to have the free before the address can be given out again.
    if (Recorder* const recorder = self.recorder(); recorder != nullptr) recorder->Freed(pointer);
    PlannedSpace* const space = self.spaces.Of(pointer);
    const Bytes bytes = space != nullptr ? space->engine().Free(pointer, current) : self.heap->Free(pointer);
    self.ledger.Remove(bytes);
    if (self.events != nullptr) self.NoteFreed(pointer, bytes);
    if (bytes == 0) self.UnknownFree(pointer);
    return;
  }
  const Bytes bytes = self.ledger.RemoveUpstream(pointer);
  if (self.events != nullptr) self.NoteFreed(pointer, bytes);
  if (bytes != 0) {
    if (Recorder* const recorder = self.recorder(); recorder != nullptr) recorder->Freed(pointer);
  } else {
    self.UnknownFree(pointer);
  }
  self.parts.upstream->Free(pointer);
}

void DeviceRuntime::Adopt(void* pointer, Bytes requested, StreamHandle stream, std::uint32_t pool) noexcept {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return;
  self.ledger.AddUpstream(pointer, BlockBytes(requested), stream, /*apart=*/true);
  if (Recorder* const recorder = self.recorder(); recorder != nullptr) {
    self.RecordGrowth(*recorder, true);
    recorder->Allocated(self.parts.device, pointer, requested, stream, self.FlagsOf(Origin::kCaptured, pool));
  }
}

void DeviceRuntime::Forget(void* pointer) noexcept {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed) || self.ledger.RemoveUpstream(pointer) == 0) return;
  if (Recorder* const recorder = self.recorder(); recorder != nullptr) recorder->Freed(pointer);
}

void DeviceRuntime::Impl::UnknownFree(const void* pointer) noexcept {
  if (!unknown_frees.Pass()) return;
  Log(LogSeverity::kWarning, "device %d: free of %p, which was not allocated here (time %llu)", parts.device, pointer,
      static_cast<unsigned long long>(unknown_frees.count()));
}

void DeviceRuntime::RecordStream(void* pointer, StreamHandle stream) {
  Impl& self = *impl_;
  if (pointer == nullptr) return;
  const bool owned = self.Owns(pointer);
  if (self.inert.load(std::memory_order_relaxed)) {
    if (!owned) self.parts.upstream->RecordStream(pointer, stream);
    return;
  }
  if (Recorder* const recorder = self.recorder(); recorder != nullptr) recorder->StreamRecorded(pointer, stream);
  if (self.watch != nullptr) self.watch->StreamRecorded(pointer);
  if (self.events != nullptr) {
    self.Note(
        {.address = reinterpret_cast<Address>(pointer), .stream = stream, .kind = RecentEvent::Kind::kStreamRecorded});
  }
  if (!owned) {
    self.parts.upstream->RecordStream(pointer, stream);
  } else if (PlannedSpace* const space = self.spaces.Of(pointer); space != nullptr) {
    space->engine().RecordStream(pointer, stream);
  } else {
    self.heap->RecordStream(pointer, stream);
  }
}

// Marks ---------------------------------------------------------------------------------------------------------------

void DeviceRuntime::OnMark(const Mark& mark) {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return;
  if (self.known_blocks != nullptr) self.known_blocks->OnMark(mark);
  if (self.events != nullptr) {
    self.Note({.kind = RecentEvent::Kind::kMark,
               .detail = static_cast<std::uint32_t>(mark.kind) << 8 | static_cast<std::uint32_t>(mark.edge)});
  }
  if (self.watch != nullptr) self.watch->OnMark(mark);
  PlannedSpace* const space = self.spaces.Serving();
  if (space != nullptr) space->engine().OnMark(mark);
  if (self.doubt.open()) self.doubt.See(mark, self.counts.Expected());
  if (space != nullptr && self.set_up.See(mark) && !space->has_plan()) space->GiveBackEnded();
  if (mark.kind != MarkKind::kLayer) {  // there are thousands of those, and upstream's figures cost a lock
    if (space != nullptr) space->OnMark();
    self.GiveBackSoonEnded();
    const Upstream::Held held = self.Sample();
    if (Recorder* const recorder = self.recorder(); recorder != nullptr) self.RecordHeld(*recorder, held.current);
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
  if (space != nullptr) {
    if (const auto now = UpstreamNow(); upstream_cache.HasLess(now)) ReleaseUpstream(now);
  }
  BeginIteration();
}

// Of arenas whose plans serve no more.
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
  if (ArenaListener* told = listener.load(std::memory_order_acquire); told != nullptr) told->BeforeArenaChange();
}

void DeviceRuntime::Impl::AfterArenaChange() noexcept {
  Sample();
  if (ArenaListener* told = listener.load(std::memory_order_acquire); told != nullptr) told->AfterArenaChange();
  change.unlock();
}

// A limit counts what the native allocator has as well. Before a plan has its memory what that one caches goes first,
// and what ends in arenas before it.
bool DeviceRuntime::Impl::MayHold(Bytes more) noexcept {
  const bool settles =
      !spaces.Serving()->has_plan() || counts.iterations() < settled_at.load(std::memory_order_relaxed);
  if (settles) {
    const UpstreamCache::Figures now = UpstreamNow();
    if (upstream_cache.HasMore(now) || upstream_cache.HasLess(now)) ReleaseUpstream(now);
    (void)spaces.GiveBackRetiredForServing();
  }
  return IsWithinLimit(more);
}

bool DeviceRuntime::Impl::IsWithinLimit(Bytes more) const noexcept {
  const Bytes limit = held_limit.load(std::memory_order_relaxed);
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

void DeviceRuntime::RecordTo(Recorder* recorder) noexcept {
  impl_->recording.store(recorder, std::memory_order_release);
}

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
PageHeap* DeviceRuntime::heap() noexcept { return impl_->heap.get(); }
const std::string& DeviceRuntime::degraded() const noexcept { return impl_->degraded; }
// A peer's streams are not behind the copies of a wake that came before it was one.
DriverStatus DeviceRuntime::RefreshAccess() noexcept {
  if (impl_->sleep != nullptr) impl_->sleep->AwaitCopies();
  DriverStatus first_failure;
  for (PlannedSpace* const space : impl_->spaces.All()) {
    const DriverStatus status = space->RefreshAccess();
    if (first_failure.ok()) first_failure = status;
  }
  if (const std::shared_ptr<PlannedSpace> prepared = impl_->NextSpace(); prepared != nullptr) {
    const DriverStatus status = prepared->RefreshAccess();
    if (first_failure.ok()) first_failure = status;
  }
  return impl_->heap != nullptr ? impl_->heap->RefreshAccess() : first_failure;
}

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

Result<ExportedBlock> DeviceRuntime::Export(const void* pointer) const {
  if (impl_->inert.load(std::memory_order_relaxed)) return Error{"this process was forked, the memory is its parent's"};
  if (impl_->heap != nullptr) return Error{"a block there is put together from pages"};
  PlannedSpace* const space = impl_->spaces.Of(pointer);
  const LiveBlock live = space != nullptr ? space->engine().FindLive(pointer) : LiveBlock{};
  if (live.bytes == 0 || live.freed_pending) return Error{"no block of the arena is in use there"};
  if (live.asleep) return Error{"it is asleep (stalloc.sleep)"};
  // Another process may not have a graph's memory.
  const Offset borrowed = space->arena().borrow_begin();
  if (live.offset >= borrowed && !impl_->TakeBackPools())
    return Error{"it lies in a graph's pool, and the device has no memory for it elsewhere"};
  // From here on it does not fall asleep: the other process would keep memory that is no longer its.
  (void)space->engine().SetShared(live.offset);
  const Offset begin = reinterpret_cast<Address>(pointer) - space->arena().base();
  Result<Arena::Exported> chunks = space->Export(begin, live.offset + live.bytes - begin);
  if (!chunks.ok()) return Error{chunks.error()};
  const Offset first = chunks.value().offset;
  return ExportedBlock{std::move(chunks).value(), begin - first};
}

void DeviceRuntime::BecomeInert() noexcept {
  impl_->inert.store(true, std::memory_order_relaxed);
  for (PlannedSpace* const space : impl_->spaces.All()) space->DropDescriptors();
}

}  // namespace stalloc
