// SearchBlocks: what a capacity search has to place, with everything about it that does not change during the search.
//
// Blocks that are frozen at an offset become obstacles; the others are numbered densely. Positions at which the same
// blocks are alive are one, and positions without any are none. Memory grows with the blocks to be placed squared; the
// frozen ones cost only what they occupy. Immutable after construction; thread-safe. Bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planner/packing/bit_rows.h"
#include "planner/packing/instance.h"
#include "planner/packing/obstacles.h"
#include "planner/packing/work.h"

namespace stalloc::planner {

// Parallel to the problem's blocks: where a block is that may not move. Empty: all may.
using FrozenOffsets = std::span<const std::optional<Offset>>;

class SearchBlocks {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  struct Entry {
    BlockIndex block;  // in the instance
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

  // REQUIRES: the instance outlives this; frozen blocks in conflict do not overlap.
  explicit SearchBlocks(const Instance& instance, FrozenOffsets frozen = {});

  [[nodiscard]] const Instance& instance() const { return instance_; }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(entries_.size()); }
  [[nodiscard]] const Entry& operator[](std::uint32_t index) const { return entries_[index]; }
  [[nodiscard]] std::uint32_t positions() const { return positions_; }
  [[nodiscard]] const BitRows& conflicts() const { return conflicts_; }   // of an entry: entries
  [[nodiscard]] const BitRows& alive() const { return alive_; }           // at a position: entries
  [[nodiscard]] const std::vector<Bytes>& load() const { return load_; }  // at a position, of what is to be placed

  [[nodiscard]] bool has_obstacles() const { return has_obstacles_; }
  // The lowest offset at or above `from` that alignment and frozen blocks leave the entry.
  [[nodiscard]] Offset LowestFit(std::uint32_t index, Offset from) const {
    const Entry& entry = entries_[index];
    if (has_obstacles_) return around_[index].LowestFit(from, entry.bytes, entry.alignment);
    return entry.alignment == 1 ? from : RoundUp(from, entry.alignment);
  }
  // What frozen blocks leave of [from, to) at the position.
  [[nodiscard]] Bytes FreeBetween(std::uint32_t position, Offset from, Offset to) const {
    return at_[position].FreeBetween(from, to);
  }
  // What making this took.
  [[nodiscard]] Work work() const { return work_; }
  // Height of what is frozen.
  [[nodiscard]] Offset frozen_top() const { return frozen_top_; }

  // Offsets of all blocks of the instance, from those of the entries.
  [[nodiscard]] std::vector<Offset> Completed(std::span<const Offset> of_entries) const;

  template <typename Visit>
  void ForEachPosition(std::uint32_t index, Visit visit) const {
    const Entry& entry = entries_[index];
    for (std::uint32_t position = entry.span.begin; position < entry.span.end; ++position) visit(position);
    for (std::uint32_t position = entry.second.begin; position < entry.second.end; ++position) visit(position);
  }

 private:
  // Of each position of the instance and of its end: the merged position; positions without entries have the next one.
  [[nodiscard]] std::vector<std::uint32_t> MergePositions(FrozenOffsets frozen);
  void AddEntries(FrozenOffsets frozen, const std::vector<std::uint32_t>& merged);
  void AddConflicts();
  // Of each merged position: the position of the instance with the greatest frozen load.
  [[nodiscard]] std::vector<std::uint32_t> FullestPositions(FrozenOffsets frozen,
                                                            const std::vector<std::uint32_t>& merged) const;
  void AddObstacles(FrozenOffsets frozen, const std::vector<std::uint32_t>& merged);
  void AddTwins();

  const Instance& instance_;
  std::vector<Entry> entries_;
  std::uint32_t positions_ = 0;
  BitRows conflicts_;
  BitRows alive_;
  std::vector<Bytes> load_;
  bool has_obstacles_ = false;
  Work work_ = 0;
  Offset frozen_top_ = 0;
  std::vector<Offset> frozen_;     // of all blocks of the instance
  std::vector<Obstacles> around_;  // of an entry
  std::vector<Obstacles> at_;      // a position
};

}  // namespace stalloc::planner
