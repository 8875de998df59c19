// CaptureGate: keeps stream captures apart from the calls that would break them.
//
// To wait for the whole device, or to record an event after all of it, is an error while any of its streams is
// captured, whatever the calling thread's capture mode, and ends that capture. So a thread that makes such a call
// passes here, and a capture that is about to begin waits until nobody does. Captures of the whole process count.
// Thread-safe, noexcept; a thread that passes must not pass again, nor begin a capture. Announcements may name streams
// whose capture is none, or forget to take one back: it is queried before anybody is kept out for that.
#pragma once

#include <functional>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace stalloc {

class CaptureGate {
 public:
  // Whether none of so many announced captures runs. Called while none can begin; does not throw.
  using NoneRuns = std::function<bool(int captures)>;
  explicit CaptureGate(NoneRuns none_runs = nullptr) : none_runs_(std::move(none_runs)) {}

  void CaptureBegins() noexcept {
    const std::unique_lock lock(mutex_);
    ++captures_;
  }
  void CaptureEnds() noexcept {
    const std::unique_lock lock(mutex_);
    --captures_;
  }

  // No capture begins while this lives, unless one may run already: then it is false.
  class Passage {
   public:
    // `gate` may be null: nothing is ever captured.
    explicit Passage(CaptureGate* gate) noexcept {
      if (gate == nullptr) return;
      lock_ = std::shared_lock(gate->mutex_);
      open_ = gate->captures_ == 0 || (gate->none_runs_ && gate->none_runs_(gate->captures_));
    }
    explicit operator bool() const noexcept { return open_; }

   private:
    std::shared_lock<std::shared_mutex> lock_;
    bool open_ = true;
  };

 private:
  const NoneRuns none_runs_;
  std::shared_mutex mutex_;
  int captures_ = 0;  // that were announced
};

}  // namespace stalloc
