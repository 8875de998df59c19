// Landmarks: sizes that few places of a script have, far from each other, with requests between them that vary. Where a
// run has got to whose experts had other tokens than the traced ones.
//
// Note [Landmarks]
//        attention  |  experts: alike, of varying size and number  |  attention  |  experts ...
//   ... Q . . . . . . . ~ ~ ~ . ~ ~ ~ . ~ ~ ~ . . ~ ~ ~ . . . . . . Q . . . . . . . ~ ~ ~ ...     Q: a landmark
//
// A model's layers are alike, and the experts of a layer still more so: what follows an expert that had no tokens
// resembles what follows the one before. Small steps in the wrong direction add up, and half a layer off is as good as
// the right place. But requests come at the script's pace, give or take some experts, so the landmark that is nearest
// to it is the right one, wherever the alignment is.
//
// A size is a landmark if it does not vary (an anchor, script_index.h), hardly any entry that is not always there has
// it, its places are kApart entries from each other on average, and a quarter or more of what lies between them varies.
// Places of one size that follow each other within kRun entries are one, the first. Where nothing varies there are no
// landmarks.
//
// Read-only and thread-safe once built. Positions are script positions.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "proto/model/plan.h"

namespace stalloc {

class Landmarks {
 public:
  static constexpr std::int32_t kRun = 8;
  static constexpr std::int32_t kApart = 96;
  static constexpr std::int32_t kNone = -1;

  Landmarks() = default;
  // `anchor(i)`: the size of entry i, in granules, if that is an anchor; else 0.
  Landmarks(const Script& script, const std::function<std::uint32_t(std::int32_t)>& anchor);

  // The landmark of this size in [begin, end) that is nearer to `position` than any other, by far; kNone if none is.
  // O(log of their number).
  [[nodiscard]] std::int32_t Nearest(std::uint32_t granules, std::int32_t position, std::int32_t begin,
                                     std::int32_t end) const noexcept;
  // The last one before `position`, of whatever size; kNone if there is none.
  [[nodiscard]] std::int32_t Before(std::int32_t position) const noexcept;

 private:
  struct Landmark {
    std::uint32_t granules = 0;
    std::int32_t position = 0;
  };
  static bool InOrder(const Landmark& a, const Landmark& b) noexcept {
    return a.granules != b.granules ? a.granules < b.granules : a.position < b.position;
  }

  std::vector<Landmark> by_size_;        // in order
  std::vector<std::int32_t> positions_;  // ascending
};

}  // namespace stalloc
