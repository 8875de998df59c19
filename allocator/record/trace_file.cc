#include "allocator/record/trace_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "proto/codec/frame.h"

namespace stalloc {
namespace {

struct flock WholeFile(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Who holds `fd`'s file, for an error message.
std::string DescribeHolder(int fd) {
  struct flock lock = WholeFile(F_WRLCK);
  if (fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK && lock.l_pid > 0) {
    return "process " + std::to_string(lock.l_pid);
  }
  // A process never conflicts with its own POSIX locks.
  return "another recorder, of this process (" + std::to_string(getpid()) +
         ") or of one that cannot be named from here,";
}

Status CreateParents(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (parent.empty()) return Ok{};
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  if (error) return Error{path + ": cannot create the directory " + parent.string() + ": " + error.message()};
  return Ok{};
}

}  // namespace

Status TraceFile::Open(const std::string& path) {
  path_ = path;
  if (Status parents = CreateParents(path); !parents.ok()) return parents;
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) return Error{path + ": cannot open the trace for writing: " + std::strerror(errno)};
  if (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const bool taken = errno == EWOULDBLOCK;
    const std::string cause = taken ? DescribeHolder(fd_) +
                                          " is writing a trace there; give each process its own rank or "
                                          "its own STALLOC_MODEL_INFO_PATH"
                                    : std::string("cannot lock the trace: ") + std::strerror(errno);
    Close();
    return Error{path + ": " + cause};
  }
  struct flock name = WholeFile(F_WRLCK);
  static_cast<void>(fcntl(fd_, F_SETLK, &name));  // without it the holder goes unnamed, and nothing else changes
  if (ftruncate(fd_, 0) != 0) {
    const int error = errno;
    Close();
    return Error{path + ": cannot empty the old trace: " + std::strerror(error)};
  }
  size_ = 0;
  Status written = Append(kTraceMagic);
  if (!written.ok()) Close();
  return written;
}

Status TraceFile::Append(std::string_view bytes) {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const ssize_t count =
        pwrite(fd_, rest.data(), rest.size(), size_ + static_cast<std::int64_t>(bytes.size() - rest.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      const bool cut = ftruncate(fd_, size_) == 0;
      return Error{path_ + ": cannot write the trace after byte " + std::to_string(size_) + ": " +
                   std::strerror(error) + (cut ? "" : "; the file ends in a part of a chunk")};
    }
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
  size_ += static_cast<std::int64_t>(bytes.size());
  return Ok{};
}

Status TraceFile::CutBackTo(Place place) {
  if (ftruncate(fd_, place.bytes) != 0) {
    return Error{path_ + ": cannot cut the trace back to byte " + std::to_string(place.bytes) + ": " +
                 std::strerror(errno)};
  }
  size_ = place.bytes;
  return Ok{};
}

void TraceFile::Close() noexcept {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace stalloc
