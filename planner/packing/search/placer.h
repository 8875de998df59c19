// Placer: places blocks one by one at the lowest offset that is free, and gives up early when the result cannot help.
//
// Holds the FitTree and the offsets of one evaluation at a time; memory is kept from one to the next. One per thread.
#pragma once

#include <span>
#include <vector>

#include "planner/packing/problem/instance.h"
#include "planner/packing/problem/work.h"
#include "planner/packing/search/fit_tree.h"
#include "planner/packing/search/stack_order.h"

namespace stalloc::planner {

class Placer {
 public:
  // What makes an evaluation hopeless: a higher top, more work, or that `stop` (may be null) is stopped.
  struct Limits {
    Bytes height = 0;
    Work work = 0;
    const Budget* stop = nullptr;
  };

  explicit Placer(const Instance& instance);

  // Begins an evaluation: nothing is placed.
  void Reset(const Limits& limits);

  // Places all of `order`, each at its lowest fit; false as soon as that is hopeless.
  [[nodiscard]] bool PlaceAll(const StackOrder& order);

  [[nodiscard]] Bytes height() const { return height_; }
  // For this evaluation, making its order included.
  [[nodiscard]] Work work() const { return work_of_order_ + tree_.work() - work_before_; }
  [[nodiscard]] const std::vector<Offset>& offsets() const { return offsets_; }

 private:
  void PlaceAt(BlockIndex block, Offset offset);
  // Places the members on top of each other at the lowest base where each finds its own lifetime free.
  void PlaceStack(std::span<const BlockIndex> stack);

  const Instance& instance_;
  FitTree tree_;
  std::vector<Offset> offsets_;
  std::vector<Bytes> rises_;  // of a stack's members above its base; scratch
  Bytes height_ = 0;
  Limits limits_;
  Work work_of_order_ = 0;
  Work work_before_ = 0;  // of the tree, when the evaluation began
};

}  // namespace stalloc::planner
