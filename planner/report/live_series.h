// Live bytes over a run as a curve of bounded size: of each of many equal stretches of events its least and its
// greatest moment, so that no peak is lost however long the run is. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/facts/block_facts.h"

namespace stalloc::planner {

struct LivePoint {
  std::uint64_t event = 0;  // the state holds from this event on
  Bytes live = 0;           // = the sum of by_class
  BytesByClass by_class{};
};

// For events [begin, end), in at most 2 x `stretches` points, ascending; the first is the state at `begin`.
// REQUIRES: stretches > 0.
[[nodiscard]] std::vector<LivePoint> SampleLive(const DeviceFacts& facts, std::uint64_t begin, std::uint64_t end,
                                                std::size_t stretches);

struct HeldPoint {
  std::uint64_t event = 0;
  Bytes held = 0;
};

// What the allocator below held on the device, in at most `most` points; the greatest of each stretch of changes.
[[nodiscard]] std::vector<HeldPoint> SampleHeld(const DeviceFacts& facts, std::size_t most);

}  // namespace stalloc::planner
