#include "allocator/base/check.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "allocator/base/log.h"

namespace stalloc {

void CheckFailed(const char* condition, const char* file, int line) noexcept {
  LogFatal("%s:%d: check failed: %s", file, line, condition);
  std::abort();
}

void CheckFailed(const char* condition, const char* file, int line, const char* format, ...) noexcept {
  char detail[512];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(detail, sizeof(detail), format, arguments);
  va_end(arguments);
  LogFatal("%s:%d: check failed: %s: %s", file, line, condition, detail);
  std::abort();
}

}  // namespace stalloc
