// What lies next to a trace, as a program left it: tokens of its micro-batches (rank00000.tokens.json), and the steps
// that ran after it, untraced or watched (rank00000.steps.json). Seconds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/whatif/device_model.h"
#include "planner/whatif/terms.h"

namespace stalloc::planner {

// How a trace's micro-batches compare with those of the trace whose sizes count.
struct SizesOfTrace {
  std::optional<double> most_tokens;  // of that trace; absent: the program reported none
  double rows = 1;                    // of a micro-batch, over that trace's
  double size = 1;                    // of a micro-batch, over that trace's, where tokens are not known
  double micro_batches = 1;           // of a step, where tokens are not known
};

struct TracedSteps {
  std::vector<Timed> free;           // what is new to a program is loaded and compiled in the first half: left out
  std::vector<WatchedStep> watched;  // only with tokens
  std::vector<Load> iterations;      // of the trace; only with tokens
};

// Tokens of the largest micro-batch of a trace, padding included; absent: there is no such file. Errors name the file.
[[nodiscard]] absl::StatusOr<std::optional<double>> ReadMostTokens(const std::string& trace);

// All is empty where there are no files. Errors name the file.
[[nodiscard]] absl::StatusOr<TracedSteps> ReadTracedSteps(const std::string& trace, const SizesOfTrace& sizes);

// For a traced run and, where there is one, of the same program with another micro-batch.
struct StepsOfRun {
  std::vector<TracedSteps> traces;
  bool together = false;  // attention takes packed rows of a micro-batch for one row
  double usual = 1;       // the mean micro-batch of the first trace's free steps, over the largest traced one
};
[[nodiscard]] std::vector<WatchedStep> WatchedIn(const std::vector<TracedSteps>& traces);
struct RunFiles {
  std::string trace;
  std::string beside;        // empty: none
  double ratio = 0;          // its micro-batch over the first's
  double rows = 1;           // the same in rows
  double micro_batches = 1;  // of a traced step
  bool packed = false;       // rows lie one after the other, without padding
};
[[nodiscard]] absl::StatusOr<StepsOfRun> ReadStepsOfRun(const RunFiles& files);

}  // namespace stalloc::planner
