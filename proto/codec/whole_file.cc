#include "proto/codec/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace stalloc {
namespace {

absl::Status Failure(const std::string& path, const std::string& step, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat(path, ": cannot ", step));
}

// 0, or the errno of the failed write.
int WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

// mkstemp makes files for their owner only; a plan is as readable as the umask lets any other file be.
int ApplyUmask(int fd) {
  const mode_t mask = umask(0);
  umask(mask);
  return fchmod(fd, 0666 & ~mask) == 0 ? 0 : errno;
}

void SyncDirectory(const std::string& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);  // the rename is done either way; some file systems cannot sync a directory
  close(fd);
}

}  // namespace

absl::Status WriteWholeFile(const std::string& path, std::string_view bytes) {
  const std::filesystem::path target(path);
  const std::string directory = target.has_parent_path() ? target.parent_path().string() : ".";
  std::error_code created;
  std::filesystem::create_directories(directory, created);
  if (created) return Failure(path, absl::StrCat("create the directory ", directory), created.value());

  std::string temporary = absl::StrCat(directory, "/.", target.filename().string(), ".XXXXXX");
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return Failure(path, absl::StrCat("create a file in ", directory), errno);
  const char* step = "write";
  int error = WriteAll(fd, bytes);
  if (error == 0) error = ApplyUmask(fd);
  if (error == 0 && fsync(fd) != 0) error = errno;
  if (close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) {
    step = "rename the finished file into place";
    error = errno;
  }
  if (error != 0) {
    unlink(temporary.c_str());
    return Failure(path, step, error);
  }
  SyncDirectory(directory);
  return absl::OkStatus();
}

}  // namespace stalloc
