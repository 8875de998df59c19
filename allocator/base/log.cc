#include "allocator/base/log.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace stalloc {
namespace {

constexpr std::int64_t kUnknownRank = -1;

std::atomic<int> log_level{kDefaultLogLevel};
std::atomic<std::int64_t> log_rank{kUnknownRank};
std::atomic<LogSink> log_sink{nullptr};

char SeverityLetter(LogSeverity severity) {
  constexpr char kLetters[] = {'D', 'I', 'I', 'W', 'E'};
  return kLetters[std::clamp(static_cast<int>(severity), 0, 4)];
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

}  // namespace

void SetLogLevel(int level) noexcept { log_level.store(std::clamp(level, 0, 3), std::memory_order_relaxed); }

void SetLogRank(std::uint32_t rank) noexcept { log_rank.store(rank, std::memory_order_relaxed); }

void SetLogSink(LogSink sink) noexcept { log_sink.store(sink, std::memory_order_relaxed); }

bool LogEnabled(LogSeverity severity) noexcept {
  return static_cast<int>(severity) >= log_level.load(std::memory_order_relaxed);
}

void Log(LogSeverity severity, const char* format, ...) noexcept {
  if (!LogEnabled(severity)) return;
  const int saved_errno = errno;
  char line[kMaxLogLine];
  std::size_t length = FormatPrefix(line, sizeof(line), severity);

  std::va_list arguments;
  va_start(arguments, format);
  const int body = std::vsnprintf(line + length, sizeof(line) - length, format, arguments);
  va_end(arguments);
  if (body > 0) length += static_cast<std::size_t>(body);

  constexpr char kCut[] = "...";
  constexpr std::size_t kRoom = kMaxLogLine - 1;  // the last byte is the newline's
  if (length > kRoom) {
    length = kRoom;
    std::memcpy(line + length - (sizeof(kCut) - 1), kCut, sizeof(kCut) - 1);
  }
  line[length++] = '\n';

  const LogSink sink = log_sink.load(std::memory_order_relaxed);
  (sink != nullptr ? sink : &WriteToStderr)(line, length);
  errno = saved_errno;
}

}  // namespace stalloc
