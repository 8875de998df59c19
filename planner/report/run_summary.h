// All ranks of a run: one line each, as text or JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/analysis/rank_report.h"

namespace stalloc::planner {

struct RankOutcome {
  std::uint32_t rank = 0;
  std::optional<RankReport> report;  // absent if the trace could not be read or analysed
  std::string error;                 // empty: fine
  std::string plan_path;             // empty: none written
  double seconds = 0;                // with reading and writing
};

// "0-3, 7, 9-1021 by 4": ascending.
[[nodiscard]] std::string RanksText(const std::vector<std::uint32_t>& ranks);

// Above it, whether a plan is worth it, for the rank that needs most (worth_text.h).
// Columns: rank, device, requests per iteration, peak, arena, lower bound, ratio, predicted E, E when traced, seconds.
// A line below says which ranks are equal to one of the table.
[[nodiscard]] std::string SummaryTable(const std::vector<RankOutcome>& outcomes);

// {"ranks": [{"rank", "ok", "error", "plan", "seconds", "report": {...}}], "ok"}
[[nodiscard]] std::string SummaryJson(const std::vector<RankOutcome>& outcomes);

}  // namespace stalloc::planner
