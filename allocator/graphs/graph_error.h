// Why this thread's last launch of a graph was refused, in words. One text per thread, valid until its next refusal.
#pragma once

#include <cstdint>

#include "allocator/graphs/launch_listener.h"

namespace stalloc {

// Never null. "": none was refused.
[[nodiscard]] const char* GraphError() noexcept;
// The same, once for each refusal; after that "".
[[nodiscard]] const char* TakeGraphError() noexcept;
// Words it, and logs it as an error; not each one of many. REQUIRES: the verdict is not kLaunch.
void SetGraphError(const LaunchListener::Answer& answer, std::uint32_t pool, GraphId graph) noexcept;

}  // namespace stalloc
