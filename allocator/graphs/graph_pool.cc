#include "allocator/graphs/graph_pool.h"

#include "allocator/base/log.h"

namespace stalloc {

bool GraphPool::TellUnfollowable() noexcept {
  const char* const why = catalog_.why_not();
  if (over_ || listener_ == nullptr || why == nullptr) return true;
  if (!listener_->Unfollowable(number_, why)) return false;
  over_ = true;
  Log(LogSeverity::kDebug, "device %d: the graphs of pool %u are not followed: %s", device_, number_, why);
  return true;
}

LaunchListener* GraphPool::Listener() noexcept {
  (void)TellUnfollowable();
  return over_ ? nullptr : listener_;
}

void GraphPool::SetListener(LaunchListener* listener) noexcept {
  const std::lock_guard lock(mutex_);
  if (listener_ == listener) return;
  listener_ = listener;
  over_ = false;
  if (listener_ != nullptr && catalog_.restorable()) listener_->SeesRestorable(number_);
  // Nothing is lent yet.
  if (LaunchListener* const current = Listener(); current != nullptr && openings_ + captures_ > 0)
    (void)current->PoolOpens(number_);
}

bool GraphPool::ChangeOpen(int openings, int captures) noexcept {
  const bool was_open = openings_ + captures_ > 0;
  if (openings_ + openings < 0 || captures_ + captures < 0) return true;
  openings_ += openings;
  captures_ += captures;
  const bool is_open = openings_ + captures_ > 0;
  LaunchListener* const listener = Listener();
  if (listener == nullptr) return true;
  const bool opens = openings > 0 || (is_open && !was_open);
  if (opens && !listener->PoolOpens(number_)) {
    openings_ -= openings;
    return false;
  }
  if (was_open && !is_open) listener->PoolCloses(number_);
  return true;
}

bool GraphPool::Opens() noexcept {
  const std::lock_guard lock(mutex_);
  return ChangeOpen(1, 0);
}

void GraphPool::Closes() noexcept {
  const std::lock_guard lock(mutex_);
  (void)ChangeOpen(-1, 0);
}

void GraphPool::Left() noexcept {
  const std::lock_guard lock(mutex_);
  if (LaunchListener* const listener = Listener(); listener != nullptr) {
    over_ = true;
    listener->PoolLeft(number_);
  }
  catalog_.SetUnfollowable("all of its graphs are gone");
}

bool GraphPool::SetUnfollowable(const char* why) noexcept {
  const std::lock_guard lock(mutex_);
  catalog_.SetUnfollowable(why);
  return TellUnfollowable();
}

// What is carried is lent no more.
bool GraphPool::SetRestorable() noexcept {
  const std::lock_guard lock(mutex_);
  if (catalog_.restorable()) return true;
  LaunchListener* const listener = Listener();
  if (listener != nullptr && !listener->PoolOpens(number_)) return false;
  catalog_.SetRestorable();
  if (listener_ != nullptr) listener_->SeesRestorable(number_);
  if (listener != nullptr && openings_ + captures_ == 0) listener->PoolCloses(number_);
  return true;
}

GraphPool::Figures GraphPool::figures() const noexcept {
  const std::lock_guard lock(mutex_);
  return {.captures = last_, .launches = launches_, .refused = refused_, .open = openings_ + captures_ > 0};
}

GraphId GraphPool::CaptureBegins() noexcept {
  const std::lock_guard lock(mutex_);
  catalog_.CaptureBegins(++last_);
  (void)ChangeOpen(0, 1);  // nothing is lent since it was opened
  if (listener_ != nullptr) listener_->SeesCapture(number_, last_, /*begins=*/true);
  return last_;
}

void GraphPool::CaptureEnds(GraphId graph, bool made) noexcept {
  const std::lock_guard lock(mutex_);
  catalog_.CaptureEnds(graph, made);
  if (listener_ != nullptr) listener_->SeesCapture(number_, graph, /*begins=*/false);
  (void)ChangeOpen(0, -1);
}

void GraphPool::GraphGone(GraphId graph) noexcept {
  const std::lock_guard lock(mutex_);
  catalog_.Destroyed(graph);
  if (LaunchListener* const listener = Listener(); listener != nullptr) listener->GraphGone(number_, graph);
}

}  // namespace stalloc
