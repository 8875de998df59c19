// GraphPool: one graphs' pool of a device: its catalog, whether it is open, and who is notified of its launches.
//
//   unopened -> open <-> closed -> left, or not followable: from then on nobody is notified
//
// It is open while the allocator has an opening of it, or a capture in it runs: conditional nodes close and open it
// amid a capture. Thread-safe: one mutex is held over each call of the listener, and from BeforeLaunch to AfterLaunch,
// so that two graphs of one pool are never launched at the same time.
#pragma once

#include <cstdint>
#include <mutex>

#include "allocator/graphs/launch_listener.h"
#include "allocator/graphs/pool_catalog.h"
#include "proto/model/units.h"

namespace stalloc {

class GraphPool {
 public:
  // `listener` may be null.
  GraphPool(std::uint32_t number, DeviceIndex device, LaunchListener* listener) noexcept
      : number_(number), device_(device), listener_(listener) {}

  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  [[nodiscard]] DeviceIndex device() const noexcept { return device_; }
  [[nodiscard]] PoolCatalog& catalog() noexcept { return catalog_; }
  [[nodiscard]] const PoolCatalog& catalog() const noexcept { return catalog_; }

  // The listener from now on: it is notified of the pool's state, if there is any.
  void SetListener(LaunchListener* listener) noexcept;

  // Before the native allocator opens it, and after it closed it. What was not opened cannot be closed. False: it must
  // not be opened now, since others use its memory.
  bool Opens() noexcept;
  void Closes() noexcept;
  // Before its last user leaves it.
  void Left() noexcept;
  // Before whatever else makes launches unseen, which must not be where it is false. `why`: lives for ever.
  bool SetUnfollowable(const char* why) noexcept;

  // Before its state is taken, to be set back to. False: what is lent could not be taken back.
  bool SetRestorable() noexcept;

  [[nodiscard]] GraphId CaptureBegins() noexcept;
  void CaptureEnds(GraphId graph, bool made) noexcept;
  void GraphGone(GraphId graph) noexcept;

  struct Figures {
    GraphId captures = 0;
    std::uint64_t launches = 0;
    std::uint64_t refused = 0;  // launches
    bool open = false;
  };
  [[nodiscard]] Figures figures() const noexcept;

  // Calls launch() if the listener lets it. `captured`: the stream is captured, so that the graph becomes a part of
  // another one, whose launches are not seen.
  template <typename Launch>
  LaunchListener::Answer LaunchWith(GraphId graph, StreamHandle stream, bool captured, Launch&& launch) noexcept {
    using Verdict = LaunchListener::Verdict;
    const std::lock_guard lock(mutex_);
    if (captured) catalog_.SetUnfollowable("a graph of it became a part of another graph");
    const bool is_seen = TellUnfollowable();
    LaunchListener* const listener = over_ ? nullptr : listener_;
    LaunchListener::Answer answer{.verdict = is_seen ? Verdict::kLaunch : Verdict::kOutOfMemory};
    if (is_seen && listener != nullptr) answer = listener->BeforeLaunch(number_, graph, stream);
    ++(answer.verdict == Verdict::kLaunch ? launches_ : refused_);
    if (answer.verdict != Verdict::kLaunch) return answer;
    if (listener_ != nullptr) listener_->SeesLaunch(number_, graph, /*begins=*/true);
    launch();
    if (listener_ != nullptr) listener_->SeesLaunch(number_, graph, /*begins=*/false);
    if (listener != nullptr) listener->AfterLaunch(number_, graph, stream);
    return answer;
  }

 private:
  // All REQUIRE: mutex_ is held.
  // Notifies the listener that the pool is not followable, if the catalog says so by now. False: it cannot be.
  [[nodiscard]] bool TellUnfollowable() noexcept;
  // The listener, null where there is none or it has received the pool's last notice.
  LaunchListener* Listener() noexcept;
  [[nodiscard]] bool ChangeOpen(int openings, int captures) noexcept;

  const std::uint32_t number_;
  const DeviceIndex device_;
  PoolCatalog catalog_;
  mutable std::mutex mutex_;  // guards the rest
  LaunchListener* listener_;
  bool over_ = false;  // the listener has received its last notice
  int openings_ = 0;
  int captures_ = 0;
  GraphId last_ = 0;
  std::uint64_t launches_ = 0;
  std::uint64_t refused_ = 0;
};

}  // namespace stalloc
