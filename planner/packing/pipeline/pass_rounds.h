// PassRounds: a pipeline's steady state out of an instance: which long-lived blocks belong to which pass (what a
// chunk's forward pass keeps for its backward pass), and in which round each pass is freed.
//
// In the steady state forward and backward passes take turns, so the load of long-lived blocks goes up and down; a
// round is what lies between two of its peaks. Blocks that begin in the same round and end in the same round are a
// pass. At a round's own peak, in the backward pass, temporaries take the place of what was freed just before. Those of
// another size than what was freed need it together with room that is free all the time: what was freed then is the
// pass's critical piece. Where two such temporaries are alive at once, what was freed then is two pieces: the critical
// one adjoins the room, early enough for the first temporary; the *late* one holds the other, and adjoins the room that
// its pass's place has just lost when the pass comes, for its last tensors are still missing while a temporary of that
// size is alive. Pure functions. Bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/packing/problem/instance.h"

namespace stalloc::planner {

struct Pass {
  std::vector<BlockIndex> critical = {};
  std::vector<BlockIndex> late = {};  // from the room on; in all passes or in none
  std::vector<BlockIndex> body = {};
  std::uint32_t begin = 0;  // position of its first block's begin
  std::uint32_t end = 0;    // of its last block's end
};

// One iteration. Passes are as large as each other, critical pieces too: what some passes have more is left out.
struct PassRounds {
  std::uint32_t rounds = 0;
  std::uint32_t in_flight = 0;       // passes alive at a peak: rounds + in_flight - 1 passes in all
  std::vector<Pass> passes;          // by begin; the first `in_flight` before the first peak, then one a round
  std::vector<std::uint32_t> freed;  // indices of passes, by end: of each round, then what remains
  Bytes unit = 0;                    // divides all sizes of passes
  Bytes alignment = 1;               // of what is in passes; divides the unit
  Bytes pass_bytes = 0;
  Bytes critical_bytes = 0;
  Bytes late_bytes = 0;
  Bytes room_bytes = 0;  // what the critical piece lacks for its temporary, or somewhat more

  // False where passes end in the order in which they began.
  [[nodiscard]] bool interleaved() const;
};

// Shorter lives are temporaries: less than a layer's.
inline constexpr std::uint32_t kLeastPassSteps = 40;

// Persistent, or alive for a third of the time.
[[nodiscard]] bool IsOutsidePasses(const Instance& instance, const Item& item);

// Of each iteration that is of the kind. Blocks that live for fewer steps are temporaries.
[[nodiscard]] std::vector<PassRounds> FindPassRounds(const Instance& instance, std::uint32_t least_steps);

}  // namespace stalloc::planner
