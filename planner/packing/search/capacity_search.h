// CapacitySearch: do blocks fit under a capacity? Complete: finds a packing or proves that there is none, unless a
// limit ends it first. Depth-first over canonical packings, after Moffitt, "MiniMalloc" (ASPLOS 2023): blocks in order
// of offset (ties by rank), each on the lowest offset that is left to it; none where another would still fit entirely
// below it (dominance); at every position, the lowest offset at which anything can go on plus what is still to be
// placed must not pass the capacity (section inference); what falls apart in time is solved part by part. Beyond the
// paper: what cannot fit is remembered (failed_parts.h), a failure goes back to the last placement that bears on it,
// and of two blocks with the same lifetimes, one directly on the other, the larger lies below (optional). Completeness
// holds: of the packings that fit, the one with the least sum of (weight x offset), weights positive and falling per
// byte from large blocks to small ones, obeys all of this. Not thread-safe. Bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "planner/packing/problem/work.h"
#include "planner/packing/search/failed_parts.h"
#include "planner/packing/search/ranking.h"
#include "planner/packing/search/search_blocks.h"

namespace stalloc::planner {

class CapacitySearch {
 public:
  enum class Outcome { kFound, kInfeasible, kLimit };
  struct Limits {
    std::uint64_t nodes = 0;
    Work work = kUnlimitedWork;
    std::function<bool()> should_stop = nullptr;  // called now and then; may be empty
  };

  // REQUIRES: the blocks outlive the search.
  explicit CapacitySearch(const SearchBlocks& blocks);

  // The ranking decides which of the blocks that could rest on the same offset comes first, and with it the running
  // time, hardly the answer.
  Outcome Run(Bytes capacity, const Ranking& ranking, const Limits& limits);
  // Valid after kFound.
  [[nodiscard]] const std::vector<Offset>& offsets() const { return offsets_; }
  // For the last run.
  [[nodiscard]] Work work() const { return work_; }
  // Forgets what earlier runs have proved, so that the next one depends on nothing before it.
  void Forget() { failed_.Clear(); }

 private:
  using Entry = SearchBlocks::Entry;
  static constexpr std::uint32_t kNone = SearchBlocks::kNone;

  // Blocks that are still to be placed within a range of positions that no other such block enters.
  struct Part {
    std::size_t begin;  // of pool_, by rank
    std::size_t end;
    Span span;
    Offset floor;       // nothing goes below it,
    std::size_t first;  // nor on it what stands before this in the pool
    std::size_t depth;  // choices up to the last one that bears on the part; 0: none does
  };
  // Which block of a part comes next. Its parts are what is left of the part after that block.
  struct Choice {
    Part part;
    PartHash hash;
    Offset proved_floor;  // lowest floor from which nothing more may be placed than here
    std::size_t candidates_begin;
    std::size_t candidates_end;
    std::size_t next;   // candidate
    std::size_t trail;  // sizes to go back to
    std::size_t pool;
    std::size_t parts;
    std::size_t part_count;
    std::size_t solved;  // of its parts
  };
  struct Candidate {
    Offset offset;
    std::size_t at;  // in the pool
  };
  struct Change {
    enum class Kind : std::uint8_t { kPlaced, kLowest, kFloor } kind;
    bool out_of_order;
    std::uint32_t index;
    Offset before;
  };

  bool Reset(Bytes capacity);
  Outcome SolveRoot(const Limits& limits);
  // False where the part is known to fail.
  bool Open(const Part& part);
  void Close();
  // Ends all choices that the failure of a part makes pointless: those beyond `depth`.
  void Fail(std::size_t depth);
  // Places the block at its lowest offset and updates the others; false if that leaves some block or position no space.
  bool PlaceAndInfer(std::uint32_t block, const Span& span);
  void Place(std::uint32_t block);
  bool RaiseConflicts(std::uint32_t block);
  // Raises the floor of a position, once a placement.
  void Touch(std::uint32_t position);
  void RaiseFloor(std::uint32_t position);
  [[nodiscard]] bool HasRoom(const Span& span, Offset floor) const;
  // Appends the parts that are left of the choice's part after the candidate it stands at.
  void Descend(Choice& choice);
  void Continue(const Choice& choice, std::size_t at, bool is_covered);
  void Split(const Choice& choice, std::size_t at);
  // Where no block crosses, between what is left of the part.
  void FindParts(const Part& part);
  void FillPart(const Choice& choice, std::uint32_t placed, Part& part);
  // Sorts the part's blocks by rank, with what is left to be placed as load.
  void Rank(const Part& part);
  [[nodiscard]] bool IsPlaced(std::uint32_t block) const { return (unplaced_[block / 64] >> block % 64 & 1) == 0; }
  [[nodiscard]] bool OutOfOrder(std::uint32_t below, std::uint32_t above) const;
  void UndoTo(std::size_t trail);

  const SearchBlocks& blocks_;
  const Ranking* ranking_ = nullptr;
  Bytes capacity_ = 0;
  std::vector<Offset> offsets_;
  std::vector<Offset> lowest_;              // of a block that is not placed: lowest offset left to it
  std::vector<std::uint8_t> out_of_order_;  // whether it would lie there on a block that ought to lie on it
  std::vector<std::uint64_t> unplaced_;     // a row of bits
  std::vector<Offset> floor_;            // of a position: the least lowest_ of the blocks to be placed there; 0: none
  std::vector<Bytes> rest_;              // of a position: bytes to be placed there
  std::vector<std::uint32_t> crossing_;  // of a position: blocks to be placed that are also in the next one
  std::vector<std::uint64_t> touched_;   // of a position: the placement that touched it last
  std::uint64_t touch_ = 0;
  bool falls_apart_ = false;         // the last block placed was the last one to cross somewhere
  std::vector<std::uint32_t> pool_;  // blocks of open parts, by rank
  std::vector<Candidate> candidates_;
  std::vector<Part> parts_;
  std::vector<Choice> choices_;
  std::vector<Change> trail_;
  FailedParts failed_;
  Bytes failed_capacity_ = 0;         // what is in failed_ failed under it
  std::vector<std::uint32_t> reach_;  // scratch
  std::vector<RankingKey> keys_;      // scratch
  std::uint64_t nodes_ = 0;
  Work work_ = 0;
};

}  // namespace stalloc::planner
