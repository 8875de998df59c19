// LateRooms: the addresses that iterations use late, or not at all.
//
// Note [What fences leave]
// Of a request in a fence nobody knows when its block will go. Most go with it, but some stay a while: what a pipeline
// received in an evaluation is freed when the next iteration receives. Where that iteration's slots come late they are
// in nobody's way. Elsewhere one block after the other would be driven out of its place.
//
//   address ^   |    ###########|     rooms[0]: what no slot uses in the first half of an iteration's requests,
//           |   |##  #####      |     rooms[1]: in the first quarter, and so on
//           |   |  ##        ###|
//           +------------------------> requests of an iteration
//
// Built when a plan is loaded, O(entries log entries); read-only and thread-safe afterwards. In granules of
// kBlockAlignment bytes.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "allocator/engine/idle_gaps.h"
#include "proto/model/plan.h"

namespace stalloc {

class LateRooms {
 public:
  static constexpr std::size_t kRooms = 6;

  // Of all iterations of the cycle; the arena's addresses end at `limit`.
  LateRooms(const DevicePlan& plan, std::uint32_t limit);

  // Calls use(window) for one after the other, what is used last first, until it says true. False: it never did.
  template <typename Use>
  bool Try(Use&& use) const {
    for (const std::vector<IdleGaps::Gap>& room : rooms_) {
      if (!room.empty() && use(IdleGaps::Window(room))) return true;
    }
    return false;
  }

 private:
  std::array<std::vector<IdleGaps::Gap>, kRooms> rooms_;
};

}  // namespace stalloc
