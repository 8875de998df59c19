#include "allocator/record/trace_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

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

// Whether `path` still leads to the file that is open.
bool IsAt(int fd, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
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
  Status opened = Lock(path);
  while (opened.ok() && !IsAt(fd_, path)) {  // another process has put its file there meanwhile
    Close();
    opened = Lock(path);
  }
  if (opened.ok()) opened = Replace();
  if (opened.ok()) {
    size_ = 0;
    opened = Append(kTraceMagic);
  }
  if (!opened.ok()) Close();
  return opened;
}

// The file at `path`, new or old. An error where another process has it.
Status TraceFile::Lock(const std::string& path) {
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) return Error{path_ + ": cannot open the trace for writing: " + std::strerror(errno)};
  return LockOpened();
}

Status TraceFile::LockOpened() {
  const bool taken = flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  // It names the holder. Where a file system has no flock, it is the lock.
  struct flock name = WholeFile(F_WRLCK);
  const bool named = fcntl(fd_, F_SETLK, &name) == 0 || (errno != EAGAIN && errno != EACCES);
  if (!taken && named) return Ok{};
  return Error{path_ + ": " + DescribeHolder(fd_) +
               " is writing a trace there; give each process its own rank or its own STALLOC_MODEL_INFO_PATH"};
}

void TraceFile::Yield() noexcept {
  struct flock name = WholeFile(F_UNLCK);
  static_cast<void>(fcntl(fd_, F_SETLK, &name));
  static_cast<void>(flock(fd_, LOCK_UN));
  yielded_ = true;
}

Status TraceFile::Claim() {
  if (!std::exchange(yielded_, false)) return Ok{};
  if (IsAt(fd_, path_) && LockOpened().ok() && IsAt(fd_, path_)) return Ok{};
  // Another process's file was there meanwhile, and may be still. This one's begins anew, with what it had.
  std::string had(static_cast<std::size_t>(size_), '\0');
  const ssize_t read = pread(fd_, had.data(), had.size(), 0);
  had.resize(read < 0 ? 0 : static_cast<std::size_t>(read));
  Close();
  Status opened = Open(std::string(path_));
  if (opened.ok() && had.size() > kTraceMagic.size()) opened = Append(std::string_view(had).substr(kTraceMagic.size()));
  return opened;
}

// An older trace stays as it is for who reads it, a planner perhaps, and a new file takes its name. REQUIRES: the file
// at path_ is locked, so that no other process does the same.
Status TraceFile::Replace() {
  struct stat old {};
  if (fstat(fd_, &old) == 0 && old.st_size == 0) return Ok{};
  const int locked = std::exchange(fd_, -1);
  const std::string made = path_ + ".tmp" + std::to_string(getpid());
  unlink(made.c_str());
  Status replaced = Lock(made);
  if (replaced.ok() && rename(made.c_str(), path_.c_str()) != 0) {
    replaced = Error{path_ + ": cannot replace the old trace: " + std::strerror(errno)};
  }
  if (!replaced.ok()) unlink(made.c_str());
  close(locked);
  return replaced;
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
