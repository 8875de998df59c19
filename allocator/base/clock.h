// The clock of traces and measurements. Thread-safe; no system call on the usual Linux (vDSO).
#pragma once

#include <time.h>

#include <cstdint>

namespace stalloc {

// CLOCK_MONOTONIC, in nanoseconds.
[[nodiscard]] inline std::int64_t MonotonicNanoseconds() noexcept {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Adds the nanoseconds of its life.
class Stopwatch {
 public:
  explicit Stopwatch(std::int64_t* nanoseconds) noexcept : sum_(nanoseconds), begin_(MonotonicNanoseconds()) {}
  ~Stopwatch() { *sum_ += MonotonicNanoseconds() - begin_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::int64_t* sum_;
  std::int64_t begin_;
};

}  // namespace stalloc
