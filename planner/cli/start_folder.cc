#include "planner/cli/start_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace stalloc::planner {
namespace {

namespace fs = std::filesystem;

// A lock on a file for the life of the object. Where the file system has no flock there is none.
class FileLock {
 public:
  FileLock(const std::string& path, int flags, int operation) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    int failed = -1;
    while (fd_ >= 0 && (failed = flock(fd_, operation)) != 0 && errno == EINTR) {
    }
    is_taken_ = fd_ >= 0 && failed != 0 && errno == EWOULDBLOCK;
  }
  ~FileLock() {
    if (fd_ >= 0) close(fd_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  [[nodiscard]] bool is_taken() const { return is_taken_; }  // by another process, where LOCK_NB was requested

 private:
  int fd_;
  bool is_taken_ = false;
};

absl::Status StatusOf(const std::error_code& error, const char* what, const fs::path& from, const fs::path& to) {
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot ", what, " ", from.string(), " to ", to.string()));
}

// Readers of `to` see the old file or all of the new one.
absl::Status Copy(const fs::path& from, const fs::path& to) {
  const fs::path made = absl::StrCat(to.string(), ".tmp", getpid());
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  if (!error) fs::copy_file(from, made, fs::copy_options::overwrite_existing, error);
  if (!error) fs::rename(made, to, error);
  std::error_code ignored;
  if (error) fs::remove(made, ignored);
  return StatusOf(error, "copy", from, to);
}

// As rename, between file systems too.
absl::Status Move(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  if (!error) fs::rename(from, to, error);
  if (error != std::errc::cross_device_link) return StatusOf(error, "move", from, to);
  absl::Status copied = Copy(from, to);
  if (copied.ok()) fs::remove(from, error);
  return copied;
}

}  // namespace

OrphanWatch::OrphanWatch(pid_t process, const std::atomic<bool>* stop)
    : thread_([this, process, stop] { Watch(process, stop); }) {}

OrphanWatch::~OrphanWatch() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void OrphanWatch::Watch(pid_t process, const std::atomic<bool>* stop) {
  std::unique_lock lock(mutex_);
  while (!over_) {
    if (getppid() != process || (stop != nullptr && stop->load(std::memory_order_relaxed))) flag_.store(true);
    changed_.wait_for(lock, std::chrono::milliseconds(100));
  }
}

absl::StatusOr<StartFolder> StartFolder::At(const std::string& path, pid_t process) {
  const fs::path folder = fs::path(path).lexically_normal();
  const fs::path all = folder.parent_path();
  if (folder.filename().empty() || all.filename() != "starts") {
    return absl::InvalidArgumentError(
        absl::StrCat("--next-start needs the folder of a start, RUN/starts/NAME: ", path));
  }
  const fs::path run = all.parent_path();
  return StartFolder(folder.string(), run.empty() ? "." : run.string(), process);
}

absl::Status StartFolder::Publish(std::uint32_t rank) const {
  const FileLock gate(run_ + "/.lock", O_RDWR | O_CREAT, LOCK_EX);
  const RunDirectory from = NextStart();
  const RunDirectory own(path_);
  const RunDirectory to(run_);
  absl::Status status;
  for (const char* extension : {"txt", "json"}) {
    status.Update(Move(from.ReportPath(rank, extension), to.ReportPath(rank, extension)));
  }
  if (!FileLock(to.TracePath(rank), O_RDONLY, LOCK_SH | LOCK_NB).is_taken()) {
    status.Update(Move(from.TracePath(rank), to.TracePath(rank)));
  }
  std::error_code unknown;
  if (const std::string running = own.RunningPlanPath(rank); fs::exists(running, unknown)) {
    status.Update(Copy(running, to.RunningPlanPath(rank)));  // the run may not have taken it up yet
  }
  if (status.ok()) status = Move(from.PlanPath(rank), to.PlanPath(rank));
  // At last: a plan whose signature is another plan's fits no run, which is the lesser evil.
  if (const std::string signature = own.SignaturePath(rank); status.ok() && fs::exists(signature, unknown)) {
    status = Move(signature, to.SignaturePath(rank));
  }
  return status;
}

void StartFolder::Leave(std::uint32_t rank) const {
  if (getppid() == process_) return;
  const std::string log = absl::StrFormat("/log_output/rank%05d.planner.log", rank);
  (void)Move(path_ + log, run_ + log);
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace stalloc::planner
