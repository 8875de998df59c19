#include "allocator/base/log.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "allocator/base/alike.h"

namespace stalloc {
namespace {

constexpr std::int64_t kUnknownRank = -1;

std::atomic<LogSeverity> log_level{kDefaultLogLevel};
std::atomic<std::int64_t> log_rank{kUnknownRank};
std::atomic<std::uint64_t> log_launch{0};
std::atomic<LogSink> log_sink{nullptr};

char SeverityLetter(LogSeverity severity) {
  constexpr char kLetters[] = {'D', 'I', 'W', 'E'};
  return kLetters[std::min(static_cast<int>(severity), 3)];
}

// Length of the prefix written to `line`.
std::size_t FormatPrefix(char* line, std::size_t size, LogSeverity severity) {
  const std::int64_t rank = log_rank.load(std::memory_order_relaxed);
  const char letter = SeverityLetter(severity);
  const int length = rank == kUnknownRank
                         ? std::snprintf(line, size, "stalloc[rank ?] %c ", letter)
                         : std::snprintf(line, size, "stalloc[rank %lld] %c ", static_cast<long long>(rank), letter);
  return static_cast<std::size_t>(std::max(length, 0));
}

void WriteToStderr(const char* line, std::size_t length) {
  while (length > 0) {
    const ssize_t written = write(STDERR_FILENO, line, length);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nowhere left to complain
    line += written;
    length -= static_cast<std::size_t>(written);
  }
}

// `always`: though another rank has printed a line of its kind.
void Print(LogSeverity severity, bool always, const char* format, std::va_list arguments) noexcept {
  const int saved_errno = errno;
  char line[kMaxLogLine];
  const std::size_t prefix = FormatPrefix(line, sizeof(line), severity);
  std::size_t length = prefix;
  const int body = std::vsnprintf(line + length, sizeof(line) - length, format, arguments);
  if (body > 0) length += static_cast<std::size_t>(body);

  constexpr char kCut[] = "...";
  constexpr std::size_t kRoom = kMaxLogLine - 1;  // the last byte is the newline's
  if (length > kRoom) {
    length = kRoom;
    std::memcpy(line + length - (sizeof(kCut) - 1), kCut, sizeof(kCut) - 1);
  }
  const std::uint64_t launch = log_launch.load(std::memory_order_relaxed);
  if (always || launch == 0 || SaysFirst(launch, KindOfLine(line + prefix, length - prefix))) {
    line[length++] = '\n';
    const LogSink sink = log_sink.load(std::memory_order_relaxed);
    (sink != nullptr ? sink : &WriteToStderr)(line, length);
  }
  errno = saved_errno;
}

}  // namespace

void SetLogLevel(LogSeverity level) noexcept { log_level.store(level, std::memory_order_relaxed); }

void SetLogRank(std::uint32_t rank) noexcept { log_rank.store(rank, std::memory_order_relaxed); }

void SetLogLaunch(std::uint64_t launch) noexcept { log_launch.store(launch, std::memory_order_relaxed); }

void SetLogSink(LogSink sink) noexcept { log_sink.store(sink, std::memory_order_relaxed); }

bool LogEnabled(LogSeverity severity) noexcept {
  return severity < LogSeverity::kOff && severity >= log_level.load(std::memory_order_relaxed);
}

void Log(LogSeverity severity, const char* format, ...) noexcept {
  if (!LogEnabled(severity)) return;
  std::va_list arguments;
  va_start(arguments, format);
  Print(severity, severity < LogSeverity::kWarning, format, arguments);
  va_end(arguments);
}

void LogFatal(const char* format, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, format);
  Print(LogSeverity::kError, /*always=*/true, format, arguments);
  va_end(arguments);
}

}  // namespace stalloc
