// Solves each packing problem once, whichever of the ranks that have it comes first. Nobody waits on a thread: who
// comes while another solves is called back. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/analysis/rank_planner.h"

namespace stalloc::planner {

using SharedPacking = std::shared_ptr<const absl::StatusOr<RankPacking>>;

class SharedPackings {
 public:
  using Solve = std::function<absl::StatusOr<RankPacking>()>;
  using Then = std::function<void(SharedPacking)>;

  // Calls `then` once: on this thread, after `solve` if nobody has begun on `key`; or on the thread of who solves it
  // now, when that is done. `then` had better be short.
  void Use(const ProblemKey& key, const Solve& solve, Then then);

 private:
  struct Entry {
    SharedPacking packing;  // null while it is being solved
    std::vector<Then> waiting;
  };
  std::mutex mutex_;
  std::map<ProblemKey, Entry> entries_;
};

}  // namespace stalloc::planner
