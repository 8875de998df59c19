#include "planner/analysis/equal_ranks.h"

#include <algorithm>
#include <cstddef>

#include "planner/analysis/lendable_pools.h"

namespace stalloc::planner {
namespace {

void AddHead(const Trace& head, ContentHash* hash) {
  hash->Add(head.complete ? 1 : 0);
  hash->Add(head.truncation);
  hash->Add(head.live_before);
  hash->Add(head.marks.size());
  for (const Mark& mark : head.marks) {
    hash->AddPair(static_cast<std::uint64_t>(mark.kind) << 8 | static_cast<std::uint64_t>(mark.edge) << 4 |
                      static_cast<std::uint64_t>(mark.pass),
                  mark.automatic ? 1 : 0);
    hash->AddPair(static_cast<std::uint32_t>(mark.chunk), static_cast<std::uint32_t>(mark.index));
    hash->Add(mark.name);
  }
  hash->Add(head.texts.size());
  for (const std::string& text : head.texts) hash->Add(text);
  hash->Add(head.calls.size());
  for (const StackCall& call : head.calls) {
    hash->AddPair(call.parent_plus_one, call.function);
    hash->AddPair(call.file, call.line);
  }
}

void AddSegments(const Segmentation& segmentation, ContentHash* hash) {
  hash->Add(segmentation.segments.size());
  for (const Segment& segment : segmentation.segments) {
    hash->Add(segment.begin_event);
    hash->Add(segment.end_event);
    hash->AddPair(static_cast<std::uint32_t>(segment.index), segment.ended ? 1 : 0);
    hash->Add(segment.marks.size());
    for (const SegmentMark& mark : segment.marks) {
      hash->Add(mark.event);
      hash->Add(mark.mark);
    }
  }
  hash->Add(segmentation.graph_marks.size());
  for (const SegmentMark& mark : segmentation.graph_marks) {
    hash->Add(mark.event);
    hash->Add(mark.mark);
  }
  hash->Add(segmentation.fences.size());
  for (const FenceRange& fence : segmentation.fences) {
    hash->Add(fence.begin_event);
    hash->Add(fence.end_event);
  }
}

void AddAllocation(const Allocation& allocation, ContentHash* hash) {
  hash->Add(allocation.bytes);
  hash->AddPair(allocation.event, allocation.free_event);
  hash->AddPair(allocation.segment, allocation.ordinal);
  hash->AddPair(allocation.free_segment, allocation.free_ordinal);
  const auto bits = static_cast<unsigned>(allocation.foreign_stream) << 5 |
                    static_cast<unsigned>(allocation.fenced) << 4 | static_cast<unsigned>(allocation.outside) << 3 |
                    static_cast<unsigned>(allocation.role);
  hash->AddPair(allocation.stream,
                std::uint64_t{allocation.padding} << 16 | std::uint64_t{allocation.flags} << 8 | bits);
}

void AddNumbers(const std::vector<std::uint32_t>& numbers, ContentHash* hash) {
  hash->Add(numbers.size());
  for (const std::uint32_t number : numbers) hash->Add(number);
}

void AddDevice(const DeviceTrace& device, ContentHash* hash) {
  hash->Add(device.device == kCpuDevice ? 1 : 0);
  hash->Add(device.held_peak_bytes);
  hash->Add(device.streams.size());
  // Default streams have handles of their own, and mean something; those of others are addresses.
  constexpr StreamHandle kLastDefault = 2;
  for (const StreamInfo& stream : device.streams) {
    hash->AddPair(stream.ordinal, std::min(stream.handle, kLastDefault + 1));
  }
  hash->Add(device.allocations.size());
  for (const Allocation& allocation : device.allocations) AddAllocation(allocation, hash);
  hash->Add(device.segments.size());
  for (const SegmentRequests& segment : device.segments) AddNumbers(segment.allocations, hash);
  AddNumbers(device.stacks, hash);
  AddNumbers(device.pools, hash);
  for (const auto& [number, pool] : FindTracedPools(device)) {
    hash->Add(number);
    hash->Add(pool.layout.hash());
  }
  hash->Add(device.tensors.size());
  for (const BlockTensor& tensor : device.tensors) {
    hash->AddPair(tensor.allocation, tensor.name);
    hash->Add(tensor.offset);
    hash->Add(static_cast<std::uint64_t>(tensor.role));
  }
}

// The rank's own stream of that ordinal.
void Rename(StreamInfo* stream, const RankIdentity::Device& device) {
  const auto is_same = [&](const StreamInfo& other) { return other.ordinal == stream->ordinal; };
  const auto found = std::find_if(device.streams.begin(), device.streams.end(), is_same);
  if (found != device.streams.end()) *stream = *found;
}

}  // namespace

TraceKey KeyOfTrace(const TracedRank& traced) {
  ContentHash hash;
  AddHead(traced.head, &hash);
  hash.Add(traced.events);
  AddSegments(traced.segmentation, &hash);
  hash.Add(traced.devices.size());
  for (const DeviceTrace& device : traced.devices) AddDevice(device, &hash);
  return hash.value();
}

RankIdentity IdentityOf(const TracedRank& traced) {
  RankIdentity identity{traced.head.fingerprint, {}};
  for (const DeviceTrace& device : traced.devices) identity.devices.push_back({device.device, device.streams});
  return identity;
}

RankResult ResultOfEqual(const RankResult& result, const RankIdentity& from, const RankIdentity& to) {
  RankResult own = result;
  own.report.fingerprint = to.fingerprint;
  own.report.seconds = 0;
  for (std::size_t i = 0; i < own.report.devices.size(); ++i) {
    own.report.devices[i].device = to.devices[i].device;
    for (StreamReport& stream : own.report.devices[i].streams) Rename(&stream.stream, to.devices[i]);
  }
  if (!own.plan.has_value()) return own;
  own.plan->fingerprint = to.fingerprint;
  for (DevicePlan& plan : own.plan->devices) {
    const auto is_its = [&](const RankIdentity::Device& device) { return device.device == plan.device; };
    const auto found = std::find_if(from.devices.begin(), from.devices.end(), is_its);
    const RankIdentity::Device& device = to.devices[static_cast<std::size_t>(found - from.devices.begin())];
    plan.device = device.device;
    for (StreamInfo& stream : plan.streams) Rename(&stream, device);
  }
  return own;
}

}  // namespace stalloc::planner
