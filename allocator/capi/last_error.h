// The text of stalloc_last_error: one per thread, valid until the thread's next call.
#pragma once

#include <string>

namespace stalloc {

// Never null. "" when nothing went wrong yet.
[[nodiscard]] const char* LastError() noexcept;
// What stalloc_last_error returns to this thread from now on.
void SetLastError(const std::string& message) noexcept;

}  // namespace stalloc
