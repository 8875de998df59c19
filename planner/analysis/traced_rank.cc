#include "planner/analysis/traced_rank.h"

#include <utility>

#include "planner/analysis/period.h"

namespace stalloc::planner {
namespace {

Trace WithoutEvents(const Trace& trace) {
  Trace head;
  head.fingerprint = trace.fingerprint;
  head.marks = trace.marks;
  head.streams = trace.streams;
  head.texts = trace.texts;
  head.tensors = trace.tensors;
  head.calls = trace.calls;
  head.layer_inputs = trace.layer_inputs;
  head.allocations = trace.allocations;
  head.live_before = trace.live_before;
  head.complete = trace.complete;
  head.truncation = trace.truncation;
  return head;
}

}  // namespace

TracedRank FinishReading(LifetimeBuilder lifetimes, Trace head) {
  TracedRank traced;
  traced.events = lifetimes.events();
  traced.head = std::move(head);
  traced.head.events = {};
  LifetimeBuilder::Lifetimes finished = lifetimes.Finish(traced.head);
  traced.segmentation = std::move(finished.segmentation);
  traced.devices = std::move(finished.devices);
  // A trace made of a snapshot already has the iterations that the snapshot shows.
  if (traced.head.fingerprint.trace_mode != "snapshot") CutByPeriod(&traced);
  traced.head.tensors = {};
  traced.head.layer_inputs = {};
  return traced;
}

absl::StatusOr<TracedRank> TakeTrace(const Trace& trace) {
  LifetimeBuilder lifetimes;
  lifetimes.Expect(trace.events.size());
  if (absl::Status status = lifetimes.Take(trace); !status.ok()) return status;
  return FinishReading(std::move(lifetimes), WithoutEvents(trace));
}

}  // namespace stalloc::planner
