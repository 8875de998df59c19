// KeptPlaces: the places that a plan has for what evaluations and checkpoints leave behind for good.
//
// Note [Kept blocks]
// Of a request in a fence nobody knows when its block will go, and it takes what is free: room that slots use before
// and after. Some stay: a workspace of cuBLAS, say, which the first matrix product takes, and in a framework that
// validates before it trains that is in a fence. Such a block would be in the way of slots in every iteration. Whoever
// asks in a fence for as much as a traced one that stayed gets that one's place; if it goes all the same the place is
// free again. Such a place is mapped for it where an emptied cache gave it back.
//
// Read-only after it was built. Granules: units of kBlockAlignment bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "allocator/engine/loaded_script.h"
#include "proto/model/plan.h"

namespace stalloc {

class KeptPlaces {
 public:
  KeptPlaces(const DevicePlan& plan, const std::vector<std::uint16_t>& slot_flags) {
    const LoadedScript script(plan.kept, plan.slots, slot_flags);
    for (std::int32_t entry = 0; entry < script.index().size(); ++entry) {
      const auto granules =
          static_cast<std::uint32_t>(plan.kept.entries[static_cast<std::size_t>(entry)].bytes / kBlockAlignment);
      if (script.PlaceOf(entry).granules > 0) kept_.push_back({granules, script.PlaceOf(entry)});
    }
  }

  // The first place for this size that `is_free` says true of; one without granules if there is none.
  template <typename IsFree>
  [[nodiscard]] LoadedScript::Place Find(std::uint32_t granules, IsFree&& is_free) const noexcept {
    const auto found = std::find_if(kept_.begin(), kept_.end(),
                                    [&](const Kept& kept) { return kept.granules == granules && is_free(kept.place); });
    return found == kept_.end() ? LoadedScript::Place{} : found->place;
  }

 private:
  struct Kept {
    std::uint32_t granules = 0;
    LoadedScript::Place place;
  };
  std::vector<Kept> kept_;
};

}  // namespace stalloc
