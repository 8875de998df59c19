// PlanFit: does the plan hold more than the run needs, and than PyTorch's allocator would? Judged once an iteration,
// from its peaks.
//
// More is a fiftieth more, and `least` bytes, than what lived in the last iterations in which that was so: what is held
// for a larger iteration among them counts as needed. A plan whose slots are met holds what it has to: where that was
// a little more than lived, no more is expected of it.
// After some such iterations what has lain idle in all of them is to go back. Eight of them are a verdict, where the
// plan is the reason, not what the arena has grown by beyond it. Of those in which as much lived each time another plan
// would hold less; of others, whose sizes vary, that is not known.
//
// Not thread-safe. Bytes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "allocator/runtime/iteration_peaks.h"
#include "proto/model/units.h"

namespace stalloc {

class PlanFit {
 public:
  static constexpr int kVerdict = 8;  // iterations in a row

  // `least`: what is rounded up anyway, of chunks and segments.
  explicit PlanFit(Bytes least) : least_(least) {}

  // How far the run went as planned.
  enum class Course : std::uint8_t { kAsPlanned, kPartly, kNot };
  struct Iteration {
    IterationPeaks peaks;
    Course course = Course::kPartly;
    Bytes grown = 0;      // of what was held, beyond the plan, for a larger iteration
    double may_hold = 1;  // over what lives, as long as the run goes as planned: the card is free
    Bytes other = 0;      // what would be held without the plan; 0: not known
  };
  void OnIteration(const Iteration& iteration) noexcept {
    const IterationPeaks& peaks = iteration.peaks;
    const Bytes planned = peaks.held - std::min(peaks.held, iteration.grown);
    if (iteration.course == Course::kAsPlanned && peaks.live > 0) {
      const double needs = static_cast<double>(planned) / static_cast<double>(peaks.live);
      needs_ = std::clamp(needs_ == 0 ? needs : std::min(needs_, needs), 1.0, kMostNeeded);
    }
    const double needs = iteration.course == Course::kNot ? 1.0 : std::max(1.0, needs_);
    const double may_hold = iteration.course == Course::kNot ? 1.0 : std::max(needs, iteration.may_hold);
    Count(peaks.held, peaks.live, may_hold, &held_);
    Count(planned, peaks.live, needs, &planned_);
    Add(peaks.live, iteration.other != 0 && IsMore(peaks.held, iteration.other), &others_);
    if (fits()) trim_at_ = trim_after_;
  }

  [[nodiscard]] bool fits() const noexcept { return held_.length == 0; }
  // It has begun not to.
  [[nodiscard]] bool begins() const noexcept { return held_.length == 1; }
  [[nodiscard]] bool HoldsTooMuch() const noexcept { return planned_.length >= kVerdict; }
  [[nodiscard]] bool IsSteady() const noexcept { return planned_.IsSteady(); }
  [[nodiscard]] bool HoldsMoreThanOther() const noexcept { return others_.length >= kVerdict; }
  [[nodiscard]] bool HoldsMoreSteadily() const noexcept { return HoldsMoreThanOther() && others_.IsSteady(); }
  [[nodiscard]] bool HeldMoreThanOther() const noexcept { return others_.length > 0; }  // the last one
  // What has lain idle since it began, or since this said so last, is to go back now. Less and less often.
  [[nodiscard]] bool Trims() noexcept {
    if (fits() || held_.length < trim_at_) return false;
    trim_after_ = std::min(2 * trim_after_, kMostTrimAfter);
    trim_at_ = held_.length + trim_after_;
    return true;
  }

 private:
  static constexpr Bytes kPart = 50;
  static constexpr int kMostTrimAfter = 64;
  static constexpr double kMostNeeded = 1.125;  // of what lives: beyond that another plan is worth a try

  // Iterations in a row that held more than lived in any of them.
  struct Row {
    int length = 0;
    Bytes most_live = 0;
    Bytes least_live = 0;
    [[nodiscard]] bool IsSteady() const noexcept { return length > 0 && least_live >= most_live - most_live / kPart; }
  };

  // More than a fiftieth, and than what is rounded up.
  [[nodiscard]] bool IsMore(Bytes held, Bytes than) const noexcept {
    return held > than + std::max(than / kPart, least_);
  }
  void Count(Bytes held, Bytes live, double needs, Row* row) const noexcept {
    const Bytes most_live = row->length == 0 ? live : std::max(row->most_live, live);
    Add(live, IsMore(held, static_cast<Bytes>(static_cast<double>(most_live) * needs)), row);
  }
  static void Add(Bytes live, bool is_more, Row* row) noexcept {
    const bool is_first = row->length == 0;
    row->most_live = is_first ? live : std::max(row->most_live, live);
    row->least_live = is_first ? live : std::min(row->least_live, live);
    row->length = is_more ? row->length + 1 : 0;
  }

  const Bytes least_;
  double needs_ = 0;  // the least that was held over what lived, in an iteration as planned; 0: there was none
  Row held_;
  Row planned_;  // the same, without what the arena has grown by
  Row others_;   // that held more than would be held without the plan
  int trim_after_ = kVerdict / 2;
  int trim_at_ = trim_after_;
};

}  // namespace stalloc
