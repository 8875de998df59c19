// Where in its training loop a run is at each event: the phases between the marks of micro-batches and optimizers.
//
//   marks   I     F       F-end  B       B-end   O         O-end            I
//   phase   |between|forward|btw.|backward|between|optimizer|after the optimizer|
//
// An optimizer mark without an end, as older traces have it, lasts until the iteration ends. Where there is none, what
// follows the end of the last micro-batch is taken for the optimizer's part. An iteration without micro-batch marks is
// unmarked up to its optimizer. Pure; layer marks play no part.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/analysis/lifetimes.h"

namespace stalloc::planner {

enum class PhaseKind : std::uint8_t {
  kSetUp,
  kUnmarked,
  kForward,
  kBackward,         // or its weight half
  kForwardBackward,  // one mark for both
  kBetween,
  kOptimizer,
  kAfterOptimizer,
  kFence
};

struct PhaseSpan {
  std::uint64_t begin_event = 0;
  PhaseKind kind = PhaseKind::kSetUp;
  std::uint32_t segment = 0;
  std::string name;  // "iter 3, F 0 chunk 1"
};

class PhaseMap {
 public:
  PhaseMap(const Segmentation& segmentation, const std::vector<Mark>& marks);

  [[nodiscard]] const std::vector<PhaseSpan>& spans() const { return spans_; }  // ascending, never empty
  // Index of the span that holds the event.
  [[nodiscard]] std::size_t At(std::uint64_t event) const;
  // First event of the optimizer's part of the segment at or after `event`; kNever if there is none.
  [[nodiscard]] std::uint64_t OptimizerAfter(std::uint64_t event) const;
  // Where the first pass after the event's own phase begins, of an iteration without marks of passes where it does
  // itself; kNever if there is none.
  [[nodiscard]] std::uint64_t PassAfter(std::uint64_t event) const;
  // A pass of the same iteration lies before this span, and no optimizer's step in between.
  [[nodiscard]] bool IsBehindPass(std::size_t span) const;
  [[nodiscard]] bool knows_microbatches() const { return knows_microbatches_; }
  [[nodiscard]] bool knows_optimizer() const { return knows_optimizer_; }

 private:
  friend class PhaseMapper;
  std::vector<PhaseSpan> spans_;
  bool knows_microbatches_ = false;
  bool knows_optimizer_ = false;
};

}  // namespace stalloc::planner
