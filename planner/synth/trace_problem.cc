#include "planner/synth/trace_problem.h"

namespace stalloc::planner {

Problem ProblemOfTrace(const Trace& trace) {
  constexpr Tick kAlive = -1;
  Problem problem;
  problem.blocks.reserve(trace.allocations);
  Tick tick = 0;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::kAlloc) {
      problem.blocks.push_back({.id = event.allocation,
                                .bytes = BlockBytes(event.bytes),
                                .life = {.begin = tick++, .end = kAlive},
                                .stream = event.stream});
    } else if (event.kind == EventKind::kRecordStream) {
      problem.blocks[event.allocation].recorded = true;
    } else if (event.kind == EventKind::kFree) {
      problem.blocks[event.allocation].life.end = tick++;
    }
  }
  for (Block& block : problem.blocks) {
    if (block.life.end == kAlive) {
      block.life.end = tick;
      block.persistent = true;
    }
  }
  return problem;
}

}  // namespace stalloc::planner
