// Value types of a trace, as the recorder writes and the planner reads them. Meaning of the fields: proto/trace.proto.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/model/block_use.h"
#include "proto/model/units.h"

namespace stalloc {

struct Fingerprint {
  std::string torch_version;
  std::string device_name;
  Bytes device_bytes = 0;
  std::string driver_version;
  std::uint32_t world_size = 0;
  std::uint32_t rank = 0;
  std::uint32_t local_rank = 0;
  std::vector<std::string> command_line;
  std::string stalloc_version;
  std::string trace_mode;

  bool operator==(const Fingerprint&) const = default;
};

enum class EventKind : std::uint8_t { kAlloc = 1, kFree = 2, kRecordStream = 3, kMark = 4, kHeld = 5 };
enum class MarkKind : std::uint8_t {
  kInit = 1,
  kIteration = 2,
  kMicrobatch = 3,
  kOptimizer = 4,
  kLayer = 5,
  kFence = 6
};
// As texts and reports have it.
[[nodiscard]] constexpr const char* MarkKindName(MarkKind kind) noexcept {
  switch (kind) {
    case MarkKind::kInit:
      return "init";
    case MarkKind::kIteration:
      return "iteration";
    case MarkKind::kMicrobatch:
      return "microbatch";
    case MarkKind::kOptimizer:
      return "optimizer";
    case MarkKind::kLayer:
      return "layer";
    case MarkKind::kFence:
      return "fence";
  }
  return "?";
}
enum class MarkEdge : std::uint8_t { kBegin = 1, kEnd = 2 };
enum class Pass : std::uint8_t {
  kNone = 0,
  kForward = 1,
  kBackward = 2,
  kWeight = 3,
  kForwardBackward = 4,
  kOther = 5
};

// Mark::chunk of the end of a layer's forward pass: Trace::layer_inputs has all that the layer was called with. Caches:
// and what the layer has stored there for later calls it does not store if the model is configured so.
inline constexpr std::int32_t kLayerInputsTold = 1;
inline constexpr std::int32_t kLayerCachesTold = 2;

struct Mark {
  MarkKind kind = MarkKind::kInit;
  MarkEdge edge = MarkEdge::kBegin;
  Pass pass = Pass::kNone;
  std::int32_t chunk = 0;
  std::int32_t index = 0;
  std::string name;
  bool automatic = false;

  bool operator==(const Mark&) const = default;
};

// Layer marks around captures and launches of CUDA graphs: "CUDA graph 2 capture", "CUDA graph 2 replay". Graphs are
// numbered in the order in which the trace first has them. A run from a plan makes none, so they are no phases of it.
inline constexpr std::string_view kGraphMarkPrefix = "CUDA graph ";
inline constexpr std::string_view kCaptureMarkSuffix = " capture";
inline constexpr std::string_view kReplayMarkSuffix = " replay";
// "CUDA graph pool 3": the state of the pool of that PoolPlusOne may be set back from there on (cudagraph trees).
inline constexpr std::string_view kRestorablePoolPrefix = "CUDA graph pool ";
[[nodiscard]] inline bool IsGraphMark(const Mark& mark) {
  return mark.kind == MarkKind::kLayer && mark.name.starts_with(kGraphMarkPrefix);
}

// Bits of TraceEvent::flags (AllocFlags in trace.proto): what is never planned, nor part of a script.
inline constexpr std::uint32_t kAllocCaptured = 1;
inline constexpr std::uint32_t kAllocParallel = 2;
// What is planned like any other: requested by a forward pass that runs again inside a backward pass.
inline constexpr std::uint32_t kAllocRecomputed = 4;
// Above them, of what is captured: 1 + the ordinal of its pool; 0: not known.
inline constexpr std::uint32_t kAllocPoolShift = 8;
[[nodiscard]] constexpr std::uint32_t PoolPlusOne(std::uint32_t flags) noexcept { return flags >> kAllocPoolShift; }

// What a tensor is to the model that trains: TensorRole in trace.proto.
enum class TensorRole : std::uint8_t {
  kNone = 0,
  kParameter = 1,
  kGradient = 2,
  kOptimizerState = 3,
  kBuffer = 4,
  kInput = 5
};
// As texts and reports have it; of kNone it is empty.
[[nodiscard]] constexpr const char* TensorRoleName(TensorRole role) noexcept {
  switch (role) {
    case TensorRole::kNone:
      return "";
    case TensorRole::kParameter:
      return "parameter";
    case TensorRole::kGradient:
      return "gradient";
    case TensorRole::kOptimizerState:
      return "optimizer state";
    case TensorRole::kBuffer:
      return "buffer";
    case TensorRole::kInput:
      return "input";
  }
  return "?";
}

// A tensor whose name is known, in the block that it lies in.
struct NamedTensor {
  std::uint64_t allocation = 0;
  Offset offset = 0;       // from the block's begin
  Bytes bytes = 0;         // 0: not known
  std::uint32_t name = 0;  // index into Trace::texts
  TensorRole role = TensorRole::kNone;

  bool operator==(const NamedTensor&) const = default;
};

// A call of a Python stack; the stack is its chain of parents.
struct StackCall {
  std::uint32_t parent_plus_one = 0;  // index into Trace::calls, + 1; 0: the outermost
  std::uint32_t function = 0;         // index into Trace::texts
  std::uint32_t file = 0;             // the same
  std::uint32_t line = 0;

  bool operator==(const StackCall&) const = default;
};

struct StreamInfo {
  std::uint32_t ordinal = 0;
  DeviceIndex device = 0;
  StreamHandle handle = 0;

  bool operator==(const StreamInfo&) const = default;
};

// One row. Which fields mean something depends on `kind`: see EventKind in trace.proto.
struct TraceEvent {
  EventKind kind = EventKind::kAlloc;
  DeviceIndex device = 0;        // kAlloc, kHeld
  std::uint64_t allocation = 0;  // kAlloc (its own index), kFree, kRecordStream
  Bytes bytes = 0;               // kAlloc: as requested; kHeld
  std::uint32_t stream = 0;      // ordinal
  std::uint32_t thread = 0;      // ordinal
  std::uint32_t flags = 0;
  std::uint32_t mark = 0;            // kMark: index into Trace::marks
  std::uint32_t stack_plus_one = 0;  // kAlloc: index into Trace::calls, + 1; 0: none
  std::int64_t time_ns = 0;          // since the file's first event
  std::uint64_t address = 0;         // kAlloc with kAllocCaptured: where the block lies, a number; 0: not known

  bool operator==(const TraceEvent&) const = default;
};

struct Trace {
  Fingerprint fingerprint;
  std::vector<TraceEvent> events;
  std::vector<Mark> marks;
  std::vector<StreamInfo> streams;
  std::vector<std::string> texts;
  std::vector<NamedTensor> tensors;
  std::vector<StackCall> calls;
  std::vector<BlockUse> layer_inputs;  // operation: the layer
  std::uint64_t allocations = 0;
  std::uint64_t live_before = 0;  // the first ones, older than a trace that began late
  bool complete = false;          // false: the process was killed; the events are a valid prefix
  std::string truncation;         // when not complete: what the reader found, for the user
};

}  // namespace stalloc
