#include "planner/packing/ring_window.h"

#include <algorithm>

namespace stalloc::planner {

std::uint32_t RingWindow::positions() const {
  std::uint32_t positions = 1;
  for (const Obstacle& obstacle : obstacles) positions = std::max(positions, obstacle.span.end);
  for (const Piece& piece : longs) positions = std::max(positions, piece.span.end);
  for (const Piece& piece : shorts) positions = std::max(positions, piece.span.end);
  return positions;
}

}  // namespace stalloc::planner
