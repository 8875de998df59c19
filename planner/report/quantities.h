// Bytes, shares and times for people.
#pragma once

#include <string>

#include "proto/model/units.h"

namespace stalloc::planner {

// "34.93 GiB", "96.0 MiB", "512 B": the largest binary unit of which there is at least one, in four figures or so.
[[nodiscard]] std::string FormatBytes(Bytes bytes);

// "99.87 %" of a share in [0, 1]; "-" for 0, which stands for not known.
[[nodiscard]] std::string FormatShare(double share);

// "0.04 s".
[[nodiscard]] std::string FormatSeconds(double seconds);

// "optimal" where the arena is as high as its proved bound, else "within 96.0 MiB (0.22 %) of the bound 37.18 GiB".
[[nodiscard]] std::string DistanceText(Bytes arena, Bytes lower_bound);

// "packing 1.00219 x the bound (37.26 GiB)", "packing at the bound (37.18 GiB)".
[[nodiscard]] std::string PackingProgressText(Bytes height, Bytes lower_bound);

}  // namespace stalloc::planner
