// Whether a plan is worth it for a traced run: what each allocator would hold, in a sentence for people. Pure.
#pragma once

#include <string>

#include "planner/analysis/rank_report.h"
#include "proto/model/plan.h"

namespace stalloc::planner {

// "native would hold 48.3 GiB, expandable_segments 24.7 GiB, stalloc 23.3 GiB: worth 25 GiB against native, ...".
// `plan`: as the device would be served, where the report has none of its own; may be null: what is live is then the
// least that stalloc holds. `card_bytes`: memory of the card, which plays no part on a CPU; 0: not known. Empty where
// nothing was allocated.
[[nodiscard]] std::string WorthText(const DeviceReport& device, const DevicePlan* plan, Bytes card_bytes);

}  // namespace stalloc::planner
