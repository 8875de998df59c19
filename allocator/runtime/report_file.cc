#include "allocator/runtime/report_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace stalloc {

ReportFile::ReportFile(const char* path) noexcept {
  path_[0] = temporary_[0] = '\0';
  if (std::strlen(path) >= kLongestPath) {
    Fail(ENAMETOOLONG);
    return;
  }
  std::snprintf(path_, sizeof(path_), "%s", path);
  // The process id keeps two processes apart, so that each rename moves a whole file.
  std::snprintf(temporary_, sizeof(temporary_), "%s.tmp%d", path, static_cast<int>(getpid()));
  descriptor_ = open(temporary_, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) Fail(errno);
}

ReportFile::~ReportFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(temporary_);
}

ReportFile& ReportFile::operator+=(std::string_view text) noexcept {
  while (!text.empty()) {
    if (used_ == sizeof(buffer_)) Flush();
    const std::size_t part = std::min(text.size(), sizeof(buffer_) - used_);
    std::memcpy(buffer_ + used_, text.data(), part);
    used_ += part;
    text.remove_prefix(part);
  }
  return *this;
}

void ReportFile::Flush() noexcept {
  for (std::size_t done = 0; error_ == 0 && done < used_;) {
    const ssize_t written = write(descriptor_, buffer_ + done, used_ - done);
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno != EINTR) {
      Fail(errno);
    }
  }
  used_ = 0;
}

int ReportFile::Commit() noexcept {
  Flush();
  if (descriptor_ < 0) return error_;
  if (close(descriptor_) != 0) Fail(errno);
  descriptor_ = -1;
  if (error_ == 0 && rename(temporary_, path_) != 0) Fail(errno);
  if (error_ != 0) unlink(temporary_);
  return error_;
}

}  // namespace stalloc
