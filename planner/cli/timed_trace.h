// Reads a trace with the times of its events, and the second one that --beside names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/analysis/traced_rank.h"
#include "planner/facts/block_facts.h"
#include "proto/model/block_use.h"

namespace stalloc::planner {

// A trace, when its events happened, and what used its blocks.
struct TimedTrace {
  TracedRank traced;
  TraceClock clock;
  std::vector<BlockUse> uses;
};

// Errors name the file.
[[nodiscard]] absl::StatusOr<TimedTrace> ReadTimedTrace(const std::string& path);

// The trace of --beside; nullopt where that is not given.
[[nodiscard]] absl::StatusOr<std::optional<TimedTrace>> ReadBeside();

// What is wrong with --beside and --ratio; empty: nothing.
[[nodiscard]] std::string WrongBeside();

}  // namespace stalloc::planner
