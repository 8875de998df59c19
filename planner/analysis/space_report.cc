#include "planner/analysis/space_report.h"

#include <vector>

#include "planner/packing/hand_overs.h"
#include "planner/packing/scatter.h"

namespace stalloc::planner {

void ReportSpace(const Timeline& timeline, const Packing& packing, PackingReport* report) {
  if (MayNeedWaits(timeline.problem)) {
    const std::vector<HandOver> found = FindHandOvers(timeline.problem, packing.offsets, timeline.cycle());
    report->hand_overs = CountByStreams(timeline.problem, found);
  }
  report->scatter = ScatterMeter(timeline.problem, timeline.cycle()).Measure(packing.offsets, packing.height).share();
}

}  // namespace stalloc::planner
