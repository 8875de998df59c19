// Lifetimes: every allocation of one device with its place among the requests of its segment, and where it ends.
//
// Time is counted in requests of the same device outside of fences: a block that is freed between request k and request
// k + 1 of a segment ends at ordinal k + 1, for it can share bytes with request k + 1 and not with request k. Frees
// among each other need no order. Bytes are requested sizes rounded up to kBlockAlignment.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/analysis/segments.h"
#include "proto/model/plan.h"
#include "proto/model/trace.h"

namespace stalloc::planner {

inline constexpr std::uint32_t kNone = 0xffffffffu;
inline constexpr std::uint32_t kNever = 0xffffffffu;

// Packed: there is one for every two events of a trace, and they are most of what the analysis keeps.
struct Allocation {
  Bytes bytes = 0;          // rounded up
  std::uint32_t event = 0;  // index into Trace::events
  std::uint32_t free_event = kNever;
  std::uint32_t segment = 0;
  std::uint32_t ordinal = kNone;            // among the requests of its segment; kNone if outside
  std::uint32_t free_segment = kNone;       // kNone: never freed
  std::uint32_t free_ordinal = 0;           // of the first request of free_segment after the free
  std::uint32_t stream = 0;                 // ordinal
  std::uint16_t padding = 0;                // bytes - requested
  std::uint8_t flags = 0;                   // AllocFlags
  bool foreign_stream : 1 = false;          // recorded on a stream other than its own
  bool fenced : 1 = false;                  // allocated inside a fence
  bool outside : 1 = false;                 // no part of a script: fenced, captured, or from a parallel region
  TensorRole role : 3 = TensorRole::kNone;  // of the first named tensor inside

  [[nodiscard]] bool freed() const { return free_event != kNever; }
  [[nodiscard]] Bytes requested() const { return bytes - padding; }
};
static_assert(sizeof(Allocation) == 40);

struct SegmentRequests {
  std::vector<std::uint32_t> allocations;  // indices into DeviceTrace::allocations, in order
  std::vector<Phase> phases;
};

// A tensor with a name, in a block.
struct BlockTensor {
  std::uint32_t allocation = 0;  // index into DeviceTrace::allocations
  std::uint32_t name = 0;        // index into Trace::texts
  Offset offset = 0;             // from the block's begin
  TensorRole role = TensorRole::kNone;
};

// A block that a layer was called with.
struct LayerInput {
  std::uint32_t allocation = 0;  // index into DeviceTrace::allocations
  std::uint32_t layer = 0;       // index into Trace::texts
  std::uint64_t event = 0;       // so many came before: the next of the layer's ends is the call's
};

// Where a captured block lay: a number.
struct BlockAddress {
  std::uint32_t allocation = 0;  // index into DeviceTrace::allocations
  std::uint64_t address = 0;
};

struct DeviceTrace {
  DeviceIndex device = 0;
  std::vector<Allocation> allocations;    // in order of allocation
  std::vector<std::uint32_t> frees;       // indices of those that are freed, in order of their frees
  std::vector<SegmentRequests> segments;  // parallel to Segmentation::segments
  std::vector<StreamInfo> streams;        // of this device
  std::vector<std::uint32_t> stacks;      // by allocation, as TraceEvent::stack_plus_one; those after its end: 0
  std::vector<std::uint32_t> pools;       // likewise: PoolPlusOne of its flags
  std::vector<BlockAddress> addresses;    // of captured allocations, where they are known; ascending by allocation
  std::vector<BlockTensor> tensors;       // ascending by allocation, then by offset
  std::vector<LayerInput> layer_inputs;   // in the order of the trace
  Bytes held_peak_bytes = 0;              // what was held when traced; 0: not recorded, or exact

  // PoolPlusOne of an allocation; 0: not known, or not captured.
  [[nodiscard]] std::uint32_t PoolOf(std::uint32_t allocation) const {
    return allocation < pools.size() ? pools[allocation] : 0;
  }
  // For a captured allocation; 0: not known.
  [[nodiscard]] std::uint64_t AddressOf(std::uint32_t allocation) const {
    const auto found = std::ranges::lower_bound(addresses, allocation, {}, &BlockAddress::allocation);
    return found != addresses.end() && found->allocation == allocation ? found->address : 0;
  }
  [[nodiscard]] const Allocation& Request(std::uint32_t segment, std::uint32_t ordinal) const {
    return allocations[segments[segment].allocations[ordinal]];
  }
};

// Builds lifetimes while the trace is read, so that its events need not be kept. Memory: an Allocation and 12 bytes for
// each allocation so far. Not thread-safe.
class LifetimeBuilder {
 public:
  // Memory for so many events in all is requested at once; a hint.
  void Expect(std::uint64_t events);

  // Takes what `trace` holds as the next events of the file; they may be dropped afterwards, the marks not.
  // InvalidArgument if an event names a mark or allocation that does not exist or is freed already; ResourceExhausted
  // beyond 2^32 - 2 events.
  [[nodiscard]] absl::Status Take(const Trace& trace);

  [[nodiscard]] std::uint64_t events() const { return events_; }

  struct Lifetimes {
    Segmentation segmentation;
    std::vector<DeviceTrace> devices;  // those that have an allocation, ascending
  };
  // For `head` streams, named tensors and inputs of layers are looked at.
  [[nodiscard]] Lifetimes Finish(const Trace& head);

 private:
  struct Device {
    DeviceTrace trace;
    std::uint32_t ticks = 0;
  };
  // Where an allocation of the file went: its device and its index there.
  struct Home {
    std::int32_t device = 0;
    std::uint32_t index = 0;
  };

  [[nodiscard]] std::size_t segment() const { return cutter_.so_far().segments.size() - 1; }
  [[nodiscard]] absl::Status TakeEvent(const TraceEvent& event, const std::vector<Mark>& marks);
  [[nodiscard]] absl::Status TakeAllocation(const TraceEvent& event, const std::vector<Mark>& marks);
  void TakeFree(std::uint32_t index, Device& device);
  [[nodiscard]] absl::Status TakeUse(const TraceEvent& event);
  [[nodiscard]] absl::Status TakeMark(const TraceEvent& event, const std::vector<Mark>& marks);
  void TakeTensors(const std::vector<NamedTensor>& tensors);
  void TakeInputs(const std::vector<BlockUse>& inputs);
  Device& OpenDevice(DeviceIndex device, const std::vector<Mark>& marks);
  [[nodiscard]] absl::Status BadEvent(const char* what, std::uint64_t value) const;

  SegmentCutter cutter_;
  std::map<DeviceIndex, Device> devices_;
  std::map<DeviceIndex, Bytes> held_peaks_;
  std::vector<Home> homes_;  // by allocation of the file
  std::uint64_t expected_allocations_ = 0;
  std::uint64_t events_ = 0;
};

// One entry per device that has an allocation, ascending by device; errors as LifetimeBuilder::Take.
[[nodiscard]] absl::StatusOr<std::vector<DeviceTrace>> BuildLifetimes(const Trace& trace);

}  // namespace stalloc::planner
