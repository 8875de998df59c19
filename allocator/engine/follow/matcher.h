// Matcher: which entry of a script the next request of a live run is (details.md, Matching).
//
// A request is an entry only if the best hypothesis says so now. A place that is wrong costs more than a miss, so while
// it is in doubt whether entries were left out, nothing is matched. No place is final.
//
// Not thread-safe; noexcept; no heap. O(1) in sync, 64 cells a request otherwise, and the occurrences of the last 8
// anchors when these are looked up.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <limits>

#include "allocator/engine/follow/script_index.h"

namespace stalloc {

// Where in the script a run may be that has lost its place: rows of a Needleman-Wunsch alignment (1970) of the live
// requests against the script, in a band that moves with the best hypothesis. Scores of hopeless hypotheses are not
// raised to a floor: with one, chance matches lift them over the truth step by step. Positions are the script's.
class Alignment {
 public:
  enum class Last : std::int16_t { kNothing, kWeak, kExact };  // what the last request was, on the best path

  // Forgets everything and starts with the certainty that `cursor` is expected next.
  void Start(const ScriptIndex& script, std::int32_t cursor) noexcept;
  // Takes the next request, which is none of `end` or after it. REQUIRES: Start was called; `script` is the same.
  void Step(const ScriptIndex& script, Granules granules, std::int32_t end) noexcept;

  // The best hypothesis: the entry expected next, and whether the last request was the entry before it.
  [[nodiscard]] std::int32_t cursor() const noexcept { return base_ + best_; }
  [[nodiscard]] Last last() const noexcept { return Last{how_[Index(best_)]}; }
  // The best hypothesis has left out entries that are not optional, and little speaks against the others.
  [[nodiscard]] bool LeaptInDoubt() const noexcept;
  // The best hypothesis has proved itself and no other is near.
  [[nodiscard]] bool Certain() const noexcept;

 private:
  static constexpr std::int32_t kWidth = tuning::kBandWidth;

  // All of one width, for vector instructions; -1: yes, 0: no.
  using Cell = std::int16_t;
  using Row = std::array<Cell, static_cast<std::size_t>(kWidth)>;

  [[nodiscard]] static constexpr std::size_t Index(std::int32_t cell) noexcept {
    return static_cast<std::size_t>(cell);
  }
  void TakeRequest(const ScriptIndex& script, Granules granules) noexcept;
  void LeaveOutEntries(const ScriptIndex& script) noexcept;
  void EndAt(std::int32_t end) noexcept;
  void FindBest() noexcept;
  void Recentre(const ScriptIndex& script) noexcept;

  std::int32_t base_ = 0;  // position of cell 0
  std::int32_t best_ = 0;  // cell
  std::int32_t lead_ = 0;  // of the best score over the next best that a request led to
  Row score_{};            // relative to the best
  Row run_{};  // exact matches in a row on the way to the cell, up to kLongRun; weak ones neither count nor break it
  Row how_{};  // Last
  Row skipped_{};  // reached by leaving entries out after the last request
  Row leapt_{};    // entries that are not optional were left out on the way
};

class Matcher {
 public:
  enum class Outcome : std::uint8_t {
    kMatched,      // `entry` is the request's entry, size for size
    kVarying,      // `entry` is the request's entry, but for its size
    kUnmatched,    // the script has this size, but not here
    kUnknownSize,  // no entry of the script has this size
  };
  struct Match {
    Outcome outcome;
    std::int32_t entry;  // -1: none
  };

  // Follows `script` from `cursor` on, in sync. `script` outlives the matcher's use of it; null: nothing matches.
  void Follow(const ScriptIndex* script, std::int32_t cursor) noexcept;
  // From now on a place is looked for in [begin, end). Follow requests all of the script again.
  void Expect(std::int32_t begin, std::int32_t end) noexcept {
    expected_begin_ = begin;
    expected_end_ = end;
  }

  // The next request. Advances.
  [[nodiscard]] Match Next(Granules granules) noexcept {
    if (in_sync_ && script_->SizeAt(cursor_) == granules) {
      doubtful_count_ = 0;
      return {Outcome::kMatched, cursor_++};
    }
    return NextNotExact(granules);
  }

  // The entry expected next: certain in sync, else the best hypothesis.
  [[nodiscard]] std::int32_t cursor() const noexcept { return cursor_; }
  [[nodiscard]] bool in_sync() const noexcept { return in_sync_; }
  // Times that sync was lost, and that a place was found other than by the alignment.
  [[nodiscard]] std::uint64_t times_lost() const noexcept { return times_lost_; }
  [[nodiscard]] std::uint64_t times_reanchored() const noexcept { return times_reanchored_; }

 private:
  struct Doubtful {  // a request in sync that matched weakly or not at all
    Granules granules;
    std::int32_t cursor;  // before it
  };
  struct Place {  // a candidate for going on; the greater, the better
    std::int32_t merit = std::numeric_limits<std::int32_t>::min();
    std::int32_t nearness = 0;
    std::int32_t cursor = -1;
    bool home = false;
    auto operator<=>(const Place&) const = default;
  };

  Match NextNotExact(Granules granules) noexcept;
  Match NextInSync(Granules granules) noexcept;
  Match NextAligning(Granules granules) noexcept;
  [[nodiscard]] Match Answer(Granules granules) const noexcept;
  void AlignDoubtful(std::uint32_t end) noexcept;
  void Align(Granules granules) noexcept;
  void LoseSync() noexcept;
  void GainSync(std::int32_t cursor) noexcept;
  void LeaveHome() noexcept;
  void Remember(Granules granules) noexcept;
  bool GoToAnchors() noexcept;
  bool GoHome() noexcept;
  [[nodiscard]] std::uint32_t CommonHistory(std::uint32_t last_anchor) const noexcept;
  [[nodiscard]] Place Judge(std::uint32_t last_anchor, std::uint32_t common) const noexcept;
  [[nodiscard]] std::int32_t FarAway(std::int32_t position) const noexcept;

  const ScriptIndex* script_ = nullptr;
  std::int32_t cursor_ = 0;
  bool in_sync_ = false;
  std::int32_t expected_begin_ = 0;
  std::int32_t expected_end_ = 0;
  std::uint64_t times_lost_ = 0;
  std::uint64_t times_reanchored_ = 0;

  // In sync.
  std::uint32_t doubtful_count_ = 0;                    // since the last exact match
  std::array<Doubtful, tuning::kDoubtful> doubtful_{};  // ring: the last of them
  std::uint32_t aligned_from_ = 0;  // of them, those that the alignment has taken: from this one ...
  std::uint32_t aligned_ = 0;       // ... to before this one
  std::int32_t sync_start_ = 0;     // cursor when sync was gained

  // Aligning.
  Alignment alignment_;
  std::uint32_t aligning_ = 0;         // requests since sync was lost
  std::uint32_t explained_ = 0;        // one bit a request, the last one lowest
  std::uint32_t explained_count_ = 0;  // of all requests since sync was lost
  bool disturbed_ = false;  // the place was lost since; certainty alone does not show which of many like places it is
  std::uint32_t anchor_count_ = 0;
  std::array<Granules, tuning::kLastAnchors> anchors_{};  // ring: the last of them

  // Where to come back to.
  std::int32_t home_ = 0;
  std::int32_t after_home_ = 0;      // one after the last entry of those that the latest requests have from home on
  std::int32_t way_home_worth_ = 0;  // of them
  std::int32_t excursion_left_ = 0;  // entries until the present track becomes home
  std::uint32_t away_ = 0;           // requests out of sync since home was left
};

}  // namespace stalloc
