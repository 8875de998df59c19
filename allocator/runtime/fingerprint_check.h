// What differs between the run that a plan was made for and this one.
#pragma once

#include <string>
#include <vector>

#include "proto/model/plan.h"
#include "proto/model/trace.h"

namespace stalloc {

// One sentence part for each difference that makes a plan unusable, "rank: plan 1, this run 0". What either side does
// not know (empty or 0) is no difference. Versions of torch are compared as major.minor, memory sizes to within 2 %
// (drivers keep different amounts for themselves), on GPUs only.
[[nodiscard]] std::vector<std::string> Differences(const Fingerprint& plan, const Fingerprint& run);

// The same for the device: empty, or "device: plan cpu, this run cuda:0".
[[nodiscard]] std::string DeviceDifference(const Plan& plan, DeviceIndex device);

// Empty, or "script: plan train.py, this run eval.py": worth a warning, no more.
[[nodiscard]] std::string ScriptDifference(const Fingerprint& plan, const Fingerprint& run);

// "a; b; c"
[[nodiscard]] std::string Join(const std::vector<std::string>& parts);

}  // namespace stalloc
