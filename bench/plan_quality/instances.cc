#include "bench/plan_quality/instances.h"

#include <filesystem>
#include <iostream>
#include <utility>

#include "planner/packing/csv.h"
#include "tests/packing/corpus.h"

namespace stalloc::planner {
namespace {

constexpr Bytes kPublicCapacity = 1048576;

absl::StatusOr<Problem> ReadCsvProblem(const std::string& path) {
  absl::StatusOr<CsvInstance> csv = ReadCsvFile(path);
  if (!csv.ok()) return csv.status();
  return std::move(csv->problem);
}

}  // namespace

std::vector<BenchInstance> StandardInstances(const std::string& root) {
  std::vector<BenchInstance> instances;
  for (const NamedFile& file : RecordedRuns(root)) {
    instances.push_back({.name = file.name, .load = [path = file.path] { return ReadRecordedRun(path); }});
    instances.push_back(
        {.name = file.name + "/iteration", .load = [path = file.path] { return ReadRecordedIteration(path); }});
  }
  const std::vector<NamedFile> public_files = PublicInstances(root);
  if (public_files.empty()) std::cerr << "plan_quality_bench: minimalloc's instances are absent, left out\n";
  for (const NamedFile& file : public_files) {
    instances.push_back({.name = "minimalloc/" + file.name,
                         .load = [path = file.path] { return ReadCsvProblem(path); },
                         .capacity = kPublicCapacity});
  }
  return instances;
}

BenchInstance CsvInstanceOf(const std::string& path) {
  return {.name = std::filesystem::path(path).stem().string(), .load = [path] { return ReadCsvProblem(path); }};
}

}  // namespace stalloc::planner
