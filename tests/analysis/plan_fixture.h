// From a script to each step of planning, for tests.
#pragma once

#include <string_view>

#include "planner/analysis/cycle.h"
#include "planner/analysis/plan_builder.h"
#include "planner/analysis/replay.h"
#include "planner/analysis/steady.h"
#include "planner/analysis/timeline.h"
#include "planner/packing/portfolio.h"
#include "tests/analysis/trace_script.h"

namespace stalloc::planner {

struct Planned {
  DeviceTrace device;
  SteadyModel model;
  Timeline timeline;
  DevicePlan plan;
};

// Throws absl::BadStatusOrAccess where a step fails.
inline Planned PlanOf(const Trace& trace, bool all_streams = true, const SlotChoice& choice = {}) {
  const Segmentation cut = CutAtMarks(trace);
  Planned planned;
  planned.device = BuildLifetimes(trace).value().front();
  planned.model =
      CompareIterations(planned.device, FindCycle(planned.device, cut, trace.complete).value(), all_streams);
  planned.timeline = BuildTimeline(planned.device, planned.model, choice);
  SolveOptions options;
  options.lower_bound = LoadBound(planned.timeline.problem);
  options.work = WorkOfSeconds(0.2);
  planned.plan =
      BuildDevicePlan(planned.device, planned.timeline, MakePortfolio()->Solve(planned.timeline.problem, options));
  return planned;
}

inline Planned PlanOf(std::string_view script, bool all_streams = true, const SlotChoice& choice = {}) {
  return PlanOf(TraceFromScript(script), all_streams, choice);
}

}  // namespace stalloc::planner
