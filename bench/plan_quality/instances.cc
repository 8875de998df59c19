#include "bench/plan_quality/instances.h"

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/packing/problem/csv.h"
#include "planner/synth/generator.h"
#include "planner/synth/options.h"
#include "planner/synth/trace_problem.h"
#include "tests/packing/corpus.h"

namespace stalloc::planner {
namespace {

constexpr Bytes kPublicCapacity = 1048576;

absl::StatusOr<Problem> ReadCsvProblem(const std::string& path) {
  absl::StatusOr<CsvInstance> csv = ReadCsvFile(path);
  if (!csv.ok()) return csv.status();
  return std::move(csv->problem);
}

struct Scale {
  const char* name;
  std::uint64_t blocks;
};
constexpr Scale kScales[] = {{"25k", 25'000}, {"200k", 200'000}, {"1m", 1'000'000}};

absl::StatusOr<Problem> SynthesizeProblem(const SynthOptions& preset, std::uint64_t blocks) {
  const absl::StatusOr<SynthOptions> options = ScaleToBlocks(preset, blocks);
  if (!options.ok()) return options.status();
  const absl::StatusOr<Trace> trace = Synthesize(*options);
  if (!trace.ok()) return trace.status();
  return ProblemOfTrace(*trace);
}

}  // namespace

std::vector<BenchInstance> SyntheticInstances() {
  std::vector<BenchInstance> instances;
  for (const Scale& scale : kScales) {
    for (const SynthPreset& preset : SynthPresets()) {
      instances.push_back(
          {.name = absl::StrCat("synth/", preset.name, "-", scale.name),
           .load = [&preset, blocks = scale.blocks] { return SynthesizeProblem(preset.options, blocks); }});
    }
  }
  return instances;
}

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
