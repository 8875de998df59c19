#include "planner/report/iteration_table.h"

#include <algorithm>

#include "planner/analysis/sweep.h"

namespace stalloc::planner {

std::vector<IterationRow> TabulateIterations(const DeviceFacts& facts) {
  std::vector<IterationRow> rows(facts.device.segments.size());
  Bytes live = 0;
  Bytes dynamic = 0;
  Sweep sweep(facts.device);
  for (SweepStep step; sweep.Next(&step);) {
    const Bytes bytes = facts.device.allocations[step.allocation].bytes;
    const bool varies = facts.blocks[step.allocation].memory_class == MemoryClass::kDynamic;
    live = step.is_free ? live - bytes : live + bytes;
    if (varies) dynamic = step.is_free ? dynamic - bytes : dynamic + bytes;
    if (step.is_free) continue;
    IterationRow& row = rows[facts.device.allocations[step.allocation].segment];
    row.peak_live = std::max(row.peak_live, live);
    row.dynamic_peak = std::max(row.dynamic_peak, dynamic);
    if (varies) row.dynamic_requested += bytes;
  }
  return rows;
}

}  // namespace stalloc::planner
