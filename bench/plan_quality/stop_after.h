// A stop flag that is set when so many seconds have passed: the limit of the baseline, which does not count its work.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace stalloc::planner {

class StopAfter {
 public:
  explicit StopAfter(double seconds)
      : thread_([this, seconds](const std::stop_token& ended) {
          std::unique_lock lock(mutex_);
          woken_.wait_for(lock, ended, std::chrono::duration<double>(seconds), [] { return false; });
          flag_ = true;
        }) {}

  [[nodiscard]] const std::atomic<bool>* flag() const { return &flag_; }

 private:
  std::mutex mutex_;
  std::condition_variable_any woken_;
  std::atomic<bool> flag_{false};
  std::jthread thread_;  // the last member: it uses the others
};

}  // namespace stalloc::planner
