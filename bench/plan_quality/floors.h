// What the portfolio must reach, as data, and the check of measurements against it (plan_quality_bench --floors).
#pragma once

#include <string>
#include <vector>

#include "bench/plan_quality/measurement.h"

namespace stalloc::planner {

// On two cores: a packing at most ratio * load bound high, or of the capacity where the instance has one, within so
// many seconds of solving.
struct Floor {
  std::string instance;
  double ratio = 1;
  double seconds = 0;
};

[[nodiscard]] const std::vector<Floor>& Floors();
// Null: this instance has no floor.
[[nodiscard]] const Floor* FloorOf(const std::string& instance);

// Of minimalloc's instances together.
inline constexpr double kPublicTotalSeconds = 10;
// Greatest resident size of the process, whatever it solved.
inline constexpr Bytes kPeakResidentBytes = Bytes{2} << 30;

// One sentence for each floor that is missed. Measurements of instances without a floor are passed over, and so are
// floors of instances that were not measured.
[[nodiscard]] std::vector<std::string> MissedFloors(const std::vector<Measurement>& measurements,
                                                    Bytes peak_resident_bytes);

}  // namespace stalloc::planner
