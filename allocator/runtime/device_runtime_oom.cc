// What a device records on the cause of an out-of-memory error: facts, a report.
#include "allocator/runtime/device_runtime_impl.h"
#include "allocator/runtime/oom_report.h"
#include "allocator/runtime/out_of_memory.h"

namespace stalloc {

std::vector<std::string> DeviceRuntime::ExplainOutOfMemory(Bytes requested, StreamHandle stream) {
  Impl& self = *impl_;
  if (self.inert.load(std::memory_order_relaxed)) return {};
  OutOfMemoryFacts facts = self.FactsOf(requested, stream);
  facts.stats = Stats();
  const char* report = "";
  if (self.parts.reports != nullptr) {
    self.oom->OutOfMemory(requested, stream);
    report = self.parts.reports->Write(facts);
    if (*report != '\0') self.parts.reports->Notify(report);
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
  if (oom != nullptr) {
    facts.events = &oom->events();
    facts.live = &oom->live();
  }
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
