// Reads a trace file chunk by chunk into what the analysis keeps of it; no more than one chunk of events is in memory.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "planner/analysis/traced_rank.h"
#include "proto/codec/trace_reader.h"

namespace stalloc::planner {

// Errors name the file. `progress` may be empty.
[[nodiscard]] absl::StatusOr<TracedRank> ReadTracedRank(const std::string& path, const ReadProgress& progress = {});

}  // namespace stalloc::planner
