// What a run would hold if layers were recomputed, each by itself, as torch.utils.checkpoint does without re-entrance:
// what a layer's forward pass made and its own backward pass frees is gone between the two, and made anew, all of it,
// where the backward pass begins. Bytes. Pure.
//
//   layer         forward ]...... away ......[ all made anew, then freed as it was
//   its output    stays, where a later layer needs it
//   its input     stays up to the backward pass, where it went before
//
// What a forward pass makes and frees itself comes again, too, up to the last block that stays for the backward pass:
// there a checkpoint stops. The forward pass itself is taken to hold what it did.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/report/block_facts.h"
#include "planner/report/layer_visits.h"

namespace stalloc::planner {

struct Recomputation {
  std::string layers;      // "blocks.3.mlp", or "blocks.*.mlp" of all that are called alike
  Bytes at_peak = 0;       // of the blocks that are away, at the run's peak
  Bytes moved = 0;         // of the blocks that are away, all that were allocated in the peak's iteration
  Bytes peak = 0;          // of the whole run with the layers recomputed
  Bytes offload_peak = 0;  // if blocks go to the host instead: nothing is made anew, and inputs go with them
  bool at_least = false;   // it may save more: what is not known was taken for the worse
  // The forward pass leaves blocks that outlive the backward pass, as a cache of keys and values does: recomputed, it
  // would leave them twice. Counted as they were; without them, more is saved.
  bool leaves = false;
};

// Those of layers that hold something away from the peak: the `most_patterns` kinds and `most_layers` single layers
// that hold most there. `peak_event`: the allocation that makes the run's peak.
[[nodiscard]] std::vector<Recomputation> FindRecomputations(const DeviceFacts& facts, std::uint64_t peak_event,
                                                            std::size_t most_patterns, std::size_t most_layers);

}  // namespace stalloc::planner
