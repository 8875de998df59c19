// Seconds of a step, as it was traced and with a choice, from what was traced and from the steps that ran untraced
// after it. Pure.
//
//   step = rest + micro-batches x (fixed + size x growing) + what recomputed and offloaded layers cost
//
// Where the size is the length of sequences, attention adds a part that grows with its square, and nothing is fixed: so
// long a sequence keeps the device busy. A size is a multiple of the largest traced micro-batch. Iterations are slower
// while they are traced: where some ran after the trace, theirs are the times of passes, and the trace shows only what
// is in them. Where the device was watched in some of them, of several sizes, passes are device_model.h's. Whatever
// else a machine does makes steps longer and none shorter, and so does an evaluation between two: a quarter of the
// steps lie below the line that is taken (LineBelow).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "planner/whatif/device_model.h"
#include "planner/whatif/terms.h"

namespace stalloc::planner {

// Forward passes of a layer in each iteration of a trace: LayerUnit's.
struct LayerTimes {
  std::string name;
  std::vector<std::int64_t> iteration_ns;
};

// The times in traces. All of the second trace is absent where there is none.
struct TracedTimes {
  double rest = 0;    // seconds of a step that are in no pass
  double passes = 0;  // seconds of all passes of a step
  std::optional<double> other_passes;
  double ratio = 0;                  // the second trace's micro-batch over the first's
  double micro_batches = 1;          // of a traced step
  bool of_length = false;            // sizes are lengths of sequences
  std::vector<Timed> free;           // steps of both that ran untraced
  std::vector<WatchedStep> watched;  // of both
  std::vector<std::pair<std::vector<LayerTimes>, std::vector<Load>>> layers;  // of each, with its iterations' loads
};

// Seconds that a choice costs in a step as it was traced.
struct ChoiceSeconds {
  double growing = 0;                   // as passes do
  double fixed = 0;                     // whatever the size
  double forward = 0;                   // of `growing`, forward passes of recomputed layers as they were traced
  std::vector<std::string> recomputed;  // layers
};

class StepCost {
 public:
  explicit StepCost(const TracedTimes& traced);

  // All passes of a step. `again`: of what is recomputed in a micro-batch, where the device is known.
  [[nodiscard]] double Passes(const Load& load, const Terms& again = {}) const;
  [[nodiscard]] double Seconds(const Load& load, const ChoiceSeconds& choice = {}) const;
  // Whether a step may take longer than Seconds says: the host bounds those that were traced.
  [[nodiscard]] bool AtLeast(const Load& load) const;
  // For a step, 0 to 1: of the parts that the host bounds; absent where the device was not watched.
  [[nodiscard]] std::optional<double> HostShare(const Load& load) const;

 private:
  [[nodiscard]] double With(const Load& load, double growing, double fixed, const Terms& again) const;
  // For a micro-batch; absent where not all are known.
  [[nodiscard]] std::optional<Terms> Again(const std::vector<std::string>& layers) const;
  void TakeFreeSteps(const TracedTimes& traced);
  void TakeLayers(const TracedTimes& traced);

  double micro_batches_ = 1;
  double rest_ = 0;              // seconds of a step that are in no micro-batch
  double fixed_ = 0;             // of a micro-batch of any size
  double growing_ = 0;           // of a micro-batch of size 1
  double square_ = 0;            // the same, growing with the square of its size
  double traced_passes_ = 0;     // of all micro-batches of a step, while it was traced
  std::optional<double> known_;  // the host bounds what was traced: of larger micro-batches too little is known
  std::optional<DeviceModel> device_;
  absl::flat_hash_map<std::string, Terms> forward_;  // of layers
};

}  // namespace stalloc::planner
