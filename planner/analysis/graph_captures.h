// Captures and launches of CUDA graphs as their marks show them, and what each captured block is to them. Three kinds,
// by where a block was requested and freed while graphs were captured:
//
//   captures   |--- A ---|     |--- B ---|
//   dead       +==-                           written by A's launch alone
//   carried         +===============-         from A's launch to B's, whatever is launched between
//   kept           +=======-                  freed between captures, or never, or requested outside of one: for good
//
// Neither: requested and freed outside of captures, with none in between (kEager). In a pool whose state may be set
// back (kRestorablePoolPrefix) tensors read what is carried without a block of their own: it is kept.
//
// What is not known is kept: a graph that was captured before the trace begins, or is captured by C++ code. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/analysis/lifetimes.h"
#include "planner/analysis/traced_rank.h"

namespace stalloc::planner {

struct GraphCapture {
  std::uint32_t number = 0;              // of the graph, in the order of first captures; captured again it has another
  std::uint64_t begin = 0;               // events
  std::uint64_t end = kNever;            // of its mark
  std::uint64_t last_end = kNever;       // of this one and all before it
  std::vector<std::uint32_t> requested;  // allocations, in order
  std::vector<std::uint32_t> freed;      // that other captures requested
};

struct GraphLaunch {
  std::uint64_t event = 0;
  std::uint32_t capture = 0;  // the last one of the launched graph
};

enum class CapturedKind : std::uint8_t { kEager, kDead, kCarried, kKept };

struct GraphCaptures {
  std::vector<GraphCapture> captures;  // in their order
  std::vector<GraphLaunch> launches;   // of these, in their order
  std::vector<CapturedKind> kinds;     // by allocation; empty where nothing was captured
};

[[nodiscard]] GraphCaptures FindGraphCaptures(const TracedRank& traced, const DeviceTrace& device);

// So many leading iterations end with the last one that captures a graph which a later one launches; 0: none does.
[[nodiscard]] std::uint32_t CapturingIterations(const GraphCaptures& found, const Segmentation& segmentation);

}  // namespace stalloc::planner
