// Reads a trace file chunk by chunk into what the analysis keeps of it; no more than one chunk of events is in memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/analysis/traced_rank.h"
#include "proto/codec/trace_reader.h"

namespace stalloc::planner {

// Called with the events and uses of each chunk, and with all marks and streams so far.
using ChunkObserver = std::function<void(const Trace&, const std::vector<BlockUse>& uses)>;

// Errors name the file. `progress` and `observer` may be empty.
[[nodiscard]] absl::StatusOr<TracedRank> ReadTracedRank(const std::string& path, const ReadProgress& progress = {},
                                                        const ChunkObserver& observer = {});

}  // namespace stalloc::planner
