// Log: one line to stderr by one write(2), without heap memory; usable from any thread, inside an allocator and after
// fork().
//
//   stalloc[rank 3] W plan miss: expected 4096 bytes, found 8192
//
// A line is formatted on the stack (at most kMaxLogLine bytes; what is longer ends in "...") and written in one call,
// so lines of several threads and ranks do not mix. Level, rank and launch are set once, by the code that reads the
// configuration. Of a warning or an error that several ranks of a launch have on one machine, the first is printed.
// The hot path never logs; where something may repeat, use a LogThrottle.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace stalloc {

// For a line; as a level, the least that is printed. kOff is a level alone: nothing is printed but LogFatal's line.
enum class LogSeverity : std::uint8_t { kDebug, kInfo, kWarning, kError, kOff };

inline constexpr std::size_t kMaxLogLine = 1024;
inline constexpr LogSeverity kDefaultLogLevel = LogSeverity::kInfo;

void SetLogLevel(LogSeverity level) noexcept;
// The N in "stalloc[rank N]"; before the first call it is "?".
void SetLogRank(std::uint32_t rank) noexcept;
// A number that the ranks of this launch share, and no other launch has; 0 (the start value): every rank prints
// everything.
void SetLogLaunch(std::uint64_t launch) noexcept;
[[nodiscard]] bool LogEnabled(LogSeverity severity) noexcept;

// printf-style. Keep to %s, %d, %u, %zu, %llu and the like: glibc formats those without malloc. Preserves errno.
[[gnu::format(printf, 2, 3)]] void Log(LogSeverity severity, const char* format, ...) noexcept;
// Why the process ends: at any level, and of every rank.
[[gnu::format(printf, 1, 2)]] void LogFatal(const char* format, ...) noexcept;

// Where lines go: null (the start value) is stderr. For tests; the function must be async-signal-safe in spirit.
using LogSink = void (*)(const char* line, std::size_t length);
void SetLogSink(LogSink sink) noexcept;

// Lets the first `first` calls pass, then only those at each doubling of the count: 4, 8, 16... A flood stays visible
// by its count and silent in its bulk. No clock. Thread-safe; constexpr, so it can be a static at the call.
class LogThrottle {
 public:
  explicit constexpr LogThrottle(std::uint64_t first) noexcept : first_(first) {}

  // Counts the call; true when its line should be printed.
  [[nodiscard]] bool Pass() noexcept {
    const std::uint64_t count = count_.fetch_add(1, std::memory_order_relaxed) + 1;
    return count <= first_ || (count & (count - 1)) == 0;
  }
  // Calls so far, to print with the message.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

 private:
  const std::uint64_t first_;
  std::atomic<std::uint64_t> count_{0};
};

}  // namespace stalloc
