// A listener that writes down what it hears, and answers as it is told to. Thread-safe.
#pragma once

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "allocator/graphs/launch_listener.h"

namespace stalloc {

class FakeListener final : public LaunchListener {
 public:
  Answer BeforeLaunch(std::uint32_t pool, GraphId graph, StreamHandle stream) noexcept override {
    Hear("before " + Named(pool, graph) + " on " + std::to_string(stream));
    return {.verdict = verdict, .giver = giver};
  }
  void AfterLaunch(std::uint32_t pool, GraphId graph, StreamHandle) noexcept override {
    Hear("after " + Named(pool, graph));
  }
  bool PoolOpens(std::uint32_t pool) noexcept override {
    Hear(std::to_string(pool) + " opens");
    return !stuck;
  }
  void PoolCloses(std::uint32_t pool) noexcept override { Hear(std::to_string(pool) + " closes"); }
  void SeesRestorable(std::uint32_t pool) noexcept override { Hear(std::to_string(pool) + " may be set back"); }
  void GraphGone(std::uint32_t pool, GraphId graph) noexcept override { Hear(Named(pool, graph) + " is gone"); }
  void PoolLeft(std::uint32_t pool) noexcept override { Hear(std::to_string(pool) + " is left"); }
  bool Unfollowable(std::uint32_t pool, const char* why) noexcept override {
    Hear(std::to_string(pool) + ": " + why);
    return !stuck;
  }

  void Hear(const std::string& what) {
    const std::lock_guard lock(mutex_);
    heard_.push_back(what);
  }
  // What it heard since it was asked last.
  std::vector<std::string> Heard() {
    const std::lock_guard lock(mutex_);
    return std::exchange(heard_, {});
  }

  Verdict verdict = Verdict::kLaunch;
  GraphId giver = 0;
  bool stuck = false;  // nothing can be taken back

 private:
  static std::string Named(std::uint32_t pool, GraphId graph) {
    return std::to_string(pool) + "/" + std::to_string(graph);
  }

  std::mutex mutex_;
  std::vector<std::string> heard_;
};

}  // namespace stalloc
