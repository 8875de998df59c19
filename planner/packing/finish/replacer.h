// Replacer: keeps some blocks of a packing where they are and places the others anew under a height that must not be
// passed. One first fit of the FitTree a block. Not thread-safe. Bytes.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "planner/packing/problem/instance.h"
#include "planner/packing/search/fit_tree.h"

namespace stalloc::planner {

class Replacer {
 public:
  // Offsets that a block would like to have, best first; it takes the first that is free. May be empty.
  using Wishes = std::function<void(BlockIndex block, const std::vector<Offset>& offsets, std::vector<Offset>* wishes)>;

  // `should_stop` is called now and then. REQUIRES: the instance outlives the replacer.
  Replacer(const Instance& instance, std::function<bool()> should_stop);

  // Where `order` is placed block by block: at a wish, else at the lowest fit from the block's `home` on, else at the
  // lowest fit of all. Blocks that are not in `order` keep their offsets. None: some block found no place below
  // `height`, or it was to stop.
  [[nodiscard]] std::optional<std::vector<Offset>> Run(const std::vector<Offset>& offsets, Bytes height,
                                                       std::span<const BlockIndex> order,
                                                       const std::function<Offset(BlockIndex)>& home = nullptr,
                                                       const Wishes& wishes = nullptr);

  // Blocks placed anew or kept, over all runs.
  [[nodiscard]] std::size_t placements() const { return placements_; }

 private:
  void Put(BlockIndex block, Offset offset);
  [[nodiscard]] std::optional<Offset> Find(const Item& item, Bytes height, Offset home, std::span<const Offset> wishes);

  const Instance& instance_;
  const std::function<bool()> should_stop_;
  FitTree tree_;
  std::size_t placements_ = 0;
};

}  // namespace stalloc::planner
