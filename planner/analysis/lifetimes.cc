#include "planner/analysis/lifetimes.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace stalloc::planner {
namespace {

// Where an allocation of the file went: its device and its index there.
struct Home {
  DeviceTrace* device = nullptr;
  std::uint32_t index = 0;
};

class Builder {
 public:
  Builder(const Trace& trace, const Segmentation& segmentation) : trace_(trace), segmentation_(segmentation) {
    homes_.resize(trace.allocations);
  }

  std::vector<DeviceTrace> Build() {
    // Every device needs its row of segments from the start, since marks concern all of them.
    for (const TraceEvent& event : trace_.events) {
      if (event.kind == EventKind::kAlloc) {
        Device& device = devices_[event.device];
        device.trace.device = event.device;
        device.trace.segments.resize(segmentation_.segments.size());
      }
    }
    for (std::uint64_t index = 0; index < trace_.events.size(); ++index) {
      Advance(index);
      Take(index, trace_.events[index]);
    }
    return Finish();
  }

 private:
  struct Device {
    DeviceTrace trace;
    std::uint64_t ticks = 0;
  };

  void Advance(std::uint64_t event) {
    const auto& segments = segmentation_.segments;
    while (segment_ + 1 < segments.size() && event >= segments[segment_ + 1].begin_event) {
      ++segment_;
      next_mark_ = 0;
    }
    const auto& fences = segmentation_.fences;
    while (fence_ < fences.size() && event >= fences[fence_].end_event) {
      ++fence_;
    }
    fenced_ = fence_ < fences.size() && event >= fences[fence_].begin_event;
  }

  void Take(std::uint64_t index, const TraceEvent& event) {
    switch (event.kind) {
      case EventKind::kAlloc:
        return TakeAllocation(index, event);
      case EventKind::kFree:
        return TakeFree(index, homes_[event.allocation]);
      case EventKind::kRecordStream: {
        Allocation& allocation = Get(homes_[event.allocation]);
        allocation.foreign_stream = allocation.foreign_stream || event.stream != allocation.stream;
        return;
      }
      case EventKind::kMark:
        return TakeMark(index, event);
      case EventKind::kHeld:
        if (const auto found = devices_.find(event.device); found != devices_.end()) {
          Bytes& peak = found->second.trace.held_peak_bytes;
          peak = std::max(peak, event.bytes);
        }
        return;
    }
  }

  void TakeAllocation(std::uint64_t index, const TraceEvent& event) {
    Device& device = devices_.at(event.device);
    auto& requests = device.trace.segments[segment_].allocations;
    Allocation allocation;
    allocation.event = index;
    allocation.requested = event.bytes;
    allocation.bytes = BlockBytes(event.bytes);
    allocation.stream = event.stream;
    allocation.thread = event.thread;
    allocation.flags = event.flags;
    allocation.fenced = fenced_;
    // The engine never sees what the runtime keeps from it (allocator/runtime), so a script must not expect it.
    allocation.outside = fenced_ || (event.flags & (kAllocCaptured | kAllocParallel)) != 0;
    allocation.segment = static_cast<std::uint32_t>(segment_);
    allocation.tick = device.ticks;
    const auto position = static_cast<std::uint32_t>(device.trace.allocations.size());
    if (!allocation.outside) {
      allocation.ordinal = static_cast<std::uint32_t>(requests.size());
      requests.push_back(position);
      ++device.ticks;
    }
    homes_[event.allocation] = {&device.trace, position};
    device.trace.allocations.push_back(allocation);
  }

  void TakeFree(std::uint64_t index, const Home& home) {
    Allocation& allocation = Get(home);
    Device& device = devices_.at(home.device->device);
    allocation.free_event = index;
    allocation.free_segment = static_cast<std::uint32_t>(segment_);
    allocation.free_ordinal = static_cast<std::uint32_t>(home.device->segments[segment_].allocations.size());
    allocation.free_tick = device.ticks;
    device.ticks += !fenced_ && !allocation.outside;
  }

  void TakeMark(std::uint64_t index, const TraceEvent& event) {
    const auto& marks = segmentation_.segments[segment_].marks;
    if (next_mark_ >= marks.size() || marks[next_mark_].event != index) {
      return;
    }
    ++next_mark_;
    for (auto& [ordinal, device] : devices_) {
      SegmentRequests& segment = device.trace.segments[segment_];
      segment.phases.push_back({trace_.marks[event.mark], static_cast<std::uint32_t>(segment.allocations.size())});
    }
  }

  std::vector<DeviceTrace> Finish() {
    std::vector<DeviceTrace> result;
    for (auto& [ordinal, device] : devices_) {
      for (const StreamInfo& stream : trace_.streams) {
        if (stream.device == ordinal) {
          device.trace.streams.push_back(stream);
        }
      }
      result.push_back(std::move(device.trace));
    }
    return result;
  }

  static Allocation& Get(const Home& home) { return home.device->allocations[home.index]; }

  const Trace& trace_;
  const Segmentation& segmentation_;
  std::map<DeviceIndex, Device> devices_;
  std::vector<Home> homes_;
  std::size_t segment_ = 0;
  std::size_t next_mark_ = 0;
  std::size_t fence_ = 0;
  bool fenced_ = false;
};

absl::Status BadEvent(std::uint64_t index, absl::string_view what, std::uint64_t value) {
  return absl::InvalidArgumentError(absl::StrCat("event ", index, " ", what, ": ", value));
}

}  // namespace

absl::Status CheckReferences(const Trace& trace) {
  enum class State : std::uint8_t { kUnknown, kLive, kFreed };
  std::vector<State> states(trace.allocations, State::kUnknown);
  for (std::uint64_t index = 0; index < trace.events.size(); ++index) {
    const TraceEvent& event = trace.events[index];
    if (event.kind == EventKind::kHeld) {
      continue;
    }
    if (event.kind == EventKind::kMark) {
      if (event.mark >= trace.marks.size()) {
        return BadEvent(index, "names a mark that the trace lacks", event.mark);
      }
      continue;
    }
    if (event.allocation >= states.size()) {
      return BadEvent(index, "names an allocation that the trace lacks", event.allocation);
    }
    State& state = states[event.allocation];
    if (event.kind == EventKind::kAlloc) {
      if (state != State::kUnknown) {
        return BadEvent(index, "repeats the allocation", event.allocation);
      }
      state = State::kLive;
    } else if (state != State::kLive) {
      return BadEvent(index, "concerns an allocation that is not alive", event.allocation);
    } else if (event.kind == EventKind::kFree) {
      state = State::kFreed;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DeviceTrace>> BuildLifetimes(const Trace& trace, const Segmentation& segmentation) {
  if (absl::Status status = CheckReferences(trace); !status.ok()) {
    return status;
  }
  return Builder(trace, segmentation).Build();
}

}  // namespace stalloc::planner
