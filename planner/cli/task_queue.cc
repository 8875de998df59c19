#include "planner/cli/task_queue.h"

#include <thread>
#include <utility>
#include <vector>

namespace stalloc::planner {

void TaskQueue::PushBack(Task task) { Push(std::move(task), false); }

void TaskQueue::PushFront(Task task) { Push(std::move(task), true); }

void TaskQueue::Push(Task task, bool first) {
  {
    const std::lock_guard lock(mutex_);
    first ? tasks_.push_front(std::move(task)) : tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void TaskQueue::Run(int threads) {
  std::vector<std::jthread> pool;
  for (int i = 1; i < threads; ++i) {
    pool.emplace_back([this] { Work(); });
  }
  Work();
}

void TaskQueue::Work() {
  for (Task task = Take(); task; task = Take()) {
    task();
    task = nullptr;  // what it holds is freed before others see it done
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) changed_.notify_all();
  }
}

TaskQueue::Task TaskQueue::Take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !tasks_.empty() || running_ == 0; });
  if (tasks_.empty()) return nullptr;
  Task task = std::move(tasks_.front());
  tasks_.pop_front();
  ++running_;
  return task;
}

}  // namespace stalloc::planner
