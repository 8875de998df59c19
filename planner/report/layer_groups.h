// Layers, and kinds of layers, that are worth doing something about: those with the most bytes. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/model/plan.h"

namespace stalloc::planner {

struct LayerGroup {
  std::string layers;        // "blocks.3.mlp", or "blocks.*.mlp" of all that are called alike
  std::vector<bool> member;  // by index into the names; with what is inside them
};

// "blocks.3.mlp" -> "blocks.*.mlp".
[[nodiscard]] std::string LayerPattern(absl::string_view path);

// The `most_patterns` kinds and the `most_layers` single layers with most bytes. `bytes`: by index into `names`, which
// are LayerMap's; a layer has what is inside it. One that has all bytes is no choice and left out.
[[nodiscard]] std::vector<LayerGroup> FindLayerGroups(const std::vector<std::string>& names,
                                                      const std::map<std::uint32_t, Bytes>& bytes,
                                                      std::size_t most_patterns, std::size_t most_layers);

}  // namespace stalloc::planner
