#include "planner/cli/progress.h"

#include "absl/strings/str_cat.h"

namespace stalloc::planner {
namespace {

constexpr std::size_t kBarWidth = 30;
constexpr std::size_t kLineWidth = 78;

}  // namespace

Progress::Progress(std::ostream& err, bool is_terminal, std::size_t ranks)
    : err_(err), is_terminal_(is_terminal), ranks_(ranks) {}

Progress::~Progress() { Clear(); }

void Progress::Doing(std::uint32_t rank, const std::string& what) {
  if (!is_terminal_) {
    return;
  }
  const std::lock_guard lock(mutex_);
  Draw(absl::StrCat("rank ", rank, ": ", what));
}

void Progress::Finished(std::uint32_t rank, const std::string& result) {
  const std::lock_guard lock(mutex_);
  ++finished_;
  Clear();
  err_ << "[" << finished_ << "/" << ranks_ << "] rank " << rank << ": " << result << std::endl;
  if (is_terminal_ && finished_ < ranks_) {
    Draw("");
  }
}

void Progress::Say(const std::string& line) {
  const std::lock_guard lock(mutex_);
  Clear();
  err_ << line << std::endl;
}

void Progress::Clear() {
  if (drawn_) {
    err_ << "\r" << std::string(kLineWidth, ' ') << "\r" << std::flush;
    drawn_ = false;
  }
}

void Progress::Draw(const std::string& detail) {
  const std::size_t full = ranks_ == 0 ? kBarWidth : kBarWidth * finished_ / ranks_;
  std::string line = absl::StrCat("[", std::string(full, '#'), std::string(kBarWidth - full, '.'), "] ", finished_, "/",
                                  ranks_, " ", detail);
  line.resize(kLineWidth, ' ');
  err_ << "\r" << line << std::flush;
  drawn_ = true;
}

}  // namespace stalloc::planner
