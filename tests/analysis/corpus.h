// The recorded runs of bench/corpus as traces: one device, one stream, iteration marks where the first column changes.
#pragma once

#include <string>

#include "proto/model/trace.h"

namespace stalloc::planner {

// `name` without ".txt.gz". Throws std::runtime_error if it cannot be read.
[[nodiscard]] Trace ReadCorpus(const std::string& name);

}  // namespace stalloc::planner
