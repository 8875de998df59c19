#include "planner/analysis/refine.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stalloc::planner {
namespace {

// Of a plan made from this model; its cycle may be unrolled any number of times.
bool IsOfPlan(const ObservedDevice& observed, const DeviceTrace& device, const SteadyModel& model) {
  const std::vector<std::uint32_t>& scripts = observed.script_entries;
  const std::size_t prologue = std::size_t{model.cycle.warmup} + 1;
  if (scripts.size() <= prologue || (scripts.size() - prologue) % model.cycle.period != 0) {
    return false;
  }
  for (std::size_t s = 0; s < scripts.size(); ++s) {
    const std::size_t entries = s < prologue ? device.segments[s].allocations.size()
                                             : model.scripts[(s - prologue) % model.cycle.period].size();
    if (scripts[s] != entries) return false;
  }
  return true;
}

bool WidenSizes(const ObservedEntry& seen, CycleEntry* entry) {
  const bool wider = seen.min_bytes < entry->min_bytes || seen.max_bytes > entry->max_bytes;
  entry->min_bytes = std::min(entry->min_bytes, seen.min_bytes);
  entry->max_bytes = std::max(entry->max_bytes, seen.max_bytes);
  if (entry->min_bytes != entry->max_bytes) {
    entry->entry_class = EntryClass::kDynamic;
    const bool free = entry->unplanned == Unplanned::kPlanned || entry->unplanned == Unplanned::kOptional;
    entry->unplanned = free ? Unplanned::kDynamic : entry->unplanned;
  }
  return wider;
}

bool WidenLife(const ObservedEntry& seen, CycleEntry* entry) {
  const Tick end = entry->begin + static_cast<Tick>(seen.life);
  if (entry->resident || end <= entry->end) {
    return false;
  }
  entry->end = end;
  return true;
}

}  // namespace

absl::Status Widen(const DeviceTrace& device, const ObservedDevice& observed, SteadyModel* model, Widened* widened) {
  if (!IsOfPlan(observed, device, *model)) {
    return absl::FailedPreconditionError(
        absl::StrCat("what was observed is of the plan of another trace: expected scripts of ",
                     device.segments[0].allocations.size(), " requests and so on, found ",
                     absl::StrJoin(observed.script_entries, ", ")));
  }
  const std::uint32_t prologue = model->cycle.warmup + 1;
  for (const ObservedEntry& seen : observed.entries) {
    if (seen.script < prologue) continue;
    CycleEntry& entry = model->scripts[(seen.script - prologue) % model->cycle.period][seen.entry];
    widened->sizes += WidenSizes(seen, &entry);
    widened->lives += WidenLife(seen, &entry);
  }
  return absl::OkStatus();
}

}  // namespace stalloc::planner
