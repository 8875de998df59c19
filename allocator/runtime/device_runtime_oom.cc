// What a device leaves for whoever looks for the cause of an out-of-memory error: recent events, facts, a report.
#include "allocator/base/clock.h"
#include "allocator/runtime/device_runtime_impl.h"
#include "allocator/runtime/oom_report.h"
#include "allocator/runtime/out_of_memory.h"

namespace stalloc {

void DeviceRuntime::Impl::Note(const RecentEvent& event) noexcept {
  RecentEvent timed = event;
  timed.time_ns = MonotonicNanoseconds();
  events->Add(timed);
}

void DeviceRuntime::Impl::NoteAllocated(const void* pointer, Bytes requested, StreamHandle stream,
                                        MissReason reason) noexcept {
  BlockSource source = BlockSource::kUpstream;
  if (Owns(pointer)) source = spaces.Of(pointer) != nullptr ? BlockSource::kArena : BlockSource::kHeap;
  known_blocks->Add(pointer, requested, stream, source);
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
    if (*report != '\0') self.parts.reports->Tell(report);
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
  facts.live = known_blocks.get();
  const PlannedSpace* const space = spaces.Serving();
  if (space == nullptr || !space->has_plan()) return facts;
  facts.plan = &space->plan();
  facts.engine = &space->engine();
  facts.arena = &space->arena();
  facts.entries = entries.get();
  facts.position = space->engine().Position();
  return facts;
}

}  // namespace stalloc
