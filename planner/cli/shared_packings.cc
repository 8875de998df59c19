#include "planner/cli/shared_packings.h"

#include <utility>

namespace stalloc::planner {

void SharedPackings::Use(const ProblemKey& key, const Solve& solve, Then then) {
  Entry* entry = nullptr;  // entries never move
  SharedPacking solved;
  {
    const std::lock_guard lock(mutex_);
    const auto [found, is_first] = entries_.try_emplace(key);
    entry = &found->second;
    solved = entry->packing;
    if (!is_first && solved == nullptr) {
      entry->waiting.push_back(std::move(then));
      return;
    }
  }
  std::vector<Then> waiting;
  if (solved == nullptr) {
    solved = std::make_shared<const absl::StatusOr<RankPacking>>(solve());
    const std::lock_guard lock(mutex_);
    entry->packing = solved;
    waiting = std::exchange(entry->waiting, {});
  }
  then(solved);
  for (const Then& other : waiting) other(solved);
}

}  // namespace stalloc::planner
