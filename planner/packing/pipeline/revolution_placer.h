// RevolutionPlacer: places one revolution of a ring in its window, begun and closed in a given way.
//
// Long blocks lie each above the one before, so that only those of earlier revolutions are in their way: where they go
// is found once for all closures that begin at one place. Short blocks follow by area, lowest fit, and only if the
// holes of the peaks can hold them at all. Not thread-safe. Bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "planner/packing/pipeline/peak_check.h"
#include "planner/packing/pipeline/ring_window.h"
#include "planner/packing/search/fit_tree.h"

namespace stalloc::planner {

class RevolutionPlacer {
 public:
  RevolutionPlacer(Bytes bottom, Bytes ceiling) : bottom_(bottom), ceiling_(ceiling) {}

  // None if a block would end above the ceiling, or if the revolution would lay down next to nothing. A window is known
  // by its address: it must outlive the placer.
  [[nodiscard]] std::optional<Revolution> Place(const RingWindow& window, const RingClosure& closure);

  // Blocks looked at so far, for limits that do not depend on the machine.
  [[nodiscard]] std::uint64_t work() const { return work_; }

 private:
  // Offsets of the first long blocks, as many as lie below the ceiling.
  using Run = std::vector<Offset>;

  void Enter(const RingWindow& window);
  void Clear(FitTree& tree);
  const Run& RunFrom(Bytes shift);
  [[nodiscard]] Bytes BytesOf(const Run& run) const;
  [[nodiscard]] std::optional<Revolution> PlaceLongs(const RingClosure& closure);
  void Fill(std::size_t turn, Revolution& revolution);
  [[nodiscard]] std::uint32_t Finished(const Revolution& revolution) const;
  [[nodiscard]] bool PlaceShorts(Revolution& revolution);
  // Returns how many were placed below the ceiling until one was not.
  [[nodiscard]] std::size_t PlaceInOrder(const std::vector<std::size_t>& order, Revolution& revolution);
  Offset LowestFit(FitTree& tree, const RingWindow::Piece& piece, Offset base);

  const Bytes bottom_;
  const Bytes ceiling_;
  const RingWindow* window_ = nullptr;  // that the following speaks of
  std::optional<PeakCheck> peaks_;
  std::map<Bytes, Run> runs_;       // by shift
  std::optional<FitTree> earlier_;  // obstacles
  std::optional<FitTree> tree_;     // and what has been placed
  std::uint32_t tree_positions_ = 0;
  std::uint64_t work_ = 0;
};

}  // namespace stalloc::planner
