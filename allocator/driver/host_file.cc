#include "allocator/driver/host_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>

namespace stalloc {

HostFile::~HostFile() { Close(); }

bool HostFile::Open() noexcept {
  descriptor_ = memfd_create("stalloc", MFD_CLOEXEC);
  return descriptor_ >= 0;
}

void HostFile::Close() noexcept {
  if (descriptor_ >= 0) {
    close(descriptor_);
    descriptor_ = -1;
  }
}

bool HostFile::Take(Bytes bytes, Offset* offset) noexcept {
  if (const auto same = unused_.find(bytes); same != unused_.end()) {
    *offset = same->second;
    unused_.erase(same);
    return true;
  }
  // Growing past the limit would not only fail but raise SIGXFSZ.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && file_bytes_ + bytes > limit.rlim_cur) {
    return false;
  }
  if (ftruncate(descriptor_, static_cast<off_t>(file_bytes_ + bytes)) != 0) return false;
  *offset = file_bytes_;
  file_bytes_ += bytes;
  return true;
}

void HostFile::GiveBack(Offset offset, Bytes bytes) noexcept {
  int result = 0;
  do {
    result = fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                       static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  try {
    unused_.emplace(bytes, offset);
  } catch (const std::bad_alloc&) {
    // Only a place in the file is lost.
  }
}

// A duplicate would share the position of the first.
bool HostFile::Reopen(Offset position, int* descriptor) const noexcept {
  char path[32];
  std::snprintf(path, sizeof(path), "/proc/self/fd/%d", descriptor_);
  const int opened = open(path, O_RDWR | O_CLOEXEC);
  if (opened < 0) return false;
  (void)lseek(opened, static_cast<off_t>(position), SEEK_SET);
  *descriptor = opened;
  return true;
}

Bytes HostFile::ResidentBytes() const noexcept {
  struct stat status {};
  return fstat(descriptor_, &status) == 0 ? static_cast<Bytes>(status.st_blocks) * 512 : 0;
}

}  // namespace stalloc
