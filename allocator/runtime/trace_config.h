// The texts of STALLOC_TRACE_STEPS and STALLOC_TRACE_RANKS. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace stalloc {

inline constexpr std::string_view kTraceStepsAllowed =
    "N (the first N iterations), FIRST:END (counted from 0, without END), FIRST: or manual (stalloc.trace.start)";
inline constexpr std::string_view kTraceRanksAllowed = "ranks and ranges of ranks, such as 0,3,8-15";

struct TraceSteps {
  std::uint64_t first = 0;
  std::optional<std::uint64_t> end;  // none: with the run, or when it is stopped
  bool manual = false;               // begins on request

  [[nodiscard]] bool waits() const noexcept { return manual || first > 0; }
};
// None: not what kTraceStepsAllowed says, or no iteration at all.
[[nodiscard]] std::optional<TraceSteps> ParseTraceSteps(std::string_view text);

// Whether `rank` is in the list; none: the text is no such list.
[[nodiscard]] std::optional<bool> ListsRank(std::string_view text, std::uint32_t rank);

}  // namespace stalloc
