// PeakCheck: whether what has just been laid down leaves holes at the peaks of a window that its short-lived blocks can
// fill. A necessary condition that costs next to nothing beside placing them all.
//
// Not thread-safe. Bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/packing/pipeline/ring_window.h"

namespace stalloc::planner {

class PeakCheck {
 public:
  PeakCheck(const RingWindow& window, Bytes bottom, Bytes ceiling);

  // False: at some peak the short blocks cannot fit, wherever they are put. REQUIRES: revolution.longs ascending where
  // they have a place, revolution.finished set.
  [[nodiscard]] bool MayFit(const Revolution& revolution);

 private:
  struct Peak {
    std::uint32_t position = 0;
    std::vector<RingWindow::Obstacle> obstacles;  // alive, lowest first
    std::vector<std::uint32_t> longs;             // alive, ascending
    std::vector<std::uint32_t> shorts;            // alive, greatest first
  };

  void FindPeaks();
  void Fill(Peak& peak) const;
  void FindHoles(const Peak& peak, const Revolution& revolution);
  [[nodiscard]] bool FitsAt(const Peak& peak, const Revolution& revolution);
  [[nodiscard]] bool FitsFrom(std::size_t next);

  const RingWindow& window_;
  const Bytes bottom_;
  const Bytes ceiling_;
  std::vector<Peak> peaks_;  // what failed last comes first
  std::vector<Bytes> holes_;
  std::vector<Bytes> sizes_;
};

}  // namespace stalloc::planner
