// The file that a run in Alloc mode writes next to its plan, as text: see proto/FORMAT.md. For the training process and
// for the planner: standard library alone. Stateless; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "proto/model/observed.h"
#include "proto/model/result.h"

namespace stalloc {

[[nodiscard]] std::string EncodeObserved(const Observed& observed);

// The error names the line, what is expected there and what is found.
[[nodiscard]] Result<Observed> DecodeObserved(std::string_view text);

}  // namespace stalloc
