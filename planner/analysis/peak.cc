#include "planner/analysis/peak.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "planner/analysis/memory_class.h"
#include "planner/analysis/sweep.h"

namespace stalloc::planner {
namespace {

PeakClass ClassOf(const DeviceTrace& device, const SteadyModel* model, const Allocation& allocation) {
  if (allocation.fenced) return PeakClass::kFenced;
  if (allocation.outside) return PeakClass::kUnmatched;
  if (IsPersistent(device, allocation)) {
    return allocation.segment == 0 ? PeakClass::kSetUp : PeakClass::kWarmup;
  }
  const CycleEntry* entry = model == nullptr ? nullptr : model->EntryOf(allocation.segment, allocation.ordinal);
  if (entry == nullptr) {
    const std::uint32_t warmup = model == nullptr ? 0 : model->cycle.warmup;
    return allocation.segment <= warmup ? PeakClass::kStatic : PeakClass::kUnmatched;
  }
  switch (entry->entry_class) {
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

PeakBlock Describe(const Allocation& allocation, const MemoryClassifier& classifier, const PhaseMap& phases) {
  PeakBlock block;
  block.bytes = allocation.bytes;
  block.memory_class = classifier.Classify(allocation);
  block.role = allocation.role;
  block.segment = allocation.segment;
  block.ordinal = allocation.outside ? 0 : allocation.ordinal;
  block.stream = allocation.stream;
  block.allocated_in = phases.spans()[phases.At(allocation.event)].name;
  block.freed_in = allocation.freed() ? phases.spans()[phases.At(allocation.free_event)].name : "";
  block.life_requests = classifier.LifeInRequests(allocation);
  return block;
}

std::vector<PeakBlock> LargestBlocks(const DeviceTrace& device, std::vector<std::uint32_t> live,
                                     const MemoryClassifier& classifier, const PhaseMap& phases) {
  const std::size_t shown = std::min(live.size(), kPeakBlocks);
  std::partial_sort(live.begin(), live.begin() + static_cast<std::ptrdiff_t>(shown), live.end(),
                    [&](std::uint32_t left, std::uint32_t right) {
                      const Bytes a = device.allocations[left].bytes;
                      const Bytes b = device.allocations[right].bytes;
                      return a != b ? a > b : left < right;
                    });
  std::vector<PeakBlock> blocks;
  for (std::size_t i = 0; i < shown; ++i) {
    blocks.push_back(Describe(device.allocations[live[i]], classifier, phases));
  }
  return blocks;
}

// In the order of the run; `live` ascends.
std::vector<PeakPhase> PhasesOf(const DeviceTrace& device, const std::vector<std::uint32_t>& live,
                                const PhaseMap& phases) {
  std::vector<PeakPhase> result;
  std::size_t current = phases.spans().size();
  for (const std::uint32_t index : live) {
    const Allocation& allocation = device.allocations[index];
    if (const std::size_t at = phases.At(allocation.event); at != current) {
      current = at;
      result.push_back({phases.spans()[at].name});
    }
    result.back().bytes += allocation.bytes;
    ++result.back().blocks;
  }
  return result;
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

PeakReport FindPeak(const DeviceTrace& device, const SteadyModel* model, const PhaseMap& phases) {
  PeakReport peak;
  if (device.allocations.empty()) return peak;
  const PeakMoment moment = FindPeakMoment(device);
  peak.live_bytes = moment.live_bytes;
  const Allocation& last = device.allocations[moment.allocation];
  peak.segment = last.segment;
  peak.fenced = last.fenced;
  peak.ordinal = last.outside ? 0 : last.ordinal;
  peak.phase = phases.spans()[phases.At(last.event)].name;
  const MemoryClassifier classifier(device, model, phases);
  std::vector<std::uint32_t> live;
  for (std::uint32_t i = 0; i < device.allocations.size(); ++i) {
    const Allocation& allocation = device.allocations[i];
    if (allocation.event > last.event || allocation.free_event < last.event) continue;
    live.push_back(i);
    peak.by_class[static_cast<std::size_t>(ClassOf(device, model, allocation))] += allocation.bytes;
    peak.by_memory_class[static_cast<std::size_t>(classifier.Classify(allocation))] += allocation.bytes;
  }
  peak.blocks = LargestBlocks(device, live, classifier, phases);
  peak.phases = PhasesOf(device, live, phases);
  return peak;
}

std::vector<SegmentReport> SummarizeSegments(const DeviceTrace& device, const Segmentation& segmentation) {
  std::vector<SegmentReport> reports(device.segments.size());
  for (std::size_t i = 0; i < reports.size(); ++i) {
    reports[i].index = segmentation.segments[i].index;
    reports[i].requests = device.segments[i].allocations.size();
  }
  Bytes live = 0;
  Sweep sweep(device);
  for (SweepStep step; sweep.Next(&step);) {
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
  for (const StreamInfo& stream : device.streams) streams[stream.ordinal].stream = stream;
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
  for (const auto& [ordinal, report] : streams) reports.push_back(report);
  return reports;
}

std::vector<PhaseReport> SummarizePhases(const DeviceTrace& device, const PhaseMap& phases) {
  std::vector<PhaseReport> reports;
  Bytes live = 0;
  const auto open_until = [&](std::size_t span) {
    while (reports.size() <= span) {
      const PhaseSpan& from = phases.spans()[reports.size()];
      reports.push_back({from.segment, from.name, live, live});
    }
  };
  Sweep sweep(device);
  for (SweepStep step; sweep.Next(&step);) {
    open_until(phases.At(step.event));
    const Bytes bytes = device.allocations[step.allocation].bytes;
    live = step.is_free ? live - bytes : live + bytes;
    reports.back().peak_live_bytes = std::max(reports.back().peak_live_bytes, live);
  }
  open_until(phases.spans().size() - 1);
  return reports;
}

}  // namespace stalloc::planner
