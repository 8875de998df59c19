// CapacitySearch: does an instance fit under a capacity? Complete: finds a packing or proves that there is none, unless
// the node limit ends it first.
//
// Depth-first over canonical packings, after Moffitt, "MiniMalloc" (ASPLOS 2023); own code, iterative:
// * blocks are placed in order of offset (ties by rank), each on the lowest offset that the blocks placed so far leave
// it;
// * a block is not placed where another would still fit entirely below it (dominance);
// * at every position, the lowest offset at which anything can go on plus what is still to be placed must not pass the
//   capacity (section inference);
// * what falls apart in time is solved part by part, so that a mistake in one part is not searched again in another.
// The rank decides which block of those that could rest on the same offset comes first, and with it the running time.
// Not thread-safe. Bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "planner/packing/bit_rows.h"
#include "planner/packing/instance.h"

namespace stalloc::planner {

class CapacitySearch {
 public:
  enum class Outcome { kFound, kInfeasible, kLimit };

  // REQUIRES: the instance outlives the search. Memory grows with blocks squared.
  explicit CapacitySearch(const Instance& instance);

  // `ranking` holds every block once, the preferred first. Asks `should_stop` now and then.
  Outcome Run(Bytes capacity, std::span<const BlockIndex> ranking, std::uint64_t node_limit,
              const std::function<bool()>& should_stop);
  // Valid after kFound.
  [[nodiscard]] const std::vector<Offset>& offsets() const { return offsets_; }
  // The lowest height that the packing found reaches. Valid after kFound.
  [[nodiscard]] Bytes height() const;

 private:
  // Blocks that are still to be placed within a range of positions that no other such block enters: part of pool_.
  struct Part {
    std::size_t begin;
    std::size_t end;
    Span span;
  };
  // One choice: which block of a part comes next. Its parts are what is left of the part after that block.
  struct Choice {
    Part part;
    Offset floor;         // offset of the block placed before
    BlockIndex previous;  // that block; kNone at the root
    std::size_t candidates_begin;
    std::size_t candidates_end;
    std::size_t next;   // candidate
    std::size_t trail;  // sizes to go back to
    std::size_t pool;
    std::size_t parts;
    std::size_t part_count;
    std::size_t solved;  // of its parts
  };
  struct Change {
    enum class Kind : std::uint8_t { kPlaced, kLowest, kFloor } kind;
    std::uint32_t index;
    Offset before;
  };
  static constexpr BlockIndex kNone = ~BlockIndex{0};

  void Reset(Bytes capacity, std::span<const BlockIndex> ranking);
  void Open(Part part, Offset floor, BlockIndex previous);
  void Close();
  // Places the block at its lowest offset and tells the others; false where that leaves some block or position no room.
  bool PlaceAndInfer(BlockIndex block, const Span& span);
  void Place(BlockIndex block);
  bool RaiseConflicts(BlockIndex block);
  void RaiseFloors();
  // Appends the parts that `part` falls into, without the blocks placed, and returns how many there are.
  std::size_t Split(Part part);
  Outcome SolveRoot(const std::function<bool()>& should_stop);
  void UndoTo(std::size_t trail);
  template <typename Visit>
  void ForEachPosition(BlockIndex block, Visit visit) const;
  [[nodiscard]] Span Hull(BlockIndex block) const;

  const Instance& instance_;
  BitRows conflicts_;  // of a block: blocks
  BitRows alive_;      // at a position: blocks
  Bytes capacity_ = 0;
  std::vector<Offset> offsets_;
  std::vector<Offset> lowest_;           // of a block that is not placed: lowest offset left to it
  std::vector<std::uint64_t> unplaced_;  // a row of bits
  std::vector<Offset> floor_;            // of a position: the least lowest_ of the blocks to be placed there
  std::vector<Bytes> rest_;              // of a position: bytes to be placed there
  std::vector<std::uint32_t> rank_;
  std::vector<BlockIndex> pool_;  // blocks of open parts, by rank
  std::vector<BlockIndex> candidates_;
  std::vector<Part> parts_;
  std::vector<Choice> choices_;
  std::vector<Change> trail_;
  std::vector<std::uint32_t> touched_;  // positions whose floor may rise
  std::vector<std::uint32_t> touched_at_;
  std::uint32_t touch_round_ = 0;
  std::vector<std::uint32_t> reach_;  // scratch of Split
  std::uint64_t nodes_left_ = 0;
};

}  // namespace stalloc::planner
