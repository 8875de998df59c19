// What serving what a plan cannot know must reach, as data (replay_bench --floors).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/replay/experiment.h"

namespace stalloc::bench {

// Held / peak live of recorded runs, planned from some iterations, others served one after the other; or the mean over
// all orders.
struct Floor {
  std::string name;
  std::string run;  // a file of bench/corpus
  std::uint32_t scale = 1;
  bool cut_tail = false;
  bool all_orders = false;
  double edited_share = 0;
  double late_share = 0;  // of the frees
  std::vector<std::size_t> planned = {0, 1, 2};
  std::vector<std::size_t> served = {3};
  double ratio = 1;  // at most
};

[[nodiscard]] const std::vector<Floor>& Floors();
// By name; no name: all. InvalidArgument names what there is.
[[nodiscard]] absl::StatusOr<std::vector<Floor>> ChosenFloors(const std::vector<std::string>& names);

struct FloorResult {
  Floor floor;
  std::vector<Experiment> experiments;

  [[nodiscard]] bool held() const { return RatioSpread(experiments).mean <= floor.ratio; }
};

// `root`: the repository. `options`: those that the floor does not set.
[[nodiscard]] absl::StatusOr<FloorResult> MeasureFloor(const Floor& floor, const std::string& root,
                                                       const ExperimentOptions& options);

}  // namespace stalloc::bench
