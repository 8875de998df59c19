// Runs: pieces of a recording one after the other, as the allocator sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/replay/recording.h"
#include "proto/model/trace.h"
#include "proto/model/units.h"

namespace stalloc::bench {

enum class MarkStyle : std::uint8_t {
  kRecorded,  // each iteration begins with a mark; marks inside are those recorded
  // As a script has them that knows nothing of stalloc: one automatic mark after each optimizer step, and no other. The
  // first iteration then belongs to the set-up, unless the recording's marks were of this kind already.
  kOptimizerStepsOnly,
};

struct ComposedRun {
  DeviceIndex device = 0;
  std::vector<StreamInfo> streams;
  std::vector<Mark> marks;
  std::vector<Block> blocks;
  std::vector<Step> steps;         // indices into the two above
  std::vector<std::size_t> begin;  // of each iteration in `steps`, its mark included
  std::size_t unmarked = 0;        // so many iterations, the first ones, belong to the set-up

  // One past the last step of an iteration.
  [[nodiscard]] std::size_t end(std::size_t iteration) const {
    return iteration + 1 < begin.size() ? begin[iteration + 1] : steps.size();
  }
};

// The set-up, then `iterations` in this order. Iterations are numbered anew.
[[nodiscard]] ComposedRun ComposeRun(const Recording& recording, const std::vector<const Piece*>& iterations,
                                     MarkStyle style);

// As it would have been traced. With kOptimizerStepsOnly the last iteration, too, is followed by its mark.
[[nodiscard]] Trace TraceOf(const ComposedRun& run, MarkStyle style);

// Of live bytes, each block rounded up as PyTorch does, over steps [from, to) (blocks from before count).
[[nodiscard]] Bytes PeakLiveBytes(const ComposedRun& run, std::size_t from, std::size_t to);

}  // namespace stalloc::bench
