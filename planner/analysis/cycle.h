// The steady cycle: which traced iterations are warm-up, with what period the rest repeats, and which ones serve as
// template.
//
//   segment     0      1      2      3      4      5
//   iteration   -      0      1      2      3      4 (broken off)
//               set-up warm   |----- alike -----|  not compared
//                             template (period 1)
//
// Typical iterations are like the others: they request the same sizes, and leave no more live (lazy optimizer state,
// workspaces). Warm-up ends with the first typical ones. Later ones that are not typical (an evaluation without a
// fence, the end of an epoch) take no part in comparisons. Several optimizers per step repeat with a period of their
// number when marks come from optimizer steps.
//
// A run that captures its step requests little afterwards, and other things: then what comes before is warm-up, and the
// longest iteration after it is the template, of which others have parts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/analysis/lifetimes.h"

namespace stalloc::planner {

inline constexpr std::uint32_t kMaxPeriod = 4;

struct Cycle {
  std::uint32_t warmup = 0;    // leading iterations that have scripts of their own
  std::uint32_t period = 1;    // iterations [warmup, warmup + period) are the template
  std::uint32_t complete = 0;  // iterations [0, complete) ran to their end
  std::uint32_t traced = 0;    // complete, or one more
  std::vector<bool> typical;   // by iteration; the template is, one that was broken off is not
  // By iteration: so many of its requests, from its beginning, are compared; what comes after them is something else.
  std::vector<std::uint32_t> compared;
  std::vector<std::string> warnings;

  [[nodiscard]] bool broken_off() const { return complete < traced; }
  // Which script of the period an iteration is: also for warm-up iterations, counted backwards.
  [[nodiscard]] std::uint32_t ScriptOf(std::uint32_t iteration) const {
    return (iteration + period - warmup % period) % period;
  }
  // Iterations after this one that ran to their end.
  [[nodiscard]] std::uint32_t Followers(std::uint32_t iteration) const {
    return iteration + 1 < complete ? complete - 1 - iteration : 0;
  }
};

// `capturing`: so many leading iterations end with the last that captures what later ones launch (graph_captures.h).
// FailedPrecondition if there is no iteration to plan; the message says what to do.
[[nodiscard]] absl::StatusOr<Cycle> FindCycle(const DeviceTrace& device, const Segmentation& segmentation,
                                              bool trace_complete, std::uint32_t capturing = 0);

// The block is freed when nothing is requested any more, at the end of the process: as good as never.
[[nodiscard]] bool FreedAtExit(const DeviceTrace& device, const Allocation& allocation);

}  // namespace stalloc::planner
