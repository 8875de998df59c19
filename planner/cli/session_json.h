// Answers of a session about what-ifs, as JSON. Keys: planner/README.md. Bytes, nanoseconds.
#pragma once

#include <string>
#include <vector>

#include "planner/report/json_writer.h"
#include "planner/whatif/fit_search.h"
#include "planner/whatif/scaling.h"

namespace stalloc::planner {

// One object.
void WritePeak(const EditedPeak& peak, const DeviceFacts& facts, JsonWriter* json);

// Keys of the object that is open.
void WriteResult(const FitResult& found, const EditedPeak& untouched, const LayerUnits& units, JsonWriter* json);
void WriteLayers(const LayerUnits& units, JsonWriter* json);
void WriteCandidates(const std::vector<FitCandidate>& candidates, JsonWriter* json);
void WriteScaling(const std::vector<ScalingPoint>& points, JsonWriter* json);
void WriteGraphPools(const DeviceFacts& facts, JsonWriter* json);

}  // namespace stalloc::planner
