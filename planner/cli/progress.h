// Progress of several ranks at once, on stderr: one line that is redrawn on a terminal, a line per finished rank
// elsewhere. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <ostream>
#include <string>

namespace stalloc::planner {

class Progress {
 public:
  Progress(std::ostream& err, bool is_terminal, std::size_t ranks);
  // Clears the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // What a rank does now, for terminals: "reading 45 %".
  void Doing(std::uint32_t rank, const std::string& what);
  // Counts the rank; `result` is one line without a newline.
  void Finished(std::uint32_t rank, const std::string& result);
  // Prints a line that stays.
  void Say(const std::string& line);

 private:
  void Clear();
  void Draw(const std::string& detail);

  std::ostream& err_;
  const bool is_terminal_;
  const std::size_t ranks_;
  std::mutex mutex_;
  std::size_t finished_ = 0;
  bool drawn_ = false;
};

}  // namespace stalloc::planner
