// Alignment: where in the script a run may be that has lost its place: all hypotheses at once, scored request by
// request.
//
// Note [Alignment]
// The rows of a Needleman-Wunsch alignment (1970) of the live requests against the script, in a band that moves with
// the best hypothesis. Cell p holds the score of "p is the entry expected next"; a request moves the scores like this:
//
//        request = entry p:   p -> p+1   + worth       request is extra:     p stays      - 12
//        resized entry p:     p -> p+1   - 14          entry p is left out:  p -> p+1     - 12  (no request consumed)
//        ... of one that varies:         -  2
//
//        script   A   B   C   D   E           live:  A  X  C  D  E
//        cell     0   1   2   3   4           after X:  cell 1: -12 (X extra)   cell 2: -14 (X is B, resized)
//                                             after C:  cell 3: -14 + worth(C) from cell 2; -24 + worth(C) from cell 1
//
// Nothing is decided before the scores decide it: a wrong guess costs the requests that were answered meanwhile, and
// later requests put it right. A committed greedy jump ("the next equal size") cannot be put right, and loses the track
// for good. Scores of hopeless hypotheses are not raised to a floor: with one, chance matches lift them over the truth
// step by step.
//
// Positions are script positions. Not thread-safe; no heap; no errors.
#pragma once

#include <array>
#include <cstdint>

#include "allocator/engine/script_index.h"

namespace stalloc {

class Alignment {
 public:
  enum class Last : std::uint8_t { kNothing, kWeak, kExact };  // what the last request was, on the best path

  // Forgets everything and starts with the certainty that `cursor` is expected next.
  void Start(const ScriptIndex& script, std::int32_t cursor) noexcept;
  // Takes the next request. REQUIRES: Start was called; `script` is the same.
  void Step(const ScriptIndex& script, Granules granules) noexcept;

  // The best hypothesis: the entry expected next, and whether the last request was the entry before it.
  [[nodiscard]] std::int32_t cursor() const noexcept { return base_ + best_; }
  [[nodiscard]] Last last() const noexcept { return how_[Index(best_)]; }
  // The best hypothesis has left out entries that are not optional, and little speaks against the others.
  [[nodiscard]] bool LeaptInDoubt() const noexcept;
  // The best hypothesis has proved itself and no other is near.
  [[nodiscard]] bool Certain() const noexcept;

 private:
  static constexpr std::int32_t kWidth = 64;
  static constexpr std::int32_t kCentre = 28;  // where the best hypothesis is kept, so that both sides have room
  static constexpr std::int32_t kSlack = 12;   // how far it may wander before the band moves

  template <typename T>
  using Row = std::array<T, static_cast<std::size_t>(kWidth)>;

  [[nodiscard]] static constexpr std::size_t Index(std::int32_t cell) noexcept {
    return static_cast<std::size_t>(cell);
  }
  void TakeRequest(const ScriptIndex& script, Granules granules) noexcept;
  void LeaveOutEntries(const ScriptIndex& script) noexcept;
  void FindBest() noexcept;
  void Recentre(const ScriptIndex& script) noexcept;

  std::int32_t base_ = 0;      // position of cell 0
  std::int32_t best_ = 0;      // cell
  std::int32_t lead_ = 0;      // of the best score over the next best that a request led to
  Row<std::int32_t> score_{};  // relative to the best
  Row<std::int32_t> run_{};    // exact matches in a row on the way to the cell; weak ones neither count nor break it
  Row<Last> how_{};
  Row<bool> skipped_{};  // reached by leaving entries out after the last request
  Row<bool> leapt_{};    // entries that are not optional were left out on the way
};

}  // namespace stalloc
