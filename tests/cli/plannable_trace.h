// A trace that can be planned: set-up and four iterations that are alike but for some state.
#pragma once

#include <string>

#include "tests/analysis/trace_script.h"

namespace stalloc::planner {

inline const std::string kPlannableScript =
    "INIT +w=4096 I F0 +a=1024 +b=2048 -a +c=1024 -b -c +s=512 " + Repeat("I F0 +a=1024 +b=2048 -a +c=1024 -b -c", 3);

inline Trace MakeTrace() { return TraceFromScript(kPlannableScript); }

}  // namespace stalloc::planner
