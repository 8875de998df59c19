#include "planner/analysis/refine.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stalloc::planner {
namespace {

// Entries of each script of a plan made from this model.
std::vector<std::uint32_t> ScriptEntries(const DeviceTrace& device, const SteadyModel& model) {
  std::vector<std::uint32_t> entries;
  for (std::uint32_t segment = 0; segment <= model.cycle.warmup; ++segment) {
    entries.push_back(static_cast<std::uint32_t>(device.segments[segment].allocations.size()));
  }
  for (const auto& script : model.scripts) entries.push_back(static_cast<std::uint32_t>(script.size()));
  return entries;
}

// The plan's cycle may be unrolled any number of times.
bool IsOfPlan(std::vector<std::uint32_t> expected, const std::vector<std::uint32_t>& found, std::uint32_t period) {
  const std::size_t once = expected.size();
  while (expected.size() < found.size() || (expected.size() - once) % period != 0) {
    const std::uint32_t entries = expected[expected.size() - period];
    expected.push_back(entries);
  }
  return expected == found;
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
  if (entry->resident || end <= entry->end) return false;
  entry->end = end;
  return true;
}

}  // namespace

absl::Status Widen(const DeviceTrace& device, const ObservedDevice& observed, SteadyModel* model, Widened* widened) {
  const std::vector<std::uint32_t> expected = ScriptEntries(device, *model);
  if (!IsOfPlan(expected, observed.script_entries, model->cycle.period)) {
    return absl::FailedPreconditionError(
        absl::StrCat("what was observed is of the plan of another trace: expected scripts of ",
                     absl::StrJoin(expected, ", "), " entries, found ", absl::StrJoin(observed.script_entries, ", ")));
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
