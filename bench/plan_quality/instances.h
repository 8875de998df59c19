// The instances that plan_quality runs: recorded runs, one typical iteration of each, minimalloc's public instances,
// and files that the caller names. Each is read when it is needed, so that only one is in memory.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/packing/problem/problem.h"

namespace stalloc::planner {

struct BenchInstance {
  std::string name;
  std::function<absl::StatusOr<Problem>()> load;
  std::optional<Bytes> capacity = std::nullopt;  // what the instance requires, where that is more than the load bound
};

// What lies below `root`, the repository; minimalloc's instances are left out, with a line on standard error, where
// they are absent.
[[nodiscard]] std::vector<BenchInstance> StandardInstances(const std::string& root);

// Each preset of `stalloc-planner synth` at 25 k, 200 k and 1 M blocks: synth/PRESET-25k and so on.
[[nodiscard]] std::vector<BenchInstance> SyntheticInstances();

// A file in the public CSV format (planner/packing/problem/csv.h), called by its name without folders and ending.
[[nodiscard]] BenchInstance CsvInstanceOf(const std::string& path);

}  // namespace stalloc::planner
