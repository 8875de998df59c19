// Instances that tests and benchmarks read: recorded training runs of bench/corpus and, where they lie beside the
// repository, minimalloc's public instances.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/packing/problem/problem.h"

namespace stalloc::planner {

// One recorded run as one problem: line format `iteration size alloc_tick free_tick`, gzip, free_tick -1 = never. Sizes
// are rounded up to 512, blocks that are never freed live to the end.
[[nodiscard]] absl::StatusOr<Problem> ReadRecordedRun(const std::string& path);

// The last iteration but one of a recorded run, lifetimes cut at its begin and end: one typical iteration alone, with
// what lives through it.
[[nodiscard]] absl::StatusOr<Problem> ReadRecordedIteration(const std::string& path);

struct NamedFile {
  std::string name;
  std::string path;
};

// Recorded runs under ROOT/bench/corpus, by name.
[[nodiscard]] std::vector<NamedFile> RecordedRuns(const std::string& root);
// Public instances under ROOT/../shared/traces/minimalloc, by name; empty where that folder is absent.
[[nodiscard]] std::vector<NamedFile> PublicInstances(const std::string& root);

// $STALLOC_SOURCE_DIR, which CTest sets; "." otherwise.
[[nodiscard]] std::string SourceRoot();

}  // namespace stalloc::planner
