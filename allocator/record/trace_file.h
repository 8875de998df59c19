// TraceFile: the file of one recorder, held exclusively and only ever extended by whole frames.
//
// Exclusive: flock() on the file itself, so a dead process leaves nothing to be cleaned up. The
// holder is named by a POSIX lock on the same file, which carries its process id and protects nothing. An older trace
// that nobody writes is replaced by a new file: who reads it, as a planner does, has it to its end. Not thread-safe:
// the recorder opens it and its writer thread uses it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/model/result.h"

namespace stalloc {

class TraceFile {
 public:
  TraceFile() = default;
  ~TraceFile() { Close(); }
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Creates missing directories and the file, locks it and writes the magic. Errors name the path and the cause, and
  // the process that writes there.
  [[nodiscard]] Status Open(const std::string& path);

  // Others may have the path from now on, until Claim: a process that has nothing to record yet is in nobody's way.
  // What is appended meanwhile goes to this process's own file.
  void Yield() noexcept;
  // An error, as of Open, where another process has taken the path. Nothing where it was not yielded.
  [[nodiscard]] Status Claim();

  // Appends all of `bytes` or, on an error (disk full), cuts the file back to where it was.
  [[nodiscard]] Status Append(std::string_view bytes);

  // A place between two frames, to come back to.
  struct Place {
    std::int64_t bytes = 0;
    bool operator==(const Place&) const = default;
  };
  [[nodiscard]] Place place() const noexcept { return {size_}; }
  // Drops what was appended since.
  [[nodiscard]] Status CutBackTo(Place place);

  // Gives up the lock. In a forked child: drops the child's copy only, the parent keeps file and lock.
  void Close() noexcept;

 private:
  [[nodiscard]] Status Lock(const std::string& path);
  [[nodiscard]] Status LockOpened();
  [[nodiscard]] Status Replace();

  std::string path_;
  int fd_ = -1;
  std::int64_t size_ = 0;
  bool yielded_ = false;
};

}  // namespace stalloc
