// Writes a file whole or not at all. Planner's side. Thread-safe for different paths.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace stalloc {

// Creates missing directories; writes a temporary file in the same directory, syncs it, renames it to `path` and syncs
// the directory. On failure the temporary file is gone and `path` is as it was. Errors name the path, the step and the
// cause.
[[nodiscard]] absl::Status WriteWholeFile(const std::string& path, std::string_view bytes);

}  // namespace stalloc
