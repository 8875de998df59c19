// Placer: places blocks one by one at the lowest offset that is free, and gives up early when the result cannot help.
//
// Holds the FitTree and the offsets of one evaluation at a time; memory is kept from one to the next. One per thread.
#pragma once

#include <span>
#include <vector>

#include "planner/packing/fit_tree.h"
#include "planner/packing/instance.h"
#include "planner/packing/search_state.h"
#include "planner/packing/stack_order.h"

namespace stalloc::planner {

class Placer {
 public:
  // `state` supplies the best height, the deadline and the stop flag.
  Placer(const Instance& instance, const SearchState& state);

  // Begins an evaluation: nothing is placed. It is hopeless once its top passes both the best height so far and
  // `limit`.
  void Reset(Bytes limit);

  // Places all of `order`, each at its lowest fit; false as soon as that is hopeless.
  [[nodiscard]] bool PlaceAll(std::span<const BlockIndex> order);
  [[nodiscard]] bool PlaceAll(const StackOrder& order);

  void Place(BlockIndex block) { PlaceAt(block, tree_.LowestFit(instance_[block], 0)); }
  // Places the members on top of each other at the lowest base where each finds its own lifetime free.
  void PlaceStack(std::span<const BlockIndex> stack);

  // True when the top has passed the limit or, seldom asked, time is up.
  [[nodiscard]] bool Hopeless();

  [[nodiscard]] Bytes height() const { return height_; }
  [[nodiscard]] const std::vector<Offset>& offsets() const { return offsets_; }

 private:
  void PlaceAt(BlockIndex block, Offset offset);

  const Instance& instance_;
  const SearchState& state_;
  FitTree tree_;
  std::vector<Offset> offsets_;
  std::vector<Bytes> rises_;  // of a stack's members above its base; scratch
  Bytes height_ = 0;
  Bytes limit_ = 0;
  unsigned until_clock_ = 0;  // the clock is read once in many calls
};

}  // namespace stalloc::planner
