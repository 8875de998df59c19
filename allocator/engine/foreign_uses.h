// ForeignUses: for each block that other streams use, too, the list of those streams.
//
// A pool of list cells of fixed size, straight from mmap: the calls that reach it come from allocator hooks. Lists are
// named by the index of their first cell; 0 is the empty list. Not thread-safe; no errors but a full pool or list.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/base/mapped_array.h"
#include "allocator/engine/stream_clocks.h"

namespace stalloc {

class ForeignUses {
 public:
  using List = std::uint16_t;
  static constexpr std::size_t kMaxStreams = 64;  // of one block: lists are walked under the engine's lock
  static constexpr std::size_t kMostCells = 0xffff;

  explicit ForeignUses(std::size_t capacity) : cells_(capacity + 1) {}

  // Adds `stream` to the list unless it is there. False if the list is as long as it may be or the pool is full; then
  // nothing changed.
  [[nodiscard]] bool Add(List& list, StreamIndex stream) noexcept {
    std::size_t length = 0;
    for (List cell = list; cell != 0; cell = cells_[cell].next, ++length) {
      if (cells_[cell].stream == stream) return true;
    }
    if (length >= kMaxStreams) return false;
    List cell = free_;
    if (cell != 0) {
      free_ = cells_[cell].next;
    } else if (used_ + 1 < cells_.size()) {
      cell = static_cast<List>(++used_);
    } else {
      return false;
    }
    cells_[cell] = {stream, list};
    list = cell;
    return true;
  }

  // Another list of the same streams. False if the pool is too full; then there is none.
  [[nodiscard]] bool Copy(List list, List& copy) noexcept {
    copy = 0;
    for (List cell = list; cell != 0; cell = cells_[cell].next) {
      if (Add(copy, cells_[cell].stream)) continue;
      RemoveIf(copy, [](StreamIndex) { return true; });
      return false;
    }
    return true;
  }

  // Removes the streams for which remove(stream) holds.
  template <typename Remove>
  void RemoveIf(List& list, Remove&& remove) noexcept {
    for (List* link = &list; *link != 0;) {
      const List cell = *link;
      if (!remove(cells_[cell].stream)) {
        link = &cells_[cell].next;
        continue;
      }
      *link = cells_[cell].next;
      cells_[cell].next = free_;
      free_ = cell;
    }
  }

  // True if visit(stream) is for each of them; stops at the first for which it is not.
  template <typename Visit>
  bool All(List list, Visit&& visit) const {
    for (List cell = list; cell != 0; cell = cells_[cell].next) {
      if (!visit(cells_[cell].stream)) return false;
    }
    return true;
  }

 private:
  struct Cell {
    StreamIndex stream = kNoStream;
    List next = 0;
  };
  MappedArray<Cell> cells_;  // cell 0 is nobody's
  std::size_t used_ = 0;     // cells that were ever given out
  List free_ = 0;
};

}  // namespace stalloc
