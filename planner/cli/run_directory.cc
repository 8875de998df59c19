#include "planner/cli/run_directory.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace stalloc::planner {

absl::StatusOr<std::vector<std::uint32_t>> RunDirectory::TracedRanks() const {
  const std::string directory = path_ + "/trace";
  std::error_code error;
  if (std::filesystem::is_regular_file(path_, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, " is a file; expected the directory of a run, in which trace/rank00000.trace is"));
  }
  std::filesystem::directory_iterator entries(directory, error);
  if (error) {
    return absl::NotFoundError(absl::StrCat("cannot read ", directory, " (", error.message(),
                                            "): run the training script with STALLOC_MODE=Trace and "
                                            "STALLOC_MODEL_INFO_PATH=",
                                            path_, " first"));
  }
  std::vector<std::uint32_t> ranks;
  for (const auto& entry : entries) {
    if (const auto rank = RankOfTraceName(entry.path().filename().string()); rank.has_value()) {
      ranks.push_back(*rank);
    }
  }
  if (ranks.empty()) {
    return absl::NotFoundError(absl::StrCat("no trace in ", directory,
                                            " (expected rank00000.trace and so on): run the training script with "
                                            "STALLOC_MODE=Trace first"));
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string RunDirectory::TracePath(std::uint32_t rank) const {
  return absl::StrFormat("%s/trace/rank%05d.trace", path_, rank);
}

std::string RunDirectory::PlanPath(std::uint32_t rank) const {
  return absl::StrFormat("%s/output/plan/rank%05d.plan", written_, rank);
}

std::string RunDirectory::RunningPlanPath(std::uint32_t rank) const {
  return absl::StrFormat("%s/output/plan/rank%05d.running.plan", written_, rank);
}

std::string RunDirectory::SignaturePath(std::uint32_t rank) const {
  return absl::StrFormat("%s/output/plan/rank%05d.signature.json", written_, rank);
}

std::string RunDirectory::ObservedPath(std::uint32_t rank) const {
  return absl::StrFormat("%s/output/observed/rank%05d.observed", path_, rank);
}

std::string RunDirectory::ReportPath(std::uint32_t rank, const std::string& extension) const {
  return absl::StrFormat("%s/output/trace_analysis/rank%05d.%s", written_, rank, extension);
}

std::optional<std::uint32_t> RankOfTraceName(const std::string& name) {
  absl::string_view digits = name;
  std::uint32_t rank = 0;
  if (!absl::ConsumePrefix(&digits, "rank") || !absl::ConsumeSuffix(&digits, ".trace") || digits.size() < 5 ||
      digits.find_first_not_of("0123456789") != absl::string_view::npos || !absl::SimpleAtoi(digits, &rank)) {
    return std::nullopt;
  }
  return rank;
}

}  // namespace stalloc::planner
