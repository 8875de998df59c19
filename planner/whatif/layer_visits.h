// The forward passes of layers, each with the backward pass that belongs to it. Pure.
//
// Within a micro-batch (within an iteration, without its marks) the last forward pass of a layer goes backward first,
// and all that came go before the next ones come. A layer with several outputs may be seen several times in one
// backward pass: these are one. Forward passes inside backward passes make activations anew, and are part of them.
// Where numbers do not agree, as after forward passes without gradients, the layer's passes in that micro-batch are
// left out.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/analysis/phase_map.h"
#include "planner/facts/layer_map.h"

namespace stalloc::planner {

inline constexpr std::int64_t kKeptUnknown = -1;

// Half-open ranges of events.
struct LayerVisit {
  std::uint32_t name = 0;  // index into LayerMap::names
  std::uint64_t forward_begin = 0;
  std::uint64_t forward_end = 0;
  std::uint64_t backward_begin = 0;
  std::uint64_t backward_end = 0;
  std::int64_t kept_bytes = kKeptUnknown;  // of its output, that its own backward pass keeps
  std::int32_t inputs = 0;                 // 0, kLayerInputsTold or kLayerCachesTold
};

// Ascending by forward_begin.
[[nodiscard]] std::vector<LayerVisit> FindLayerVisits(const LayerMap& layers, const PhaseMap& phases);

}  // namespace stalloc::planner
