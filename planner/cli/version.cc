#include "planner/cli/version.h"

namespace stalloc::planner {

const char* Version() { return STALLOC_VERSION; }

}  // namespace stalloc::planner
