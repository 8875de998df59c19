// Parses the message of a plan (plan.proto) with protozero. Private to proto/codec.
#pragma once

#include <string_view>

#include "proto/model/plan.h"
#include "proto/model/result.h"

namespace stalloc {

// Unknown format version, unknown values and a malformed message are errors; unknown fields are skipped. Never throws
// anything but std::bad_alloc. Thread-safe.
[[nodiscard]] Result<Plan> ParsePlanMessage(std::string_view payload);

}  // namespace stalloc
