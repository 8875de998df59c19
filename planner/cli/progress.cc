#include "planner/cli/progress.h"

#include "absl/strings/str_cat.h"

namespace stalloc::planner {
namespace {

constexpr std::size_t kBarWidth = 20;
constexpr std::size_t kLineWidth = 78;

}  // namespace

Progress::Progress(std::ostream& err, bool is_terminal, std::size_t ranks, ProgressPace pace)
    : err_(err), is_terminal_(is_terminal), ranks_(ranks), interval_(is_terminal ? pace.redraw : pace.line) {}

Progress::~Progress() { Clear(); }

void Progress::Doing(std::uint32_t rank, const std::string& what) {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (now - shown_ < interval_) return;
  shown_ = now;
  const std::string line = absl::StrCat("rank ", rank, ": ", what);
  if (is_terminal_) {
    Draw(line);
  } else {
    err_ << line << std::endl;
  }
}

void Progress::Finished(std::uint32_t rank, const std::string& result) {
  const std::lock_guard lock(mutex_);
  ++finished_;
  Print(rank, result);
}

void Progress::FinishedAlike(std::uint32_t rank, const std::string& result) {
  const std::lock_guard lock(mutex_);
  ++finished_;
  const Clock::time_point now = Clock::now();
  if (finished_ < ranks_ && now - shown_ < interval_) return;
  shown_ = now;
  Print(rank, result);
}

void Progress::Print(std::uint32_t rank, const std::string& result) {
  Clear();
  err_ << "[" << finished_ << "/" << ranks_ << "] rank " << rank << ": " << result << std::endl;
  if (is_terminal_ && finished_ < ranks_) Draw("");
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
