#include "bench/replay/floors.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/replay/edits.h"

namespace stalloc::bench {
namespace {

// A workload of bench/unseen, from seed 5, which nothing was chosen on.
Floor Unseen(const std::string& name) {
  return {.name = "unseen/" + name,
          .run = "unseen/" + name + ".trace",
          .scale = 256,
          .planned = {0, 1, 2, 3},
          .served = {4, 5, 6, 7, 8},
          .ratio = 1.003};
}

}  // namespace

const std::vector<Floor>& Floors() {
  constexpr double kEdited = 0.005;
  static const std::vector<Floor> floors = {
      {.name = "gpt_moe16", .run = "gpt_moe16.txt.gz", .ratio = 1.001},
      {.name = "gpt_moe16/tail-cut", .run = "gpt_moe16.txt.gz", .cut_tail = true, .ratio = 1.004},
      {.name = "megatron_moe_ep2", .run = "megatron_moe_ep2_rank0.txt.gz", .all_orders = true, .ratio = 1.004},
      {.name = "gpt_moe16/edited", .run = "gpt_moe16.txt.gz", .edited_share = kEdited, .ratio = 1.01},
      {.name = "gpt_moe16/tail-cut/edited",
       .run = "gpt_moe16.txt.gz",
       .cut_tail = true,
       .edited_share = kEdited,
       .ratio = 1.01},
      {.name = "megatron_moe_ep2/edited",
       .run = "megatron_moe_ep2_rank0.txt.gz",
       .all_orders = true,
       .edited_share = kEdited,
       .ratio = 1.01},
      {.name = "megatron_vpp/late", .run = "megatron_vpp_rank0.txt.gz", .late_share = 0.01, .ratio = 1.015},
      {.name = "megatron_vpp/late-5", .run = "megatron_vpp_rank0.txt.gz", .late_share = 0.05, .ratio = 1.018},
      // An evaluation follows iteration 3.
      {.name = "megatron_vpp/evaluated", .run = "megatron_vpp_rank0.txt.gz", .served = {3, 1, 2}, .ratio = 1.003},
      // Toy runs as large as real ones. The first two only judge (bench/unseen/halves.py).
      Unseen("conv-multiscale"),
      Unseen("vit"),
      Unseen("gan"),
      Unseen("var-bucket"),
  };
  return floors;
}

absl::StatusOr<std::vector<Floor>> ChosenFloors(const std::vector<std::string>& names) {
  if (names.empty()) return Floors();
  std::vector<Floor> chosen;
  for (const std::string& name : names) {
    const auto found =
        std::find_if(Floors().begin(), Floors().end(), [&](const Floor& floor) { return floor.name == name; });
    if (found == Floors().end()) {
      const auto append = [](std::string* out, const Floor& floor) { *out += floor.name; };
      return absl::InvalidArgumentError(
          absl::StrCat("--floor: expected names of ", absl::StrJoin(Floors(), ", ", append), "; found ", name));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

absl::StatusOr<FloorResult> MeasureFloor(const Floor& floor, const std::string& root,
                                         const ExperimentOptions& options) {
  absl::StatusOr<Recording> recording = ReadRecording(absl::StrCat(root, "/bench/corpus/", floor.run));
  if (!recording.ok()) return recording.status();
  Scale(&*recording, floor.scale);
  if (floor.cut_tail) {
    if (absl::Status status = CutCommonTail(&*recording); !status.ok()) return status;
  }
  ExperimentOptions chosen = options;
  if (chosen.card == 0) chosen.card = floor.ratio;  // the run is to train in so much
  chosen.edited_share = floor.edited_share;
  chosen.late_share = floor.late_share;
  chosen.planned = floor.planned;
  chosen.served = floor.served;
  FloorResult result{.floor = floor, .experiments = {}};
  if (floor.all_orders) {
    absl::StatusOr<std::vector<Experiment>> experiments = RunAllOrders(*recording, chosen);
    if (!experiments.ok()) return experiments.status();
    result.experiments = *std::move(experiments);
  } else {
    absl::StatusOr<Experiment> experiment = RunExperiment(*recording, chosen);
    if (!experiment.ok()) return experiment.status();
    result.experiments.push_back(*std::move(experiment));
  }
  for (Experiment& experiment : result.experiments) experiment.name = floor.name;
  return result;
}

}  // namespace stalloc::bench
