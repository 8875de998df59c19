#include "planner/cli/timed_trace.h"

#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "planner/cli/flags.h"
#include "planner/cli/read_trace.h"

ABSL_FLAG(std::string, beside, "",
          "A second `TRACE` of the program, with another micro-batch: sizes are fitted to both.");
ABSL_FLAG(double, ratio, 0, "The second trace's micro-batch over the first's: `R`.");

namespace stalloc::planner {

absl::StatusOr<TimedTrace> ReadTimedTrace(const std::string& path) {
  TimedTrace timed;
  const auto keep = [&](const Trace& chunk, const std::vector<BlockUse>& uses) {
    timed.clock.Take(chunk);
    timed.uses.insert(timed.uses.end(), uses.begin(), uses.end());
  };
  absl::StatusOr<TracedRank> traced = ReadTracedRank(path, {}, keep);
  if (!traced.ok()) return traced.status();
  timed.traced = *std::move(traced);
  return timed;
}

absl::StatusOr<std::optional<TimedTrace>> ReadBeside() {
  const std::string path = absl::GetFlag(FLAGS_beside);
  if (path.empty()) return std::nullopt;
  absl::StatusOr<TimedTrace> timed = ReadTimedTrace(path);
  if (!timed.ok()) return timed.status();
  return std::optional<TimedTrace>(*std::move(timed));
}

std::string WrongBeside() {
  const double ratio = absl::GetFlag(FLAGS_ratio);
  if (absl::GetFlag(FLAGS_beside).empty() || (ratio > 0 && ratio != 1)) return "";
  return absl::StrCat("--beside needs a --ratio above 0 other than 1, found: ", ratio);
}

}  // namespace stalloc::planner
