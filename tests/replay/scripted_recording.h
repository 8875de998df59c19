// The recording that a script of tests/analysis/trace_script.h makes, for tests.
#pragma once

#include <string>

#include "bench/replay/recording.h"
#include "tests/analysis/trace_script.h"

namespace stalloc::bench {

[[nodiscard]] inline Recording Cut(const std::string& script) {
  return CutRecording(planner::TraceFromScript(script), "script").value();
}

}  // namespace stalloc::bench
