// OpenMarks: the position of a run by its marks: what a device that is added in the middle of it needs.
//
// PyTorch makes a GPU's allocator at the first request, which can be inside the first iteration; the marks before it
// would be lost on the device's plan. Kept are the last iteration and the marks that began inside it and have not
// ended. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/model/trace.h"

namespace stalloc {

class OpenMarks {
 public:
  void See(const Mark& mark) {
    if (!mark.automatic) explicit_kinds_ |= 1u << static_cast<unsigned>(mark.kind);
    if (mark.kind == MarkKind::kIteration && mark.edge == MarkEdge::kBegin) marks_.clear();
    if (mark.edge == MarkEdge::kBegin) {
      if (marks_.size() < kMostNested) marks_.push_back(mark);
      return;
    }
    const auto begin = std::find_if(marks_.rbegin(), marks_.rend(), [&](const Mark& open) {
      return open.kind == mark.kind && open.edge == MarkEdge::kBegin;
    });
    if (begin == marks_.rend()) return;
    // An iteration that has ended still says that init is over.
    const bool keep = mark.kind == MarkKind::kIteration;
    marks_.erase(keep ? begin.base() : begin.base() - 1, marks_.end());
    if (keep) marks_.push_back(mark);
  }

  // Bits by MarkKind: the program has placed such marks itself.
  [[nodiscard]] std::uint32_t explicit_kinds() const noexcept { return explicit_kinds_; }
  // In the order in which they came.
  [[nodiscard]] const std::vector<Mark>& marks() const noexcept { return marks_; }

 private:
  static constexpr std::size_t kMostNested = 256;  // marks without ends must not pile up

  std::vector<Mark> marks_;
  std::uint32_t explicit_kinds_ = 0;
};

}  // namespace stalloc
