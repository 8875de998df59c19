#include "allocator/graphs/graph_pool.h"

#include "allocator/base/log.h"

namespace stalloc {

LaunchListener* GraphPool::Told() noexcept {
  if (over_ || listener_ == nullptr) return nullptr;
  const char* const why = catalog_.why_not();
  if (why == nullptr) return listener_;
  over_ = true;
  Log(LogSeverity::kDebug, "device %d: the graphs of pool %u are not followed: %s", device_, number_, why);
  listener_->Unfollowable(number_, why);
  return nullptr;
}

void GraphPool::SetListener(LaunchListener* listener) noexcept {
  const std::lock_guard lock(mutex_);
  if (listener_ == listener) return;
  listener_ = listener;
  over_ = false;
  if (LaunchListener* const told = Told(); told != nullptr && openings_ + captures_ > 0) told->PoolOpens(number_);
}

void GraphPool::ChangeOpen(int openings, int captures) noexcept {
  const bool was_open = openings_ + captures_ > 0;
  if (openings_ + openings < 0 || captures_ + captures < 0) return;
  openings_ += openings;
  captures_ += captures;
  const bool is_open = openings_ + captures_ > 0;
  LaunchListener* const told = Told();
  if (told == nullptr) return;
  if (openings > 0 || (is_open && !was_open)) told->PoolOpens(number_);
  if (was_open && !is_open) told->PoolCloses(number_);
}

void GraphPool::Opens() noexcept {
  const std::lock_guard lock(mutex_);
  ChangeOpen(1, 0);
}

void GraphPool::Closes() noexcept {
  const std::lock_guard lock(mutex_);
  ChangeOpen(-1, 0);
}

void GraphPool::Left() noexcept {
  const std::lock_guard lock(mutex_);
  if (LaunchListener* const told = Told(); told != nullptr) {
    over_ = true;
    told->PoolLeft(number_);
  }
  catalog_.SetUnfollowable("all of its graphs are gone");
}

void GraphPool::SetUnfollowable(const char* why) noexcept {
  const std::lock_guard lock(mutex_);
  catalog_.SetUnfollowable(why);
  (void)Told();
}

GraphPool::Figures GraphPool::figures() const noexcept {
  const std::lock_guard lock(mutex_);
  return {.captures = last_, .launches = launches_, .refused = refused_, .open = openings_ + captures_ > 0};
}

GraphId GraphPool::CaptureBegins() noexcept {
  const std::lock_guard lock(mutex_);
  catalog_.CaptureBegins(++last_);
  ChangeOpen(0, 1);
  return last_;
}

void GraphPool::CaptureEnds(GraphId graph, bool made) noexcept {
  const std::lock_guard lock(mutex_);
  catalog_.CaptureEnds(graph, made);
  ChangeOpen(0, -1);
}

void GraphPool::GraphGone(GraphId graph) noexcept {
  const std::lock_guard lock(mutex_);
  catalog_.Destroyed(graph);
  if (LaunchListener* const told = Told(); told != nullptr) told->GraphGone(number_, graph);
}

}  // namespace stalloc
