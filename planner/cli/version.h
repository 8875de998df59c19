#pragma once

namespace stalloc::planner {

// The project's version, "0.1.0".
[[nodiscard]] const char* Version();

}  // namespace stalloc::planner
