// Size classes: a few coarse size thresholds, big classes first, in order of start (or of end, last first) inside a
// class.
//
// Sizes that vary (mixtures of experts, sequences of any length) break orders by exact size: nearly equal blocks ought
// to be coloured like equal ones. Which thresholds suit is searched: random ones first, then neighbours of the best
// three. Blocks too small to matter follow by size.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "planner/packing/search/evaluator.h"
#include "planner/packing/search/stack_order.h"

namespace stalloc::planner {

struct SizeClassOptions {
  std::vector<Bytes> thresholds =
      {};                        // descending; a class holds the sizes from one threshold up to the next greater one
  bool ends_descending = false;  // inside a class: last to end first, instead of first to start first
  std::uint32_t long_steps = 0;  // blocks that live at least so many steps come first in their class; 0: no such split
  Bytes light = 0;               // blocks smaller than this follow last, by size

  bool operator==(const SizeClassOptions&) const = default;
};

[[nodiscard]] StackOrder SizeClassOrder(const Instance& instance, const SizeClassOptions& options);

// A search that may be continued slice by slice.
class SizeClassSearch {
 public:
  // Evaluates `known` first.
  SizeClassSearch(const Instance& instance, std::uint64_t seed, std::vector<SizeClassOptions> known = {});
  ~SizeClassSearch();
  // Evaluates `batches` batches or stops when the state is done.
  void Run(Evaluator& evaluator, int batches);
  // What survived, the best first.
  [[nodiscard]] std::vector<SizeClassOptions> Best() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stalloc::planner
