// The peak of a traced run, and what is live at it. One sweep over the device's events. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/analysis/lifetimes.h"
#include "planner/analysis/phase_map.h"
#include "planner/analysis/rank_report.h"

namespace stalloc::planner {

// Classes come from `model`; without one every block is kUnmatched, fenced or persistent, and none is dynamic.
[[nodiscard]] PeakReport FindPeak(const DeviceTrace& device, const SteadyModel* model, const PhaseMap& phases);

// Requests, bytes and peak of every segment (stability is left open).
[[nodiscard]] std::vector<SegmentReport> SummarizeSegments(const DeviceTrace& device, const Segmentation& segmentation);

[[nodiscard]] std::vector<StreamReport> SummarizeStreams(const DeviceTrace& device);

// What is live where each phase begins, and the peak inside it. Fences are phases of their own.
[[nodiscard]] std::vector<PhaseReport> SummarizePhases(const DeviceTrace& device, const PhaseMap& phases);

}  // namespace stalloc::planner
