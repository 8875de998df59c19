// Reads a plan file inside a training process: protozero only. What it returns has passed CheckPlanShape.
//
// Errors name the file, what was expected and what was found: missing file, another kind of file ("a stalloc trace"),
// unknown format version, truncation, checksum mismatch, malformed message, broken rule. No exception leaves it.
// Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "proto/model/plan.h"
#include "proto/model/result.h"

namespace stalloc {

[[nodiscard]] Result<Plan> ReadPlan(const std::string& path);

// `bytes` is a whole file; `name` stands for it in errors.
[[nodiscard]] Result<Plan> ParsePlan(std::string_view bytes, const std::string& name);

}  // namespace stalloc
