// Turns: which copy of a plan's cycle the next iteration is.
//
// Note [Turns]
// What lives into the next iteration, as the output of a training loop does until the new one replaces it, lies in
// another place in each turn, and so do blocks that use the room beside it. An iteration that was left out, run twice
// or broken off puts the count out: the next one would then ask for the very place in which the last one's output still
// lies. So at each beginning the turn is taken in which most bytes of what the plan has there lie where it has them; of
// equals the one that the count says. And whoever finds its place taken within an iteration gets the one that it has in
// another turn, if that is free: so what stays does not stray, and the next beginning can tell.
//
// Read-only after it was built. Granules: units of kBlockAlignment bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/model/plan.h"

namespace stalloc {

class Turns {
 public:
  explicit Turns(const DevicePlan& plan);

  // There is but one.
  [[nodiscard]] bool empty() const noexcept { return turns_ < 2; }

  [[nodiscard]] std::uint32_t count() const noexcept { return turns_; }
  // Scripts of one turn.
  [[nodiscard]] std::uint32_t period() const noexcept { return period_; }

  // The script of the cycle in which most bytes lie where they are expected: `script`, which the count says, or one of
  // its other turns. is_live(granule): a block that is in use begins there. REQUIRES: not empty().
  template <typename IsLive>
  [[nodiscard]] std::uint32_t Fitting(std::uint32_t script, IsLive&& is_live) const noexcept {
    const auto scripts = static_cast<std::uint32_t>(crossing_.size());
    std::uint32_t best = script;
    std::uint64_t most = 0;
    for (std::uint32_t turn = 0; turn < turns_; ++turn) {
      const std::uint32_t at = (script + turn * period_) % scripts;
      std::uint64_t there = 0;
      for (const Place& place : crossing_[at]) there += is_live(place.granule) ? place.granules : 0;
      if (turn > 0 && there <= most) continue;
      best = at;
      most = there;
    }
    return best;
  }

 private:
  static constexpr std::size_t kMostPlaces = 64;  // of a script: the largest tell

  struct Place {
    std::uint32_t granule = 0;
    std::uint32_t granules = 0;
    bool operator==(const Place&) const = default;
  };

  void FindCrossing(const DevicePlan& plan);
  void KeepWhatDiffers();

  std::uint32_t turns_;
  std::uint32_t period_;
  std::vector<std::vector<Place>> crossing_;  // by script of the cycle: what is alive where it begins
};

}  // namespace stalloc
