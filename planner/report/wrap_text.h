// Breaks text into lines for a terminal or a report.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stalloc::planner {

inline constexpr std::size_t kReportWidth = 100;

// At blanks, into lines of at most kReportWidth bytes, those after the first indented by two; each ends with a newline.
// A word that is longer than a line stays whole.
[[nodiscard]] std::string WrapText(std::string_view text);

}  // namespace stalloc::planner
