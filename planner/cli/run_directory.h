// The directory of a run, $STALLOC_MODEL_INFO_PATH: which traces it has, and where their plans and reports go.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace stalloc::planner {

class RunDirectory {
 public:
  explicit RunDirectory(std::string path) : RunDirectory(path, path) {}
  // Plans and reports go to another place than the traces'.
  RunDirectory(std::string path, std::string written) : path_(std::move(path)), written_(std::move(written)) {}

  // Ranks that have a trace, ascending. NotFound if the directory or all traces are missing; the message says what to
  // do.
  [[nodiscard]] absl::StatusOr<std::vector<std::uint32_t>> TracedRanks() const;

  [[nodiscard]] std::string TracePath(std::uint32_t rank) const;        // trace/rank00000.trace
  [[nodiscard]] std::string PlanPath(std::uint32_t rank) const;         // output/plan/rank00000.plan
  [[nodiscard]] std::string RunningPlanPath(std::uint32_t rank) const;  // output/plan/rank00000.running.plan
  // For what the run requests, which the package counts: output/plan/rank00000.signature.json
  [[nodiscard]] std::string SignaturePath(std::uint32_t rank) const;
  [[nodiscard]] std::string ObservedPath(std::uint32_t rank) const;  // output/observed/rank00000.observed
  // output/trace_analysis/rank00000.<extension>
  [[nodiscard]] std::string ReportPath(std::uint32_t rank, const std::string& extension) const;

 private:
  std::string path_;
  std::string written_;
};

// Rank of "rank00012.trace"; nullopt for any other name.
[[nodiscard]] std::optional<std::uint32_t> RankOfTraceName(const std::string& name);

}  // namespace stalloc::planner
