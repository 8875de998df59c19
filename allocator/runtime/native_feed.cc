#include "allocator/runtime/native_feed.h"

#include <algorithm>
#include <utility>

#include "allocator/base/mutex.h"

namespace stalloc {

// The events stay in order: who takes them out of the queue holds `playing_` until they are played.
void NativeFeed::Push(const Event& event) noexcept {
  for (;;) {
    {
      const LockGuard lock(appending_);
      if (!open()) return;
      if (events_.size() < kMostEvents) {
        events_.push_back(event);
        return;
      }
    }
    const LockGuard lock(playing_);
    PlayAll();
  }
}

void NativeFeed::Begin() {
  model_ = std::make_unique<NativeModel>();
  played_.reserve(kMostEvents);
  std::vector<Event> fresh;
  fresh.reserve(kMostEvents);
  const LockGuard lock(appending_);
  events_ = std::move(fresh);
  Listen(true);
}

// The largest first: as closely as they can lie.
void NativeFeed::Seed(std::vector<LiveBlock> blocks) {
  std::sort(blocks.begin(), blocks.end(), [](const LiveBlock& a, const LiveBlock& b) { return a.bytes > b.bytes; });
  for (const LiveBlock& block : blocks) model_->Allocate(block.address, block.bytes, block.stream);
}

void NativeFeed::Close() noexcept {
  const LockGuard lock(playing_);
  std::vector<Event> events;
  {
    const LockGuard appending_lock(appending_);
    Listen(false);
    events.swap(events_);
  }
  played_ = {};
  model_ = nullptr;
}

NativeFeed::Figures NativeFeed::Play() noexcept {
  const LockGuard lock(playing_);
  if (model_ == nullptr) return {};
  PlayAll();
  return {model_->TakePeak(), !model_->overflowed()};
}

void NativeFeed::PlayAll() noexcept {
  {
    const LockGuard lock(appending_);
    events_.swap(played_);
  }
  for (const Event& event : played_) {
    if (event.bytes > 0) {
      model_->Allocate(event.address, event.bytes, event.stream);
    } else if (event.address != 0) {
      model_->Free(event.address);
    } else {
      model_->EmptyCache();
    }
  }
  played_.clear();
}

}  // namespace stalloc
