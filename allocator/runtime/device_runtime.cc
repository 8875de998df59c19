#include "allocator/runtime/device_runtime.h"

#include <exception>
#include <utility>

#include "allocator/runtime/device_runtime_impl.h"
#include "allocator/runtime/human_bytes.h"

namespace stalloc {
namespace {

std::uint32_t FlagsOf(Origin origin, std::uint32_t pool) noexcept {
  switch (origin) {
    case Origin::kProgram:
      break;
    case Origin::kCaptured:
      return kAllocCaptured | pool << kAllocPoolShift;
    case Origin::kParallel:
      return kAllocParallel;
  }
  return 0;
}

}  // namespace

// Set-up --------------------------------------------------------------------------------------------------------------

void DeviceRuntime::Impl::SetUpPlan() {
  space.Publish(MapSpace(*parts.plan, {}, &degraded));
  if (!degraded.empty()) {
    Log(LogSeverity::kWarning, "device %d: %s; the run goes on unplanned", parts.device, degraded.c_str());
  }
}

std::unique_ptr<PlannedSpace> DeviceRuntime::Impl::MapSpace(const DevicePlan& plan, const PlanStart& start,
                                                            std::string* why) {
  if (plan.arena_bytes == 0) *why = "the plan has no arena: it serves no request";
  if (why->empty() && parts.driver == nullptr) *why = "this device has no driver for an arena";
  if (!why->empty()) return nullptr;
  VmmDriver& driver = noticed != nullptr ? *noticed : *parts.driver;
  std::unique_ptr<PlannedSpace> made =
      PlannedSpace::Create(driver, parts.fence, plan, {parts.dynamic, parts.moves_at_marks, parts.rules, start}, why);
  if (made == nullptr) return made;
  made->SetListener(this);
  if (parts.reports != nullptr) entries.Publish(std::make_unique<PlanEntries>(plan));
  if (watch != nullptr) watch->SetArena(made->arena().base(), made->arena().reserved_bytes());
  return made;
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
  }
  impl_->Sample();
}

DeviceRuntime::~DeviceRuntime() = default;

std::string DeviceRuntime::TakePlan(const DevicePlan& plan, std::uint32_t explicit_kinds) {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return "this process was forked";
  if (self.space != nullptr || self.heap != nullptr) return "this device is served from an arena already";
  if (self.parts.driver != nullptr && !self.parts.driver->Synchronize().ok()) {
    return "the device cannot be waited for: a graph is being captured";
  }
  self.parts.upstream->ReleaseCached();
  std::string why;
  const PlanStart start{self.counts.iterations(), explicit_kinds};
  std::unique_ptr<PlannedSpace> made = self.MapSpace(plan, start, &why);
  if (made == nullptr) return why;
  // Whoever listens counts what is ours from the first block on.
  self.BeforeArenaChange();
  self.space.Publish(std::move(made));
  self.AfterArenaChange();
  const Upstream::Held held = self.Sample();
  const Bytes own = self.OwnBytes();
  self.ledger.BeginPlan();
  self.counts.BeginSteady();
  const std::lock_guard lock(self.cold);
  self.meter.BeginPlan(own, held.current);
  self.taken_up_at = start.iterations;
  return {};
}

// Allocate ------------------------------------------------------------------------------------------------------------

void* DeviceRuntime::Allocate(Bytes requested, StreamHandle stream, Origin origin, std::uint32_t pool) {
  Impl& self = *impl_;
  if (requested == 0 || self.inert.load(std::memory_order_relaxed))
    return self.parts.upstream->Allocate(requested, stream);
  self.counts.Request(requested);
  void* pointer = nullptr;
  MissReason reason = MissReason::kNone;
  if (self.space != nullptr) {
    pointer = self.ServeFromPlan(requested, stream, origin, &reason);
  } else if (self.heap != nullptr && origin != Origin::kCaptured) {
    pointer = self.ServeFromHeap(requested, stream);
  }
  if (pointer == nullptr) pointer = self.ServeFromUpstream(requested, stream, origin);
  // Known to the trace only once it is known to the ledger, and before the caller can free it.
  self.Record(pointer, requested, stream, FlagsOf(origin, pool));
  if (self.events != nullptr) self.NoteAllocated(pointer, requested, stream, reason);
  if (self.watch != nullptr) self.Watch(pointer, requested, stream, origin);
  return pointer;
}

void* DeviceRuntime::Impl::ServeFromPlan(Bytes requested, StreamHandle stream, Origin origin,
                                         MissReason* reason) noexcept {
  if (origin == Origin::kCaptured) {
    *reason = MissReason::kCapturing;
    counts.Withheld(requested, *reason);
    return nullptr;
  }
  PlanEngine::Allocation allocation;
  if (origin == Origin::kParallel) {
    allocation = space->engine().AllocateUnexpected(requested, stream, MissReason::kParallel);
    counts.Withheld(requested, allocation.reason);
  } else {
    allocation = space->engine().Allocate(requested, stream);
    counts.Planned(requested, allocation.reason, space->IsPlaced(requested, allocation),
                   space->IsKnownSize(requested, allocation));
  }
  *reason = allocation.reason;
  if (allocation.pointer != nullptr) ledger.Add(BlockBytes(requested));
  return allocation.pointer;
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

void* DeviceRuntime::Impl::ServeFromUpstream(Bytes requested, StreamHandle stream, Origin origin) {
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
  if (pointer != nullptr) ledger.AddUpstream(pointer, BlockBytes(requested), stream);
  return pointer;
}

// Gives idle memory back to the device; bytes. Not for a captured request: its capture forbids to wait for the device.
Bytes DeviceRuntime::Impl::Reclaim(Origin origin) noexcept {
  if (origin == Origin::kCaptured) return 0;
  const Bytes bytes = heap != nullptr ? heap->ReleaseCached() : space != nullptr ? space->GiveBackIdle() : 0;
  if (bytes > 0) ++reclaims;
  return bytes;
}

void DeviceRuntime::Impl::Record(const void* pointer, Bytes requested, StreamHandle stream,
                                 std::uint32_t flags) noexcept {
  if (recorder != nullptr) recorder->Allocated(parts.device, pointer, requested, stream, flags);
}

// What is captured is neither filled nor asked about: that would become a part of the graph.
void DeviceRuntime::Impl::Watch(const void* pointer, Bytes requested, StreamHandle stream, Origin origin) noexcept {
  if (pointer == nullptr || origin == Origin::kCaptured) return;
  BlockWatch::Place place = parts.upstream->PadsBlocks() ? BlockWatch::Place::kPadded : BlockWatch::Place::kExact;
  if (Owns(pointer)) place = space != nullptr ? BlockWatch::Place::kArena : BlockWatch::Place::kPadded;
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
  if (self.watch != nullptr) self.watch->Freeing(pointer, current);
  if (owned) {
    // The trace has to have the free before the address can be given out again.
    if (self.recorder != nullptr) self.recorder->Freed(pointer);
    const Bytes bytes = self.space != nullptr ? self.space->engine().Free(pointer, current) : self.heap->Free(pointer);
    self.ledger.Remove(bytes);
    if (self.events != nullptr) self.NoteFreed(pointer, bytes);
    if (bytes == 0) self.UnknownFree(pointer);
    return;
  }
  const Bytes bytes = self.ledger.RemoveUpstream(pointer);
  if (self.events != nullptr) self.NoteFreed(pointer, bytes);
  if (bytes != 0) {
    if (self.recorder != nullptr) self.recorder->Freed(pointer);
  } else {
    self.UnknownFree(pointer);
  }
  self.parts.upstream->Free(pointer);
}

void DeviceRuntime::Adopt(void* pointer, Bytes requested, StreamHandle stream, std::uint32_t pool) noexcept {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return;
  self.ledger.AddUpstream(pointer, BlockBytes(requested), stream);
  self.Record(pointer, requested, stream, FlagsOf(Origin::kCaptured, pool));
}

void DeviceRuntime::Forget(void* pointer) noexcept {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed) || self.ledger.RemoveUpstream(pointer) == 0) return;
  if (self.recorder != nullptr) self.recorder->Freed(pointer);
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
  if (self.recorder != nullptr) self.recorder->StreamRecorded(pointer, stream);
  if (self.watch != nullptr) self.watch->StreamRecorded(pointer);
  if (self.events != nullptr) {
    self.Note(
        {.address = reinterpret_cast<Address>(pointer), .stream = stream, .kind = RecentEvent::Kind::kStreamRecorded});
  }
  if (!owned) {
    self.parts.upstream->RecordStream(pointer, stream);
  } else if (self.space != nullptr) {
    self.space->engine().RecordStream(pointer, stream);
  } else {
    self.heap->RecordStream(pointer, stream);
  }
}

// Marks ---------------------------------------------------------------------------------------------------------------

void DeviceRuntime::OnMark(const Mark& mark) {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return;
  if (self.events != nullptr) {
    self.Note({.kind = RecentEvent::Kind::kMark,
               .detail = static_cast<std::uint32_t>(mark.kind) << 8 | static_cast<std::uint32_t>(mark.edge)});
  }
  if (self.watch != nullptr) self.watch->OnMark(mark);
  if (self.space != nullptr) self.space->engine().OnMark(mark);
  if (mark.kind != MarkKind::kLayer) {  // there are thousands of those, and upstream's figures cost a lock
    if (self.space != nullptr) self.space->OnMark();
    const Upstream::Held held = self.Sample();
    if (self.recorder != nullptr) self.recorder->Held(self.parts.device, held.current);
  }
  if (mark.kind == MarkKind::kIteration && mark.edge == MarkEdge::kBegin) self.OnIteration();
  if (mark.kind == MarkKind::kFence) self.counts.Fence(mark.edge);
}

void DeviceRuntime::Impl::OnIteration() {
  // The engine decides what an iteration is: one inside a fence is none.
  if (space != nullptr && space->engine().Stats().iterations == counts.iterations()) return;
  counts.Iteration();
  if (space == nullptr) return;
  space->Judge(counts.Expected(), FillsWhatIsHeld());
  if (space->gave_up()) space->GiveBackIdle();
}

void DeviceRuntime::Impl::BeforeArenaChange() noexcept {
  Sample();
  if (ArenaListener* told = listener.load(std::memory_order_acquire); told != nullptr) told->BeforeArenaChange();
}

void DeviceRuntime::Impl::AfterArenaChange() noexcept {
  Sample();
  if (ArenaListener* told = listener.load(std::memory_order_acquire); told != nullptr) told->AfterArenaChange();
}

// A limit counts what the native allocator has as well.
bool DeviceRuntime::Impl::MayHold(Bytes arena_bytes) noexcept {
  const Bytes limit = held_limit.load(std::memory_order_relaxed);
  return limit == 0 || arena_bytes + parts.upstream->HeldBytes().current <= limit;
}

// The rest ------------------------------------------------------------------------------------------------------------

bool DeviceRuntime::Owns(const void* pointer) const noexcept { return impl_->Owns(pointer); }
Bytes DeviceRuntime::UpstreamBlockBytes(const void* pointer) const noexcept {
  return impl_->ledger.FindUpstream(pointer);
}
const Arena* DeviceRuntime::arena() const noexcept {
  return impl_->space != nullptr ? &impl_->space->arena() : nullptr;
}
const PlanEngine* DeviceRuntime::engine() const noexcept {
  return impl_->space != nullptr ? &impl_->space->engine() : nullptr;
}
PageHeap* DeviceRuntime::heap() noexcept { return impl_->heap.get(); }
const std::string& DeviceRuntime::degraded() const noexcept { return impl_->degraded; }
DriverStatus DeviceRuntime::RefreshAccess() noexcept {
  if (impl_->space != nullptr) return impl_->space->RefreshAccess();
  return impl_->heap != nullptr ? impl_->heap->RefreshAccess() : DriverStatus{};
}

Bytes DeviceRuntime::EmptyCache() noexcept {
  if (impl_->inert.load(std::memory_order_relaxed)) return 0;
  if (impl_->space != nullptr) impl_->space->TryAgain();
  return impl_->Reclaim(Origin::kProgram);
}

void DeviceRuntime::SetHeldLimit(Bytes limit) noexcept {
  Impl& self = *impl_;
  self.held_limit.store(limit, std::memory_order_relaxed);
  if (self.space == nullptr || self.inert.load(std::memory_order_relaxed)) return;
  self.space->TryAgain();
  if (!self.MayHold(self.space->arena().mapped_bytes())) self.Reclaim(Origin::kProgram);
}

void DeviceRuntime::SetArenaListener(ArenaListener* listener) noexcept {
  impl_->listener.store(listener, std::memory_order_release);
}

Result<ExportedBlock> DeviceRuntime::Export(const void* pointer) const {
  if (impl_->inert.load(std::memory_order_relaxed)) return Error{"this process was forked, the memory is its parent's"};
  if (impl_->heap != nullptr) return Error{"a block there is put together from pages"};
  const LiveBlock live = impl_->Owns(pointer) ? impl_->space->engine().FindLive(pointer) : LiveBlock{};
  if (live.bytes == 0 || live.freed_pending) return Error{"no block of the arena is in use there"};
  const Offset begin = reinterpret_cast<Address>(pointer) - impl_->space->arena().base();
  Result<Arena::Exported> chunks = impl_->space->Export(begin, live.offset + live.bytes - begin);
  if (!chunks.ok()) return Error{chunks.error()};
  const Offset first = chunks.value().offset;
  return ExportedBlock{std::move(chunks).value(), begin - first};
}

void DeviceRuntime::BecomeInert() noexcept {
  impl_->inert.store(true, std::memory_order_relaxed);
  if (impl_->space != nullptr) impl_->space->DropDescriptors();
}

}  // namespace stalloc
