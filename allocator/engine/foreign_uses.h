// ForeignUses: for each block that other streams use, too, the list of those streams and of the events behind their
// work.
//
// A pool of list cells of fixed size, straight from mmap: the calls that reach it come from allocator hooks. Lists are
// named by the index of their first cell; 0 is the empty list. Not thread-safe; no errors but a full pool or list.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/base/mapped_array.h"
#include "proto/model/units.h"

namespace stalloc {

struct ForeignUse {
  StreamHandle stream = 0;
  std::uint64_t event = 0;  // 0: none recorded yet
  std::uint32_t next = 0;
};

class ForeignUses {
 public:
  static constexpr std::size_t kMaxStreams = 64;  // of one block: lists are walked under the engine's lock

  explicit ForeignUses(std::size_t capacity) : cells_(capacity + 1) {}

  // Adds `stream` to the list unless it is there. False if the list is as long as it may be or the pool is full; then
  // nothing changed.
  [[nodiscard]] bool Add(std::uint32_t& list, StreamHandle stream) noexcept {
    std::size_t length = 0;
    for (std::uint32_t cell = list; cell != 0; cell = cells_[cell].next, ++length) {
      if (cells_[cell].stream == stream) return true;
    }
    if (length >= kMaxStreams) return false;
    std::uint32_t cell = free_;
    if (cell != 0) {
      free_ = cells_[cell].next;
    } else if (used_ + 1 < cells_.size()) {
      cell = ++used_;
    } else {
      return false;
    }
    cells_[cell] = {stream, 0, list};
    list = cell;
    return true;
  }

  // REQUIRES: `cell` is in the list.
  void Remove(std::uint32_t& list, std::uint32_t cell) noexcept {
    std::uint32_t* link = &list;
    while (*link != cell) link = &cells_[*link].next;
    *link = cells_[cell].next;
    cells_[cell].next = free_;
    free_ = cell;
  }

  [[nodiscard]] ForeignUse& operator[](std::uint32_t cell) noexcept { return cells_[cell]; }
  [[nodiscard]] const ForeignUse& operator[](std::uint32_t cell) const noexcept { return cells_[cell]; }

 private:
  MappedArray<ForeignUse> cells_;  // cell 0 is nobody's
  std::uint32_t used_ = 0;         // cells that were ever given out
  std::uint32_t free_ = 0;
};

}  // namespace stalloc
