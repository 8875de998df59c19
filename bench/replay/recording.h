// A recorded run of one device, cut into its set-up and iterations, so that these can be put together anew.
//
//   recording   | set-up | iteration 0 | iteration 1 | iteration 2 | iteration 3 |
//   run (runs.h)| set-up | iteration 0 | iteration 3 |
//
// A block that an iteration leaves to a later one (the loss, a prefetched batch) has no free of its own in its piece
// but a LateFree: so many pieces later, in front of that piece's n-th request, whichever piece then stands there.
// Values only. Bytes are as requested.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model/trace.h"
#include "proto/model/units.h"

namespace stalloc::bench {

struct Block {
  Bytes requested = 0;
  std::uint32_t stream = 0;  // ordinal
  std::uint32_t flags = 0;   // AllocFlags
};

enum class StepKind : std::uint8_t { kAllocate, kFree, kUse, kMark };

// One thing that the program did. kUse: record_stream.
struct Step {
  StepKind kind = StepKind::kAllocate;
  std::uint32_t index = 0;   // of the block; kMark: of the mark
  std::uint32_t stream = 0;  // kUse: who uses it
};

struct LateFree {
  std::uint32_t block = 0;
  std::uint32_t pieces_later = 1;
  std::uint32_t before_request = 0;  // at the piece's end where it has fewer
};

struct Piece {
  std::vector<Block> blocks;  // in the order of their requests
  std::vector<Step> steps;
  std::vector<LateFree> late_frees;  // a block with neither a free nor a late one lives for ever
};

struct Recording {
  std::string name;
  DeviceIndex device = 0;
  std::vector<StreamInfo> streams;
  std::vector<Mark> marks;  // of all pieces but the begins of iterations
  bool automatic = false;   // those begins were seen by a hook
  Piece set_up = {};
  std::vector<Piece> iterations = {};
};

// The device of `trace` that served most bytes. What is left alive at the recording's end by the last iteration,
// and by the one before was freed later, is taken to be freed as there. Uses of a block in a later piece are dropped.
// InvalidArgument: no allocation, or fewer than two iterations.
[[nodiscard]] absl::StatusOr<Recording> CutRecording(const Trace& trace, const std::string& name);

// A trace file (*.trace); a recorded run as bench/corpus has them (*.txt.gz), whose evaluation is then fenced
// (edits.h); or synth/PRESET, four iterations of eight micro-batches with optimizer state (planner/synth). Errors name
// the file.
[[nodiscard]] absl::StatusOr<Recording> ReadRecording(const std::string& path);

}  // namespace stalloc::bench
