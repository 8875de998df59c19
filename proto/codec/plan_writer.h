// Writes plan files, on the planner's side (protobuf, Abseil). Thread-safe for different paths.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "proto/model/plan.h"

namespace stalloc {

// A whole file's bytes. Checks nothing.
[[nodiscard]] std::string EncodePlan(const Plan& plan);

// Checks the plan's shape, then writes under a temporary name next to `path`, syncs and renames: readers see the old
// file or the whole new one. Creates missing directories. On failure nothing is left live and an old file stays as it
// was.
[[nodiscard]] absl::Status WritePlanFile(const std::string& path, const Plan& plan);

}  // namespace stalloc
