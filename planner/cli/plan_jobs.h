// Plans ranks in parallel: reads each trace, plans it, writes reports and plan. An error in one rank does not lose the
// others. Ranks whose traces are equal, but for times and for whose they are, are planned once; others with equal
// packing problems share one packing. So many traces are in memory as there are threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/cli/progress.h"
#include "planner/cli/run_directory.h"
#include "planner/packing/problem/work.h"
#include "planner/report/run_summary.h"

namespace stalloc::planner {

struct PlanJobsOptions {
  bool trace_only = false;
  bool lend_graphs = true;  // pools of captured graphs serve requests between launches
  bool refine = false;      // by what runs in Alloc mode saw
  bool running = false;     // RankPlannerOptions::running
  int threads = 1;          // in all
  Work packing_work = 0;    // per device of a rank
  std::uint64_t seed = 1;
  std::optional<double> headroom;  // see SlotTrial
  const std::atomic<bool>* stop = nullptr;
};

// In the order of `ranks`, which ascend.
[[nodiscard]] std::vector<RankOutcome> PlanRanks(const RunDirectory& directory, const std::vector<std::uint32_t>& ranks,
                                                 const PlanJobsOptions& options, Progress* progress);

}  // namespace stalloc::planner
