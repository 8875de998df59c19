// The recorded runs of bench/corpus as traces: one device, one stream, iteration marks where the first column changes.
#pragma once

#include <string>

#include "proto/model/trace.h"

namespace stalloc::planner {

// `name` without ".txt.gz", below $STALLOC_SOURCE_DIR or here. Both throw std::runtime_error if it cannot be read.
[[nodiscard]] Trace ReadCorpus(const std::string& name);
[[nodiscard]] Trace ReadCorpusFile(const std::string& path);

}  // namespace stalloc::planner
