// Tasks on a few threads, where tasks may queue further ones. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace stalloc::planner {

class TaskQueue {
 public:
  // Tasks must not throw.
  using Task = std::function<void()>;

  void PushBack(Task task);
  // Before all that wait: for what frees memory.
  void PushFront(Task task);
  // Returns when no task waits or runs; the caller is one of the threads.
  void Run(int threads);

 private:
  void Push(Task task, bool first);
  void Work();
  // Empty: all is done.
  [[nodiscard]] Task Take();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  int running_ = 0;
};

}  // namespace stalloc::planner
