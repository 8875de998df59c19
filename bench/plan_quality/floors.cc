#include "bench/plan_quality/floors.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace stalloc::planner {
namespace {

constexpr absl::string_view kPublicPrefix = "minimalloc/";

Bytes HeightLimit(const Measurement& measurement, const Floor& floor) {
  if (measurement.capacity) return *measurement.capacity;
  return static_cast<Bytes>(std::floor(floor.ratio * static_cast<double>(measurement.load_bound)));
}

std::optional<std::string> MissOf(const Measurement& measurement, const Floor& floor) {
  const Bytes limit = HeightLimit(measurement, floor);
  const std::optional<double> reached = measurement.SecondsTo(limit);
  if (reached && *reached <= floor.seconds) return std::nullopt;
  return absl::StrFormat("%s: expected a height of at most %d (ratio %.5f) within %.1f s, found %s", floor.instance,
                         limit, static_cast<double>(limit) / static_cast<double>(measurement.load_bound), floor.seconds,
                         !measurement.finished ? "no packing"
                         : reached             ? absl::StrFormat("it after %.2f s", *reached)
                                   : absl::StrFormat("%d (ratio %.5f)", measurement.height, measurement.ratio()));
}

// Time to fit, or all the time that was spent in vain.
double PublicSeconds(const std::vector<Measurement>& measurements) {
  double total = 0;
  for (const Measurement& measurement : measurements) {
    if (!absl::StartsWith(measurement.instance, kPublicPrefix)) continue;
    total += measurement.SecondsTo(measurement.capacity.value_or(0)).value_or(measurement.seconds);
  }
  return total;
}

}  // namespace

const std::vector<Floor>& Floors() {
  static const std::vector<Floor> floors = {
      {"gpt_dense", 1.0, 2},
      {"gpt_moe16", 1.0, 5},
      {"megatron_moe_ep2_rank0", 1.0, 5},
      {"megatron_vpp_rank0", 1.0026, 5},
      {"minimalloc/A", 1.0, 3},
      {"minimalloc/B", 1.0, 3},
      {"minimalloc/C", 1.0, 3},
      {"minimalloc/D", 1.0, 3},
      {"minimalloc/E", 1.0, 3},
      {"minimalloc/F", 1.0, 3},
      {"minimalloc/G", 1.0, 3},
      {"minimalloc/H", 1.0, 3},
      {"minimalloc/I", 1.0, 3},
      {"minimalloc/J", 1.0, 3},
      {"minimalloc/K", 1.0, 3},
      {"synth/dense-25k", 1.001, 0.5},
      {"synth/recompute-25k", 1.0003, 0.5},
      {"synth/interleaved-25k", 1.001, 0.5},
      {"synth/varlen-25k", 1.0005, 5},
      {"synth/moe-25k", 1.0005, 5},
      {"synth/dense-200k", 1.001, 1},
      {"synth/recompute-200k", 1.0001, 1},
      {"synth/interleaved-200k", 1.001, 1},
      {"synth/varlen-200k", 1.001, 10},
      {"synth/moe-200k", 1.001, 10},
      {"synth/dense-1m", 1.001, 4},
      {"synth/recompute-1m", 1.0001, 4},
      {"synth/interleaved-1m", 1.001, 4},
      {"synth/varlen-1m", 1.002, 30},
      {"synth/moe-1m", 1.002, 30},
  };
  return floors;
}

const Floor* FloorOf(const std::string& instance) {
  const auto found =
      std::find_if(Floors().begin(), Floors().end(), [&](const Floor& floor) { return floor.instance == instance; });
  return found == Floors().end() ? nullptr : &*found;
}

std::vector<std::string> MissedFloors(const std::vector<Measurement>& measurements, Bytes peak_resident_bytes) {
  std::vector<std::string> misses;
  for (const Measurement& measurement : measurements) {
    const Floor* floor = FloorOf(measurement.instance);
    if (floor == nullptr) continue;
    if (const std::optional<std::string> miss = MissOf(measurement, *floor)) misses.push_back(*miss);
  }
  if (const double seconds = PublicSeconds(measurements); seconds > kPublicTotalSeconds) {
    misses.push_back(absl::StrFormat("%s*: expected at most %.1f s together, found %.2f s", kPublicPrefix,
                                     kPublicTotalSeconds, seconds));
  }
  if (peak_resident_bytes > kPeakResidentBytes) {
    misses.push_back(
        absl::StrFormat("expected at most %d bytes of memory, found %d", kPeakResidentBytes, peak_resident_bytes));
  }
  return misses;
}

}  // namespace stalloc::planner
