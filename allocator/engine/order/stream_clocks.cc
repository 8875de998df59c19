#include "allocator/engine/order/stream_clocks.h"

#include <algorithm>

namespace stalloc {

StreamIndex StreamClocks::IndexOf(StreamHandle handle) noexcept {
  if (handle == kLegacyDefaultStreamToo) handle = kLegacyDefaultStream;
  has_other_devices_ = has_other_devices_ || stalloc::IsOfOtherDevice(handle);
  for (std::size_t i = 0; i < stream_count_; ++i) {
    if (streams_[i].handle == handle) return static_cast<StreamIndex>(i);
  }
  if (stream_count_ == kMaxStreams) return kNoStream;
  streams_[stream_count_].handle = handle;
  return static_cast<StreamIndex>(stream_count_++);
}

bool StreamClocks::Order(StreamIndex waiter, const StreamNeeds& needs, Lock& lock) noexcept {
  return std::all_of(needs.begin(), needs.end(),
                     [&](const StreamNeeds::Need& need) { return OrderBehind(waiter, need, lock); });
}

bool StreamClocks::OrderBehind(StreamIndex waiter, const StreamNeeds::Need& need, Lock& lock) noexcept {
  if (IsOrdered(waiter, need.stream, need.stamp)) return true;
  if (fence_ == nullptr) return false;
  Stream& stream = streams_[need.stream];
  Events::Entry* const entry = stream.events.FirstFrom(need.stamp);
  if (entry == nullptr) return Record(need.stream, waiter, lock);
  const std::uint64_t stamp = entry->stamp;
  const auto wait = [&](StreamFence::Event event) { return fence_->Wait(HandleOf(waiter), event); };
  if (!QueryPinned(stream, *entry, lock, wait)) return false;
  NoteOrdered(waiter, need.stream, stamp);
  return true;
}

template <typename Call>
bool StreamClocks::QueryPinned(Stream& stream, Events::Entry& entry, Lock& lock, Call&& call) noexcept {
  const StreamFence::Event event = entry.event;
  ++entry.pins;
  lock.unlock();
  const bool yes = call(event);
  lock.lock();
  --stream.events.Find(event).pins;
  return yes;
}

bool StreamClocks::Record(StreamIndex stream, StreamIndex waiter, Lock& lock) noexcept {
  const std::uint64_t stamp = NewStamp();
  lock.unlock();
  const StreamFence::Event event = fence_->Record(HandleOf(stream));
  const bool waits = event != 0 && waiter != kNoStream && fence_->Wait(HandleOf(waiter), event);
  lock.lock();
  if (waits) NoteOrdered(waiter, stream, stamp);
  if (event == 0) return false;
  ++events_recorded_;
  Recycle(streams_[stream].events.Add(stamp, event), lock);
  return waits;
}

void StreamClocks::Await(StreamIndex index, std::uint64_t stamp, Lock& lock) noexcept {
  if (fence_ == nullptr || IsDone(index, stamp)) return;
  Stream& stream = streams_[index];
  if (stream.events.FirstFrom(stamp) == nullptr) (void)Record(index, kNoStream, lock);
  Events::Entry* const entry = stream.events.FirstFrom(stamp);
  if (entry == nullptr) return;
  const std::uint64_t until = entry->stamp;
  if (QueryPinned(stream, *entry, lock, [this](StreamFence::Event event) { return fence_->Await(event); })) {
    stream.done = std::max(stream.done, until);
  }
}

void StreamClocks::Recycle(StreamFence::Event event, Lock& lock) noexcept {
  if (event == 0) return;
  lock.unlock();
  fence_->Recycle(event);
  lock.lock();
}

// Only once the wait has been given to the stream: another thread that uses it relies on this at once.
void StreamClocks::NoteOrdered(StreamIndex waiter, StreamIndex stream, std::uint64_t stamp) noexcept {
  ++waits_;
  if (!IsOneStream(waiter)) return;
  std::uint64_t& ordered = streams_[waiter].ordered[stream];
  ordered = std::max(ordered, stamp);
}

void StreamClocks::Poll(Lock& lock) noexcept {
  if (fence_ == nullptr || polling_) return;
  polling_ = true;
  for (std::size_t i = 0; i < stream_count_; ++i) PollStream(streams_[i], lock);
  polling_ = false;
}

// The newest first: if that is done, all are, and one query was enough.
void StreamClocks::PollStream(Stream& stream, Lock& lock) noexcept {
  if (stream.events.size() > 0 && !Query(stream, stream.events.At(stream.events.size() - 1), lock)) {
    for (std::uint32_t queries = 0; queries < kQueriesOfStream && stream.events.size() > 0; ++queries) {
      if (!Query(stream, stream.events.At(0), lock)) break;
      DropDone(stream, lock);
    }
  }
  DropDone(stream, lock);
}

bool StreamClocks::Query(Stream& stream, Events::Entry& entry, Lock& lock) noexcept {
  const std::uint64_t stamp = entry.stamp;
  const bool done = QueryPinned(stream, entry, lock, [this](StreamFence::Event event) { return fence_->Done(event); });
  if (done) stream.done = std::max(stream.done, stamp);
  return done;
}

void StreamClocks::DropDone(Stream& stream, Lock& lock) noexcept {
  while (stream.events.size() > 0 && stream.events.At(0).stamp <= stream.done && stream.events.At(0).pins == 0) {
    Recycle(stream.events.DropOldest(), lock);
  }
}

}  // namespace stalloc
