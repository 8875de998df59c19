// For functions of the C ABI: nothing leaves them but a number and the thread's last error.
#pragma once

#include <exception>
#include <utility>

#include "allocator/capi/last_error.h"
#include "proto/model/result.h"

namespace stalloc {

// Runs `call` so that nothing leaves it; 0, or 1 with the thread's last error set.
template <typename Call>
int Guarded(Call&& call) noexcept {
  try {
    const Status status = call();
    if (status.ok()) return 0;
    SetLastError(status.error());
  } catch (const std::exception& error) {
    SetLastError(error.what());
  } catch (...) {
    SetLastError("unknown exception");
  }
  return 1;
}

}  // namespace stalloc
