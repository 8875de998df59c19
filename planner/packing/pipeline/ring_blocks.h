// RingBlocks: what the blocks of an instance are to a ring: residents at the bottom, long-lived blocks in the order in
// which they end, and short-lived ones, which take what room is left.
//
// A value; thread-safe once made.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/packing/problem/instance.h"

namespace stalloc::planner {

// Shorter lives are not part of a ring: less than a layer's.
inline constexpr std::uint32_t kLeastRingSteps = 40;

enum class RingRole : std::uint8_t {
  kResident,  // persistent, or alive for a third of the time
  kLong,
  kShort,  // a life of less than `least_steps`, or a second one
};

[[nodiscard]] RingRole RoleInRing(const Instance& instance, BlockIndex block, std::uint32_t least_steps);

struct RingBlocks {
  std::vector<BlockIndex> residents;  // greatest first
  std::vector<BlockIndex> longs;      // by end
  std::vector<BlockIndex> shorts;     // greatest area first

  RingBlocks(const Instance& instance, std::uint32_t least_steps);
};

}  // namespace stalloc::planner
