// The parts of a run that peaks are kept of.
#pragma once

#include <cstdint>

namespace stalloc {

enum class Span : std::uint8_t {
  kRun,
  kReset,      // since the program reset its peaks
  kPlan,       // since a plan was taken up
  kIteration,  // that runs
  kCount,
};

}  // namespace stalloc
