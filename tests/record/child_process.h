// Runs a function in a forked child and reports how it ended.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace stalloc {

class ChildProcess {
 public:
  // The child's exit status is what `run` returns; it leaves by _exit, so nothing of the parent's is torn down twice.
  template <typename Run>
  explicit ChildProcess(Run&& run) {
    EXPECT_EQ(pipe(pipe_), 0);
    pid_ = fork();
    EXPECT_GE(pid_, 0);
    if (pid_ == 0) _exit(std::forward<Run>(run)(*this));
  }
  ~ChildProcess() {
    if (!reaped_) Kill();
    close(pipe_[0]);
    close(pipe_[1]);
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }

  // In the child.
  void Announce() const { EXPECT_EQ(write(pipe_[1], "!", 1), 1); }
  [[noreturn]] void WaitToBeKilled() const {
    Announce();
    while (true) pause();
  }

  // In the parent.
  void AwaitAnnouncement() const {
    char byte = 0;
    ASSERT_EQ(read(pipe_[0], &byte, 1), 1);
  }
  void Kill() const {
    ASSERT_EQ(kill(pid_, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(pid_, &status, 0), pid_);
    reaped_ = true;
    ASSERT_TRUE(WIFSIGNALED(status));
  }
  // The exit status, or -1 when a signal ended it.
  [[nodiscard]] int Wait() const {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    reaped_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  int pipe_[2] = {-1, -1};
  mutable bool reaped_ = false;
  pid_t pid_ = -1;
};

}  // namespace stalloc
