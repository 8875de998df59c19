// What a run would hold if layers were recomputed, or their activations offloaded: each kind of layers by itself, and
// those layers alone that have most at the peak (layer_units.h has the edit). Bytes. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "planner/facts/block_facts.h"

namespace stalloc::planner {

class EditPlayer;

struct Recomputation {
  std::string layers;      // "blocks.3.mlp", or "blocks.*.mlp" of all that are called alike
  Bytes at_peak = 0;       // of the blocks that are away, at the run's peak
  Bytes moved = 0;         // of the blocks that are away, all that were allocated in the peak's iteration
  Bytes peak = 0;          // of the whole run with the layers recomputed
  Bytes offload_peak = 0;  // if blocks go to the host instead: nothing is made anew, and inputs go with them
  bool at_least = false;   // it may save more: what is not known was taken for the worse
  // The forward pass leaves blocks that outlive the backward pass, as a cache of keys and values does: recomputed, it
  // may leave them once more.
  bool leaves = false;
};

// Those of which something is away at the run's peak: so many kinds of layers at most, then so many single layers,
// those with most first. `player`: of `facts`.
[[nodiscard]] std::vector<Recomputation> FindRecomputations(const DeviceFacts& facts, const EditPlayer& player,
                                                            std::size_t most_patterns, std::size_t most_layers);

}  // namespace stalloc::planner
