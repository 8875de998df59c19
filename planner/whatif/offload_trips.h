// When what an offloaded layer saves leaves the device and comes back, and how long a step waits for its copies: as
// stalloc.apply has it (patches/stalloc/train/changes/stations.py). Events, nanoseconds, bytes. Pure.
//
//   stations of a pass     | 0 | 1 | 2 | 3 | ....... | 3 | 2 | 1 | 0 |
//   layer 0, on the device |-- saved -----|             |-------------|
//   copies                 |--------|                   |---|
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/analysis/sweep.h"
#include "planner/whatif/layer_visits.h"

namespace stalloc::planner {

// For a visit: until and from when its blocks are on the device.
struct OffloadPlace {
  std::uint64_t gone = 0;
  std::uint64_t back = 0;

  [[nodiscard]] bool leaves() const { return gone < back; }
};

// By visit. Stations are the layers that are called alike, the outermost of a visit's path that is one of many; a pass
// is the visit around them. `names`: of layers, as LayerVisit::name counts them; `visits`: ascending.
[[nodiscard]] std::vector<OffloadPlace> FindOffloadPlaces(const std::vector<std::string>& names,
                                                          const std::vector<LayerVisit>& visits);

// One visit's copies: out from `saved` on, needed out by `gone`; back from `back` on, needed there by `needed`.
struct OffloadTrip {
  std::int64_t saved_ns = 0;
  std::int64_t gone_ns = 0;
  std::int64_t back_ns = 0;
  std::int64_t needed_ns = 0;
  Bytes bytes = 0;
};

// How much longer the passes take: what of the copies does not fit into the time that they have. Each direction copies
// one trip after the other, both at once.
[[nodiscard]] std::int64_t StallOf(const std::vector<OffloadTrip>& trips, double bytes_per_ns);

// The most that is on the host at one time.
[[nodiscard]] Bytes MostOnHost(const std::vector<OffloadTrip>& trips);

}  // namespace stalloc::planner
