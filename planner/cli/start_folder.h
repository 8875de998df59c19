// The folder of one start of a run under STALLOC_MODE=Auto, RUN/starts/NAME: the start's process and its planner have
// it for themselves, so that starts at the same time do not take each other's traces. What is good is moved to RUN.
//
// patches/stalloc/core/run_files.py makes such folders, locks them and removes those that nobody has.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/cli/run_directory.h"

namespace stalloc::planner {

// Sets a flag when `process` is no longer this one's parent, or `stop` is set. Looks ten times a second.
class OrphanWatch {
 public:
  OrphanWatch(pid_t process, const std::atomic<bool>* stop);
  ~OrphanWatch();
  OrphanWatch(const OrphanWatch&) = delete;
  OrphanWatch& operator=(const OrphanWatch&) = delete;

  [[nodiscard]] const std::atomic<bool>* flag() const { return &flag_; }

 private:
  void Watch(pid_t process, const std::atomic<bool>* stop);

  std::atomic<bool> flag_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;  // guarded by mutex_
  std::thread thread_;
};

class StartFolder {
 public:
  // InvalidArgument where `path` is no RUN/starts/NAME. `process`: the start's, this one's parent.
  static absl::StatusOr<StartFolder> At(const std::string& path, pid_t process);

  // Reads this folder's traces; what is planned for the next start lies apart until it is published.
  [[nodiscard]] RunDirectory NextStart() const { return RunDirectory(path_, path_ + "/next"); }

  // Moves the rank's reports, its trace, its plan of NextStart() and the signature of what it requests to RUN, and
  // copies the plan of the run that goes on, all while it holds RUN/.lock, so that those of two starts do not mix. A
  // trace that another process writes there stays.
  [[nodiscard]] absl::Status Publish(std::uint32_t rank) const;

  // At the planner's end: where the start's process has ended before, the planner's log goes to RUN and the folder
  // goes.
  void Leave(std::uint32_t rank) const;

 private:
  StartFolder(std::string path, std::string run, pid_t process)
      : path_(std::move(path)), run_(std::move(run)), process_(process) {}

  std::string path_;
  std::string run_;
  pid_t process_;
};

}  // namespace stalloc::planner
