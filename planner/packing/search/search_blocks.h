// SearchBlocks: what a capacity search has to place, with everything about it that does not change during the search.
//
// Positions at which the same blocks are alive are one, and positions without any are none. Memory grows with the
// blocks squared. Immutable after construction; thread-safe. Bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/packing/problem/instance.h"
#include "planner/packing/search/bit_rows.h"

namespace stalloc::planner {

class SearchBlocks {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  struct Entry {
    Bytes bytes;
    Bytes alignment;
    Span span;    // merged positions
    Span second;  // empty: none
    Span hull;    // of both
    // The one before among those alive at the same positions with the same size and alignment: they are
    // interchangeable. kNone: no such.
    std::uint32_t twin;

    [[nodiscard]] bool SameSpans(const Entry& other) const { return span == other.span && second == other.second; }
  };

  // REQUIRES: the instance outlives this.
  explicit SearchBlocks(const Instance& instance);

  [[nodiscard]] const Instance& instance() const { return instance_; }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(entries_.size()); }
  [[nodiscard]] const Entry& operator[](std::uint32_t index) const { return entries_[index]; }
  [[nodiscard]] std::uint32_t positions() const { return positions_; }
  [[nodiscard]] const BitRows& conflicts() const { return conflicts_; }   // of an entry: entries
  [[nodiscard]] const BitRows& alive() const { return alive_; }           // at a position: entries
  [[nodiscard]] const std::vector<Bytes>& load() const { return load_; }  // at a position, of what is to be placed

  // The lowest offset at or above `from` that alignment leaves the entry.
  [[nodiscard]] Offset LowestFit(std::uint32_t index, Offset from) const {
    const Bytes alignment = entries_[index].alignment;
    return alignment == 1 ? from : RoundUp(from, alignment);
  }
  template <typename Visit>
  void ForEachPosition(std::uint32_t index, Visit visit) const {
    const Entry& entry = entries_[index];
    for (std::uint32_t position = entry.span.begin; position < entry.span.end; ++position) visit(position);
    for (std::uint32_t position = entry.second.begin; position < entry.second.end; ++position) visit(position);
  }

 private:
  // For each position of the instance and of its end: the merged position; positions without entries have the next one.
  [[nodiscard]] std::vector<std::uint32_t> MergePositions();
  void AddEntries(const std::vector<std::uint32_t>& merged);
  void AddConflicts();
  void AddTwins();

  const Instance& instance_;
  std::vector<Entry> entries_;  // parallel to the instance's items
  std::uint32_t positions_ = 0;
  BitRows conflicts_;
  BitRows alive_;
  std::vector<Bytes> load_;
};

}  // namespace stalloc::planner
