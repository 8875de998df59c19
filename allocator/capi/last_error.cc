#include "allocator/capi/last_error.h"

#include <array>
#include <cstdio>

namespace stalloc {
namespace {

// An array, not a string: it has no destructor, so a thread may still query while its other thread-locals go.
thread_local std::array<char, 2048> t_message{};

}  // namespace

const char* LastError() noexcept { return t_message.data(); }

void SetLastError(const std::string& message) noexcept {
  std::snprintf(t_message.data(), t_message.size(), "%s", message.c_str());
}

}  // namespace stalloc
