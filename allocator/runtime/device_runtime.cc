#include "allocator/runtime/device_runtime.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "allocator/base/clock.h"
#include "allocator/base/log.h"
#include "allocator/runtime/held_meter.h"
#include "allocator/runtime/human_bytes.h"
#include "allocator/runtime/ledger.h"
#include "allocator/runtime/oom_report.h"
#include "allocator/runtime/out_of_memory.h"
#include "allocator/runtime/plan_entries.h"
#include "allocator/runtime/planned_space.h"
#include "allocator/runtime/recent_events.h"
#include "allocator/runtime/request_counts.h"

namespace stalloc {

namespace {

std::uint32_t FlagsOf(Origin origin) noexcept {
  switch (origin) {
    case Origin::kProgram:
      break;
    case Origin::kCaptured:
      return kAllocCaptured;
    case Origin::kParallel:
      return kAllocParallel;
  }
  return 0;
}

}  // namespace

struct DeviceRuntime::Impl : ArenaListener {
  explicit Impl(const Parts& given) : parts(given), recorder(given.recorder) {
    if (parts.reports != nullptr) events = std::make_unique<RecentEvents>();
  }

  const Parts parts;
  std::string degraded;
  std::unique_ptr<PlannedSpace> space;
  std::unique_ptr<PageHeap> heap;
  std::atomic<bool> inert{false};
  std::atomic<ArenaListener*> listener{nullptr};
  std::atomic<Bytes> held_limit{0};
  Recorder* const recorder;              // null: nothing is recorded
  std::unique_ptr<RecentEvents> events;  // null: none are kept
  std::unique_ptr<PlanEntries> entries;  // where reports are written
  RequestCounts counts;
  Ledger ledger;
  LogThrottle unknown_frees{1};
  LogThrottle heap_full{1};

  mutable std::mutex cold;  // guards the two below
  mutable HeldMeter meter;
  mutable Bytes run_arena_bytes = 0;

  void SetUpPlan();
  void SetUpHeap();
  void* ServeFromPlan(Bytes requested, StreamHandle stream, Origin origin, MissReason* reason) noexcept;
  void* ServeFromHeap(Bytes requested, StreamHandle stream) noexcept;
  void* ServeFromUpstream(Bytes requested, StreamHandle stream, Origin origin);
  Bytes Reclaim(Origin origin) noexcept;
  void Record(const void* pointer, Bytes requested, StreamHandle stream, Origin origin) noexcept;
  void Note(const RecentEvent& event) noexcept;
  void NoteAllocated(const void* pointer, Bytes requested, StreamHandle stream, MissReason reason) noexcept;
  void NoteFreed(const void* pointer, Bytes bytes) noexcept;
  [[nodiscard]] OutOfMemoryFacts FactsOf(Bytes requested, StreamHandle stream) const;
  void UnknownFree(const void* pointer) noexcept;
  // What is held is sampled on either side of a change: see held_meter.h.
  void BeforeArenaChange() noexcept override;
  void AfterArenaChange() noexcept override;
  [[nodiscard]] bool MayHold(Bytes arena_bytes) noexcept override;
  void OnIteration();
  [[nodiscard]] bool Owns(const void* pointer) const noexcept {
    return (space != nullptr && space->arena().Contains(pointer)) || (heap != nullptr && heap->Contains(pointer));
  }
  Upstream::Held Sample() const;
  [[nodiscard]] Bytes OwnBytes() const noexcept {
    return (space != nullptr ? space->arena().mapped_bytes() : 0) +
           (heap != nullptr ? heap->GetStats().physical_bytes : 0);
  }
};

// Set-up --------------------------------------------------------------------------------------------------------------

void DeviceRuntime::Impl::SetUpPlan() {
  if (parts.plan->arena_bytes == 0) {
    degraded = "the plan has no arena: it serves no request";
  } else if (parts.driver == nullptr) {
    degraded = "this device has no driver for an arena";
  } else {
    space = PlannedSpace::Create(*parts.driver, parts.fence, *parts.plan, parts.dynamic, &degraded);
    if (space != nullptr) space->SetListener(this);
    if (space != nullptr && parts.reports != nullptr) entries = std::make_unique<PlanEntries>(*parts.plan);
  }
  if (!degraded.empty()) {
    Log(LogSeverity::kWarning, "device %d: %s; the run goes on unplanned", parts.device, degraded.c_str());
  }
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

// Allocate ------------------------------------------------------------------------------------------------------------

void* DeviceRuntime::Allocate(Bytes requested, StreamHandle stream, Origin origin) {
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
  self.Record(pointer, requested, stream, origin);
  if (self.events != nullptr) self.NoteAllocated(pointer, requested, stream, reason);
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
    counts.Planned(requested, allocation.reason, allocation.pointer != nullptr || space->IsTooSmall(requested));
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
  void* pointer = nullptr;
  try {
    pointer = parts.upstream->Allocate(requested, stream);
  } catch (...) {
    // Upstream is out of memory after its own retries. What lies idle here may be what it lacks.
    if (!parts.upstream->IsOutOfMemory(std::current_exception()) || Reclaim(origin) == 0) throw;
    pointer = parts.upstream->AllocateAgain(requested, stream);
  }
  counts.UpstreamServed();
  if (pointer != nullptr) ledger.AddUpstream(pointer, BlockBytes(requested), stream);
  return pointer;
}

// Gives idle memory back to the device; bytes. Not for a captured request: its capture forbids a synchronisation.
Bytes DeviceRuntime::Impl::Reclaim(Origin origin) noexcept {
  if (origin == Origin::kCaptured || !parts.upstream->MaySynchronize()) return 0;
  if (heap != nullptr) return heap->ReleaseCached();
  return space != nullptr ? space->GiveBackIdle() : 0;
}

void DeviceRuntime::Impl::Record(const void* pointer, Bytes requested, StreamHandle stream, Origin origin) noexcept {
  if (recorder != nullptr) recorder->Allocated(parts.device, pointer, requested, stream, FlagsOf(origin));
}

// Free ----------------------------------------------------------------------------------------------------------------

void DeviceRuntime::Free(void* pointer) noexcept {
  Impl& self = *impl_;
  if (pointer == nullptr) return;
  const bool owned = self.Owns(pointer);
  if (self.inert.load(std::memory_order_relaxed)) {
    if (!owned) self.parts.upstream->Free(pointer);
    return;
  }
  if (owned) {
    // The trace has to have the free before the address can be given out again.
    if (self.recorder != nullptr) self.recorder->Freed(pointer);
    const Bytes bytes = self.space != nullptr ? self.space->engine().Free(pointer) : self.heap->Free(pointer);
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

void DeviceRuntime::Adopt(void* pointer, Bytes requested, StreamHandle stream) noexcept {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return;
  self.ledger.AddUpstream(pointer, BlockBytes(requested), stream);
  self.Record(pointer, requested, stream, Origin::kCaptured);
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

// Out of memory -------------------------------------------------------------------------------------------------------

void DeviceRuntime::Impl::Note(const RecentEvent& event) noexcept {
  RecentEvent timed = event;
  timed.time_ns = MonotonicNanoseconds();
  events->Add(timed);
}

void DeviceRuntime::Impl::NoteAllocated(const void* pointer, Bytes requested, StreamHandle stream,
                                        MissReason reason) noexcept {
  BlockSource source = BlockSource::kUpstream;
  if (Owns(pointer)) source = space != nullptr ? BlockSource::kArena : BlockSource::kHeap;
  Note({.address = reinterpret_cast<Address>(pointer),
        .bytes = requested,
        .stream = stream,
        .kind = RecentEvent::Kind::kAllocated,
        .detail = static_cast<std::uint32_t>(source) << 8 | static_cast<std::uint32_t>(reason)});
}

void DeviceRuntime::Impl::NoteFreed(const void* pointer, Bytes bytes) noexcept {
  Note({.address = reinterpret_cast<Address>(pointer), .bytes = bytes, .kind = RecentEvent::Kind::kFreed});
}

std::vector<std::string> DeviceRuntime::ExplainOutOfMemory(Bytes requested, StreamHandle stream) {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return {};
  OutOfMemoryFacts facts = self.FactsOf(requested, stream);
  facts.stats = Stats();
  const char* report = "";
  if (self.parts.reports != nullptr) {
    self.Note({.bytes = requested, .stream = stream, .kind = RecentEvent::Kind::kOutOfMemory});
    report = self.parts.reports->Write(facts);
  }
  return stalloc::ExplainOutOfMemory(facts, report);
}

OutOfMemoryFacts DeviceRuntime::Impl::FactsOf(Bytes requested, StreamHandle stream) const {
  OutOfMemoryFacts facts;
  facts.device = parts.device;
  facts.requested = requested;
  facts.stream = stream;
  if (parts.driver == nullptr || !parts.driver->GetMemoryInfo(&facts.memory).ok()) facts.memory = {};
  facts.ledger = &ledger;
  facts.events = events.get();
  if (space == nullptr) return facts;
  facts.plan = &space->plan();
  facts.engine = &space->engine();
  facts.arena = &space->arena();
  facts.entries = entries.get();
  facts.position = space->engine().Position();
  return facts;
}

// Marks ---------------------------------------------------------------------------------------------------------------

void DeviceRuntime::OnMark(const Mark& mark) {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return;
  if (self.events != nullptr) {
    self.Note({.kind = RecentEvent::Kind::kMark,
               .detail = static_cast<std::uint32_t>(mark.kind) << 8 | static_cast<std::uint32_t>(mark.edge)});
  }
  if (self.space != nullptr) self.space->engine().OnMark(mark);
  if (mark.kind != MarkKind::kLayer) {  // there are thousands of those, and upstream's figures cost a lock
    const Upstream::Held held = self.Sample();
    if (self.recorder != nullptr) self.recorder->Held(self.parts.device, held.current);
  }
  if (mark.kind == MarkKind::kIteration && mark.edge == MarkEdge::kBegin) self.OnIteration();
}

void DeviceRuntime::Impl::OnIteration() {
  // The engine decides what an iteration is: one inside a fence is none.
  if (space != nullptr && space->engine().Stats().iterations == counts.iterations()) return;
  counts.Iteration();
  if (space == nullptr) return;
  space->Judge(counts.Expected());
  space->ReleaseIdle();
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

// Figures -------------------------------------------------------------------------------------------------------------

Upstream::Held DeviceRuntime::Impl::Sample() const {
  const Upstream::Held held = parts.upstream->HeldBytes();
  const Bytes own = OwnBytes();
  const std::lock_guard lock(cold);
  meter.Sample(own, held.current, held.peak);
  if (space != nullptr) run_arena_bytes = std::max(run_arena_bytes, space->arena().mapped_bytes());
  return held;
}

RuntimeStats DeviceRuntime::Stats() const {
  const Impl& self = *impl_;
  RuntimeStats stats;
  if (self.space != nullptr) stats.engine = self.space->engine().Stats();
  self.counts.AddTo(&stats);
  stats.planned_hits = stats.engine.planned_hits;
  stats.dynamic_hits = stats.engine.dynamic_hits;
  stats.unknown_frees = self.unknown_frees.count();
  stats.gave_up = self.space != nullptr && self.space->gave_up();
  stats.arena_bytes = self.space != nullptr ? self.space->arena().mapped_bytes() : 0;
  stats.arena_live_bytes = stats.engine.live_bytes;
  if (self.space != nullptr) stats.lent = self.space->chunks().GetCounts();
  const PageHeap::Stats heap = self.heap != nullptr ? self.heap->GetStats() : PageHeap::Stats();
  stats.heap_bytes = heap.physical_bytes;
  stats.live_bytes = self.ledger.live_bytes();
  stats.peak_live_bytes = self.ledger.peak_bytes();
  const Upstream::Held held = self.Sample();
  stats.upstream_reserved_bytes = held.current;
  stats.upstream_reserved_peak_bytes = held.peak;
  stats.run.live_bytes = self.ledger.run_peak_bytes();
  {
    const std::lock_guard lock(self.cold);
    stats.held_peak_bytes = self.meter.peak();
    stats.run.held_bytes = std::max(self.meter.run_peak(), heap.peak_physical_bytes);
    stats.run.upstream_bytes = self.meter.run_upstream_peak();
    stats.run.arena_bytes = self.run_arena_bytes;
  }
  const auto ratio = [](Bytes live, Bytes all) {
    return all == 0 ? 0.0 : static_cast<double>(live) / static_cast<double>(all);
  };
  stats.efficiency = ratio(stats.peak_live_bytes, stats.held_peak_bytes);
  stats.run.efficiency = ratio(stats.run.live_bytes, stats.run.held_bytes);
  return stats;
}

void DeviceRuntime::ResetPeaks() noexcept {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return;
  const Upstream::Held held = self.Sample();
  self.ledger.ResetPeak();
  if (self.space != nullptr) self.space->engine().ResetPeak();
  const Bytes own = self.OwnBytes();
  const std::lock_guard lock(self.cold);
  self.meter.ResetPeak(own, held.current);
}

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

void DeviceRuntime::BecomeInert() noexcept { impl_->inert.store(true, std::memory_order_relaxed); }

}  // namespace stalloc
