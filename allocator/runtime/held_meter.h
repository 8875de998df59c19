// HeldMeter: the peak of bytes held on the device by own memory (arena, heap) and upstream together.
//
// Own memory changes rarely and at known moments; upstream changes at any time, but keeps a peak of its own. So:
//
//        own  -----------------+
//                              +---------------
//   upstream  --/\--/\-----/\-----/\--------
//     sample  ^          ^    ^^           ^
//
// While own memory stays as it is, the peak of the sum is own + the peak that upstream reached in that time. Upstream
// reached a new peak between two samples exactly when its peak figure changed between them; where it did not, an
// earlier sample has a sum at least as large, since the arena only shrinks. (Where chunks that went back under memory
// pressure are mapped again, it grows: from then on the result is a lower bound, exact at each sample.)
//
// With samples right before and after each change of the arena the result is exact for Trace fast and Alloc. Under
// exact Trace the heap moves between samples: the smaller of its two figures is counted, so the result is a lower bound
// there (never more than one mark's growth off). Not thread-safe: its owner locks. Bytes.
#pragma once

#include <algorithm>

#include "proto/model/units.h"

namespace stalloc {

class HeldMeter {
 public:
  // `own`: arena + heap bytes held now. `upstream`, `upstream_peak`: its current bytes and the peak since its last
  // reset.
  void Sample(Bytes own, Bytes upstream, Bytes upstream_peak) noexcept {
    if (!started_) {
      // What upstream held before own memory existed is no part of the sum.
      started_ = true;
      last_own_ = own;
      last_upstream_peak_ = upstream_peak;
    }
    Bytes sum = own + upstream;
    if (upstream_peak != last_upstream_peak_) sum = std::max(sum, std::min(own, last_own_) + upstream_peak);
    peak_ = std::max(peak_, sum);
    run_peak_ = std::max(run_peak_, sum);
    plan_peak_ = std::max(plan_peak_, sum);
    run_upstream_peak_ = std::max(run_upstream_peak_, upstream_peak);
    last_own_ = own;
    last_upstream_peak_ = upstream_peak;
  }

  // Starts a new peak at what is held now. Sample first.
  void ResetPeak(Bytes own, Bytes upstream) noexcept { peak_ = own + upstream; }

  // A plan is taken up now: plan_peak() counts from here on. Sample first.
  void BeginPlan(Bytes own, Bytes upstream) noexcept { plan_peak_ = own + upstream; }

  [[nodiscard]] Bytes peak() const noexcept { return peak_; }
  [[nodiscard]] Bytes plan_peak() const noexcept { return plan_peak_; }
  // Over all resets.
  [[nodiscard]] Bytes run_peak() const noexcept { return run_peak_; }
  [[nodiscard]] Bytes run_upstream_peak() const noexcept { return run_upstream_peak_; }

 private:
  bool started_ = false;
  Bytes last_own_ = 0;
  Bytes last_upstream_peak_ = 0;
  Bytes peak_ = 0;
  Bytes run_peak_ = 0;
  Bytes plan_peak_ = 0;
  Bytes run_upstream_peak_ = 0;
};

}  // namespace stalloc
