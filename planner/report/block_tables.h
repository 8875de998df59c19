// Blocks that are alike, counted together: those that are live at the peak, and those of the whole run. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/facts/block_facts.h"

namespace stalloc::planner {

// Live at the peak, alike in all of this.
struct PeakGroup {
  Bytes bytes = 0;  // of one
  BlockFact fact;
  std::uint32_t stream = 0;
  std::uint64_t count = 0;
  std::uint64_t first_request = 0;  // of its segment; the lowest
  std::uint32_t allocation = 0;     // index into DeviceTrace::allocations, of the first
};

struct PeakView {
  std::uint64_t event = 0;        // the allocation that makes the peak
  Bytes live_bytes = 0;           // = the sum over groups, and omitted_bytes
  std::vector<PeakGroup> groups;  // by bytes x count, falling
  Bytes omitted_bytes = 0;        // of groups beyond the limit
  std::uint64_t omitted_blocks = 0;
};

[[nodiscard]] PeakView GroupPeak(const DeviceFacts& facts, std::size_t most_groups);

// For the whole run: blocks of one size, class, layer, role (phase without its iteration) and stack.
struct RunGroup {
  Bytes bytes = 0;
  MemoryClass memory_class = MemoryClass::kOther;
  std::uint32_t role = 0;  // index into DeviceFacts::roles
  std::uint32_t layer = 0;
  std::uint32_t stack = 0;  // BlockFact::stack
  BlockNames::Row names;    // of the first named block; `count`: different first tensors of blocks, and others in these
  std::uint64_t count = 0;
  std::int64_t longest_ns = 0;
  double byte_seconds = 0;  // size x lifetime, of all together; to the end of the trace where no free is known
};

struct TopView {
  std::vector<RunGroup> groups;
  double all_byte_seconds = 0;  // of every block of the run
};

// The `most` largest groups by size, and those by size x lifetime; each once.
[[nodiscard]] TopView TopGroups(const DeviceFacts& facts, std::size_t most);

}  // namespace stalloc::planner
