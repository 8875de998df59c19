// Progress of several ranks at once, on stderr: on a terminal one line that is redrawn; elsewhere a line per finished
// rank, and now and then one on what is being done. Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <ostream>
#include <string>

namespace stalloc::planner {

struct ProgressPace {
  std::chrono::milliseconds redraw{50};  // on a terminal
  std::chrono::milliseconds line{5000};  // elsewhere
};

class Progress {
 public:
  Progress(std::ostream& err, bool is_terminal, std::size_t ranks, ProgressPace pace = {});
  // Clears the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // What a rank does now: "reading, 45 %". Shown at the pace; what comes faster is dropped.
  void Doing(std::uint32_t rank, const std::string& what);
  // Counts the rank; `result` is one line without a newline.
  void Finished(std::uint32_t rank, const std::string& result);
  // The same of one of many that are alike: printed at the pace of Doing, the last one in any case.
  void FinishedAlike(std::uint32_t rank, const std::string& result);

 private:
  using Clock = std::chrono::steady_clock;

  void Print(std::uint32_t rank, const std::string& result);
  void Clear();
  void Draw(const std::string& detail);

  std::ostream& err_;
  const bool is_terminal_;
  const std::size_t ranks_;
  const std::chrono::milliseconds interval_;
  std::mutex mutex_;
  Clock::time_point shown_ = Clock::now();
  std::size_t finished_ = 0;
  bool drawn_ = false;
};

}  // namespace stalloc::planner
