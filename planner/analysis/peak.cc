#include "planner/analysis/peak.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "planner/analysis/sweep.h"

namespace stalloc::planner {
namespace {

bool StaysForGood(const DeviceTrace& device, const Allocation& allocation) {
  return !allocation.freed() || FreedAtExit(device, allocation);
}

// Weights and optimizer state outlive at least one whole segment, or are never freed at all.
bool IsPersistent(const DeviceTrace& device, const Allocation& allocation) {
  return StaysForGood(device, allocation) || allocation.free_segment > allocation.segment + 1;
}

PeakClass ClassOf(const DeviceTrace& device, const SteadyModel* model, const Allocation& allocation) {
  if (allocation.fenced) {
    return PeakClass::kFenced;
  }
  if (allocation.outside) {
    return PeakClass::kUnmatched;
  }
  const bool last = allocation.segment + 1 == device.segments.size() && allocation.segment > 0;
  if (IsPersistent(device, allocation) && !last) {
    return allocation.segment == 0 ? PeakClass::kSetUp : PeakClass::kWarmup;
  }
  if (model == nullptr || !model->alignments[allocation.segment].has_value()) {
    return allocation.segment == 0 ? PeakClass::kStatic : PeakClass::kUnmatched;
  }
  const std::uint32_t entry = model->alignments[allocation.segment]->ToLeft(allocation.ordinal);
  if (entry == kNone) {
    return allocation.segment <= model->cycle.warmup ? PeakClass::kStatic : PeakClass::kUnmatched;
  }
  switch (model->scripts[model->cycle.ScriptOf(allocation.segment + model->cycle.period - 1)][entry].entry_class) {
    case EntryClass::kDynamic:
      return PeakClass::kDynamic;
    case EntryClass::kOptional:
      return PeakClass::kOptional;
    case EntryClass::kPersistent:
      return PeakClass::kWarmup;
    case EntryClass::kStatic:
      break;
  }
  return PeakClass::kStatic;
}

}  // namespace

const char* PeakClassName(PeakClass peak_class) {
  switch (peak_class) {
    case PeakClass::kSetUp:
      return "persistent from set-up";
    case PeakClass::kWarmup:
      return "persistent from iterations";
    case PeakClass::kStatic:
      return "static";
    case PeakClass::kDynamic:
      return "dynamic";
    case PeakClass::kOptional:
      return "optional";
    case PeakClass::kFenced:
      return "inside a fence";
    case PeakClass::kUnmatched:
      return "in no script";
    case PeakClass::kCount:
      break;
  }
  return "?";
}

PeakReport FindPeak(const DeviceTrace& device, const SteadyModel* model) {
  const std::vector<SweepStep> steps = SweepOf(device);
  PeakReport peak;
  Bytes live = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Bytes bytes = device.allocations[steps[i].allocation].bytes;
    live = steps[i].is_free ? live - bytes : live + bytes;
    if (live > peak.live_bytes) {
      peak.live_bytes = live;
      at = i;
    }
  }
  if (steps.empty()) {
    return peak;
  }
  const Allocation& last = device.allocations[steps[at].allocation];
  peak.segment = last.segment;
  peak.fenced = last.fenced;
  peak.ordinal = last.outside ? 0 : last.ordinal;
  for (const Allocation& allocation : device.allocations) {
    if (allocation.event <= last.event && (!allocation.freed() || allocation.free_event > last.event)) {
      peak.by_class[static_cast<std::size_t>(ClassOf(device, model, allocation))] += allocation.bytes;
    }
  }
  return peak;
}

std::vector<SegmentReport> SummarizeSegments(const DeviceTrace& device, const Segmentation& segmentation) {
  std::vector<SegmentReport> reports(device.segments.size());
  for (std::size_t i = 0; i < reports.size(); ++i) {
    reports[i].index = segmentation.segments[i].index;
    reports[i].requests = device.segments[i].allocations.size();
  }
  Bytes live = 0;
  for (const SweepStep& step : SweepOf(device)) {
    const Allocation& allocation = device.allocations[step.allocation];
    if (step.is_free) {
      live -= allocation.bytes;
      continue;
    }
    live += allocation.bytes;
    if (!allocation.outside) {
      SegmentReport& report = reports[allocation.segment];
      report.requested_bytes += allocation.bytes;
      report.peak_live_bytes = std::max(report.peak_live_bytes, live);
    }
  }
  return reports;
}

std::vector<StreamReport> SummarizeStreams(const DeviceTrace& device) {
  std::map<std::uint32_t, StreamReport> streams;
  for (const StreamInfo& stream : device.streams) {
    streams[stream.ordinal].stream = stream;
  }
  const std::uint32_t main = MainStream(device);
  for (const Allocation& allocation : device.allocations) {
    StreamReport& report = streams[allocation.stream];
    report.stream.ordinal = allocation.stream;
    report.stream.device = device.device;
    report.main = allocation.stream == main;
    ++report.requests;
    report.bytes += allocation.bytes;
    report.recorded += allocation.foreign_stream;
  }
  std::vector<StreamReport> reports;
  for (const auto& [ordinal, report] : streams) {
    reports.push_back(report);
  }
  return reports;
}

}  // namespace stalloc::planner
