// Placer: places blocks one by one at the lowest offset that is free, and gives up early when the result cannot help.
//
// Holds the FitTree and the offsets of one evaluation at a time; memory is kept from one to the next. One per thread.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "planner/packing/fit_tree.h"
#include "planner/packing/instance.h"

namespace stalloc::planner {

class SearchState;

class Placer {
 public:
  // `state` supplies the limit (an evaluation whose top passes the best so far is aborted), deadline and stop flag.
  Placer(const Instance& instance, const SearchState& state);

  // Begins an evaluation: nothing is placed.
  void Reset();

  // Places `block` at its lowest fit at or above `base`.
  void Place(BlockIndex block, Offset base = 0);
  // Places `block` at `offset`. REQUIRES: it is free there (LowestFit said so) and aligned.
  void PlaceAt(BlockIndex block, Offset offset);
  [[nodiscard]] Offset LowestFit(BlockIndex block, Offset base) { return tree_.LowestFit(instance_[block], base); }

  // Places all of `order`; false as soon as Hopeless().
  [[nodiscard]] bool PlaceAll(std::span<const BlockIndex> order);

  // True when the top has passed the best height so far, or, seldom asked, time is up.
  [[nodiscard]] bool Hopeless();

  [[nodiscard]] Bytes height() const { return height_; }
  [[nodiscard]] const std::vector<Offset>& offsets() const { return offsets_; }
  [[nodiscard]] const Instance& instance() const { return instance_; }

 private:
  const Instance& instance_;
  const SearchState& state_;
  FitTree tree_;
  std::vector<Offset> offsets_;
  Bytes height_ = 0;
  unsigned until_clock_ = 0;  // the clock is read once in many calls
};

}  // namespace stalloc::planner
