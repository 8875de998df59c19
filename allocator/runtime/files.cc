#include "allocator/runtime/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace stalloc {
namespace {

Error Failed(const char* what, const std::string& path, int code) {
  return Error{std::string(what).append(" ").append(path).append(": ").append(std::strerror(code))};
}

bool IsDirectory(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// 0 or errno.
int WriteAll(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace

Status MakeParentDirectories(const std::string& path) {
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string directory = path.substr(0, slash);
    if (mkdir(directory.c_str(), 0777) == 0) continue;
    const int code = errno;
    // Read-only file systems answer for directories that exist already with an error of their own.
    if (!IsDirectory(directory)) return Failed("cannot make the directory", directory, code == EEXIST ? ENOTDIR : code);
  }
  return Ok{};
}

Status WriteFileAtomically(const std::string& path, const std::string& text) {
  // The process id keeps two processes apart, so that each rename moves a whole file.
  const std::string temporary = path + ".tmp" + std::to_string(getpid());
  const int descriptor = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return Failed("cannot write", temporary, errno);
  int code = WriteAll(descriptor, text);
  if (close(descriptor) != 0 && code == 0) code = errno;
  if (code == 0 && rename(temporary.c_str(), path.c_str()) != 0) code = errno;
  if (code == 0) return Ok{};
  unlink(temporary.c_str());
  return Failed("cannot write", path, code);
}

}  // namespace stalloc
