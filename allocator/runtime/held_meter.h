// HeldMeter: the peaks of bytes held on the device by the arena and upstream together.
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
// exact Trace the arena changes between samples: the smaller of its two figures is counted, so the result is a lower
// bound there (never more than one mark's growth off). Not thread-safe: its owner locks. Bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "allocator/runtime/span.h"
#include "proto/model/units.h"

namespace stalloc {

class HeldMeter {
 public:
  // What upstream holds, and its own peaks: since its last reset, and in the iteration that runs (0: not known).
  struct Upstream {
    Bytes current = 0;
    Bytes peak = 0;
    Bytes iteration_peak = 0;
  };

  // `own`: the arena's bytes held now.
  void Sample(Bytes own, const Upstream& upstream) noexcept {
    if (!started_) {
      // What upstream held before own memory existed is no part of the sum.
      started_ = true;
      last_own_ = own;
      last_ = upstream;
    }
    const Bytes now = own + upstream.current;
    const auto sum = [&](Bytes peak, Bytes last_peak) {
      return peak != last_peak ? std::max(now, std::min(own, last_own_) + peak) : now;
    };
    const Bytes most = sum(upstream.peak, last_.peak);
    for (Bytes& peak : peaks_) peak = std::max(peak, most);
    Bytes& of_iteration = Of(Span::kIteration);
    of_iteration = std::max(of_iteration, sum(upstream.iteration_peak, last_.iteration_peak));
    run_upstream_peak_ = std::max(run_upstream_peak_, upstream.peak);
    last_own_ = own;
    last_ = upstream;
  }

  // The next peak of this span starts at what is held now. Sample first. Of kIteration: upstream's own begins anew.
  void Begin(Span span, Bytes own, const Upstream& upstream) noexcept {
    Of(span) = own + upstream.current;
    if (span == Span::kIteration) last_.iteration_peak = upstream.iteration_peak;
  }

  [[nodiscard]] Bytes PeakBytes(Span span) const noexcept { return peaks_[static_cast<std::size_t>(span)]; }
  [[nodiscard]] Bytes run_upstream_peak() const noexcept { return run_upstream_peak_; }

 private:
  [[nodiscard]] Bytes& Of(Span span) noexcept { return peaks_[static_cast<std::size_t>(span)]; }

  bool started_ = false;
  Bytes last_own_ = 0;
  Upstream last_;
  std::array<Bytes, static_cast<std::size_t>(Span::kCount)> peaks_{};
  Bytes run_upstream_peak_ = 0;
};

}  // namespace stalloc
