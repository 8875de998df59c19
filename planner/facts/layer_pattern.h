// What layers that are called alike have in common. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace stalloc::planner {

// "blocks.3.mlp" -> "blocks.*.mlp".
[[nodiscard]] std::string LayerPattern(absl::string_view path);

}  // namespace stalloc::planner
