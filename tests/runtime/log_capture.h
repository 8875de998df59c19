// LogCapture: what is logged during one test, instead of on stderr.
#pragma once

#include <algorithm>
#include <mutex>
#include <string>

#include "allocator/base/log.h"

namespace stalloc {

class LogCapture {
 public:
  LogCapture() {
    Text().clear();
    SetLogSink(&Keep);
  }
  ~LogCapture() { SetLogSink(nullptr); }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  [[nodiscard]] std::string text() const {
    const std::lock_guard lock(Mutex());
    return Text();
  }
  [[nodiscard]] std::size_t lines() const {
    const std::string all = text();
    return static_cast<std::size_t>(std::count(all.begin(), all.end(), '\n'));
  }

 private:
  static std::mutex& Mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static std::string& Text() {
    static std::string text;
    return text;
  }
  static void Keep(const char* line, std::size_t length) {
    const std::lock_guard lock(Mutex());
    Text().append(line, length);
  }
};

}  // namespace stalloc
