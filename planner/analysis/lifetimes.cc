#include "planner/analysis/lifetimes.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace stalloc::planner {

void LifetimeBuilder::Expect(std::uint64_t events) {
  expected_allocations_ = events / 2;
  homes_.reserve(expected_allocations_);
  for (auto& [ordinal, device] : devices_) {
    device.trace.allocations.reserve(expected_allocations_);
    device.trace.frees.reserve(expected_allocations_);
  }
}

absl::Status LifetimeBuilder::Take(const Trace& trace) {
  constexpr std::uint64_t kMostEvents = std::numeric_limits<std::uint32_t>::max() - 1;
  if (trace.events.size() > kMostEvents - events_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the trace is too long: expected at most ", kMostEvents, " events; trace fewer iterations"));
  }
  for (const TraceEvent& event : trace.events) {
    if (absl::Status status = TakeEvent(event, trace.marks); !status.ok()) return status;
    ++events_;
  }
  return absl::OkStatus();
}

LifetimeBuilder::Lifetimes LifetimeBuilder::Finish(const Trace& head) {
  Lifetimes result;
  TakeTensors(head.tensors);
  TakeInputs(head.layer_inputs);
  result.segmentation = cutter_.Finish(events_);
  for (auto& [ordinal, device] : devices_) {
    for (const StreamInfo& stream : head.streams) {
      if (stream.device == ordinal) device.trace.streams.push_back(stream);
    }
    // An exact trace's heap is no allocator that a run would have, and that of a CPU keeps nothing: they compare with
    // nothing.
    const std::string& mode = head.fingerprint.trace_mode;
    const bool compares = mode != "exact" && (mode != "fast" || ordinal != kCpuDevice);
    device.trace.held_peak_bytes = compares ? held_peaks_[ordinal] : 0;
    result.devices.push_back(std::move(device.trace));
  }
  homes_ = {};
  return result;
}

// Those of allocations that were taken: the file's tail may have been cut off.
void LifetimeBuilder::TakeTensors(const std::vector<NamedTensor>& tensors) {
  for (const NamedTensor& tensor : tensors) {
    if (tensor.allocation >= homes_.size()) continue;
    const Home home = homes_[tensor.allocation];
    devices_.at(home.device).trace.tensors.push_back({home.index, tensor.name, tensor.offset, tensor.role});
  }
  for (auto& [ordinal, device] : devices_) {
    std::stable_sort(device.trace.tensors.begin(), device.trace.tensors.end(),
                     [](const BlockTensor& a, const BlockTensor& b) {
                       return a.allocation != b.allocation ? a.allocation < b.allocation : a.offset < b.offset;
                     });
    for (const BlockTensor& tensor : device.trace.tensors) {
      Allocation& allocation = device.trace.allocations[tensor.allocation];
      if (allocation.role == TensorRole::kNone) allocation.role = tensor.role;
    }
  }
}

void LifetimeBuilder::TakeInputs(const std::vector<BlockUse>& inputs) {
  for (const BlockUse& input : inputs) {
    if (input.allocation >= homes_.size()) continue;
    const Home home = homes_[input.allocation];
    devices_.at(home.device).trace.layer_inputs.push_back({home.index, input.operation, input.event});
  }
}

absl::Status LifetimeBuilder::TakeEvent(const TraceEvent& event, const std::vector<Mark>& marks) {
  switch (event.kind) {
    case EventKind::kAlloc:
      return TakeAllocation(event, marks);
    case EventKind::kFree:
    case EventKind::kRecordStream:
      return TakeUse(event);
    case EventKind::kMark:
      return TakeMark(event, marks);
    case EventKind::kHeld: {
      Bytes& peak = held_peaks_[event.device];
      peak = std::max(peak, event.bytes);
      break;
    }
  }
  return absl::OkStatus();
}

absl::Status LifetimeBuilder::TakeAllocation(const TraceEvent& event, const std::vector<Mark>& marks) {
  if (event.allocation < homes_.size()) return BadEvent("repeats the allocation", event.allocation);
  if (event.allocation > homes_.size()) {
    return BadEvent("is not the next allocation", event.allocation);
  }
  Device& device = OpenDevice(event.device, marks);
  auto& requests = device.trace.segments.back().allocations;
  Allocation allocation;
  allocation.event = static_cast<std::uint32_t>(events_);
  allocation.bytes = BlockBytes(event.bytes);
  allocation.padding = static_cast<std::uint16_t>(allocation.bytes - event.bytes);
  allocation.stream = event.stream;
  allocation.flags = static_cast<std::uint8_t>(event.flags);
  allocation.fenced = cutter_.inside_fence();
  // The engine never sees what the runtime keeps from it (allocator/runtime), so a script must not expect it.
  allocation.outside = allocation.fenced || (event.flags & (kAllocCaptured | kAllocParallel)) != 0;
  allocation.segment = static_cast<std::uint32_t>(segment());
  const auto position = static_cast<std::uint32_t>(device.trace.allocations.size());
  if (!allocation.outside) {
    allocation.ordinal = static_cast<std::uint32_t>(requests.size());
    requests.push_back(position);
  }
  if (event.stack_plus_one != 0) {
    device.trace.stacks.resize(position + std::size_t{1});
    device.trace.stacks.back() = event.stack_plus_one;
  }
  if (PoolPlusOne(event.flags) != 0) {
    device.trace.pools.resize(position + std::size_t{1});
    device.trace.pools.back() = PoolPlusOne(event.flags);
  }
  if (event.address != 0) device.trace.addresses.push_back({position, event.address});
  homes_.push_back({event.device, position});
  device.trace.allocations.push_back(allocation);
  return absl::OkStatus();
}

absl::Status LifetimeBuilder::TakeUse(const TraceEvent& event) {
  if (event.allocation >= homes_.size()) {
    return BadEvent("names an allocation that the trace lacks", event.allocation);
  }
  const Home home = homes_[event.allocation];
  Device& device = devices_.at(home.device);
  Allocation& allocation = device.trace.allocations[home.index];
  if (allocation.freed()) {
    return BadEvent("concerns an allocation that is not alive", event.allocation);
  }
  if (event.kind == EventKind::kFree) {
    TakeFree(home.index, device);
  } else {
    allocation.foreign_stream = allocation.foreign_stream || event.stream != allocation.stream;
  }
  return absl::OkStatus();
}

void LifetimeBuilder::TakeFree(std::uint32_t index, Device& device) {
  Allocation& allocation = device.trace.allocations[index];
  device.trace.frees.push_back(index);
  allocation.free_event = static_cast<std::uint32_t>(events_);
  allocation.free_segment = static_cast<std::uint32_t>(segment());
  allocation.free_ordinal = static_cast<std::uint32_t>(device.trace.segments.back().allocations.size());
}

absl::Status LifetimeBuilder::TakeMark(const TraceEvent& event, const std::vector<Mark>& marks) {
  if (event.mark >= marks.size()) return BadEvent("names a mark that the trace lacks", event.mark);
  const std::size_t segments = cutter_.so_far().segments.size();
  const std::size_t kept = cutter_.so_far().segments.back().marks.size();
  cutter_.Take(events_, event.mark, marks[event.mark]);
  const bool opened = cutter_.so_far().segments.size() > segments;
  if (!opened && cutter_.so_far().segments.back().marks.size() == kept) return absl::OkStatus();
  for (auto& [ordinal, device] : devices_) {
    if (opened) {
      device.trace.segments.emplace_back();
    } else if (!IsGraphMark(marks[event.mark])) {
      SegmentRequests& open = device.trace.segments.back();
      open.phases.push_back({marks[event.mark], static_cast<std::uint32_t>(open.allocations.size())});
    }
  }
  return absl::OkStatus();
}

// Marks concern all devices: one that is met late has the earlier ones before its first request.
LifetimeBuilder::Device& LifetimeBuilder::OpenDevice(DeviceIndex device, const std::vector<Mark>& marks) {
  const auto [found, is_new] = devices_.try_emplace(device);
  DeviceTrace& trace = found->second.trace;
  if (is_new) {
    trace.device = device;
    trace.allocations.reserve(expected_allocations_);
    trace.frees.reserve(expected_allocations_);
    for (const Segment& segment : cutter_.so_far().segments) {
      SegmentRequests& requests = trace.segments.emplace_back();
      for (const SegmentMark& mark : segment.marks) {
        if (!IsGraphMark(marks[mark.mark])) requests.phases.push_back({marks[mark.mark], 0});
      }
    }
  }
  return found->second;
}

absl::Status LifetimeBuilder::BadEvent(const char* what, std::uint64_t value) const {
  return absl::InvalidArgumentError(absl::StrCat("event ", events_, " ", what, ": ", value));
}

absl::StatusOr<std::vector<DeviceTrace>> BuildLifetimes(const Trace& trace) {
  LifetimeBuilder builder;
  builder.Expect(trace.events.size());
  if (absl::Status status = builder.Take(trace); !status.ok()) return status;
  return builder.Finish(trace).devices;
}

}  // namespace stalloc::planner
