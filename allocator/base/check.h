// STALLOC_CHECK: a programmer's error prints one line and aborts, always. STALLOC_DCHECK: only in the checked build.
//
//   STALLOC_CHECK(slot < slots_.size());
//   STALLOC_CHECK(slot < slots_.size(), "slot %zu of %zu", slot, slots_.size());   // printf-style detail
//
// Not for bad input, which is an error to return. A failed check takes no heap memory. In an ordinary build the
// condition of a DCHECK is compiled but not evaluated.
#pragma once

namespace stalloc {

[[noreturn, gnu::cold]] void CheckFailed(const char* condition, const char* file, int line) noexcept;
[[noreturn, gnu::cold, gnu::format(printf, 4, 5)]] void CheckFailed(const char* condition, const char* file, int line,
                                                                    const char* format, ...) noexcept;

}  // namespace stalloc

#define STALLOC_CHECK(condition, ...)    \
  (__builtin_expect(!!(condition), true) \
       ? static_cast<void>(0)            \
       : ::stalloc::CheckFailed(#condition, __FILE__, __LINE__ __VA_OPT__(, ) __VA_ARGS__))

#if defined(STALLOC_CHECKED)
#define STALLOC_DCHECK(...) STALLOC_CHECK(__VA_ARGS__)
#else
#define STALLOC_DCHECK(...) static_cast<void>(sizeof((STALLOC_CHECK(__VA_ARGS__), 0)))
#endif
