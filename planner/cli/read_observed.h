// Reads what runs in Alloc mode saw of one rank's plan.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/model/observed.h"

namespace stalloc::planner {

// NotFound if there is no such file, with what to do; InvalidArgument if it is malformed, naming the line.
[[nodiscard]] absl::StatusOr<Observed> ReadObserved(const std::string& path);

}  // namespace stalloc::planner
