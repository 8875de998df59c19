#include "tests/engine/simulated_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace stalloc {
namespace {

template <typename Clock>
void Join(Clock& clock, const Clock& other) {
  for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

}  // namespace

SimulatedDevice::SimulatedDevice(std::uint32_t granules, std::uint64_t seed, Habits habits)
    : random_(seed), habits_(habits), last_use_(granules) {
  streams_.reserve(kMostStreams);
}

std::size_t SimulatedDevice::KeyOf(StreamHandle stream) {
  if (stream == kLegacyDefaultStreamToo) stream = kLegacyDefaultStream;
  const std::thread::id owner = stream == kPerThreadDefaultStream ? std::this_thread::get_id() : std::thread::id();
  const auto [found, is_new] = keys_.try_emplace({stream, owner}, streams_.size());
  if (is_new) streams_.emplace_back();
  EXPECT_LE(streams_.size(), kMostStreams);
  return found->second;
}

void SimulatedDevice::Touch(std::uint32_t lo, std::uint32_t hi, std::size_t key) {
  const std::uint64_t time = ++streams_[key][key];
  for (std::uint32_t granule = lo; granule < hi; ++granule) last_use_[granule][key] = time;
}

void SimulatedDevice::Begin(std::uint32_t lo, std::uint32_t hi, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  const std::size_t key = KeyOf(stream);
  Clock known = streams_[key];
  Join(known, completed_);
  for (std::uint32_t granule = lo; granule < hi; ++granule) {
    for (std::size_t other = 0; other < streams_.size(); ++other) {
      violations_ += other != key && last_use_[granule][other] > known[other] ? 1 : 0;
    }
  }
  Touch(lo, hi, key);
}

void SimulatedDevice::Use(std::uint32_t lo, std::uint32_t hi, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  Touch(lo, hi, KeyOf(stream));
}

void SimulatedDevice::UseBehind(std::uint32_t lo, std::uint32_t hi, StreamHandle stream, StreamHandle behind) {
  const std::lock_guard lock(mutex_);
  const std::size_t key = KeyOf(stream);
  Join(streams_[key], streams_[KeyOf(behind)]);
  Touch(lo, hi, key);
}

void SimulatedDevice::OrderBehind(StreamHandle stream, StreamHandle behind) {
  const std::lock_guard lock(mutex_);
  Join(streams_[KeyOf(stream)], streams_[KeyOf(behind)]);
}

StreamFence::Event SimulatedDevice::Record(StreamHandle stream) noexcept {
  const std::lock_guard lock(mutex_);
  if (Happens(habits_.refuses)) return 0;
  Clock clock{};
  if (stream == kPerThreadDefaultStream) {
    for (const auto& [name, key] : keys_) {
      if (name.first == stream) Join(clock, streams_[key]);
    }
  } else {
    clock = streams_[KeyOf(stream)];
  }
  events_[++last_event_] = habits_.events_are_early ? Clock{} : clock;
  return last_event_;
}

StreamFence::Event SimulatedDevice::RecordAll() noexcept {
  const std::lock_guard lock(mutex_);
  if (Happens(habits_.refuses)) return 0;
  Clock all{};
  for (const Clock& clock : streams_) Join(all, clock);
  events_[++last_event_] = habits_.events_are_early ? Clock{} : all;
  return last_event_;
}

bool SimulatedDevice::Wait(StreamHandle stream, Event event) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) {
    ++violations_;
    return true;
  }
  if (Happens(habits_.refuses)) return false;
  if (!habits_.waits_do_nothing) Join(streams_[KeyOf(stream)], found->second);
  return true;
}

bool SimulatedDevice::Done(Event event) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) {
    ++violations_;
    return false;
  }
  if (!Happens(habits_.finishes)) return false;
  if (!habits_.done_lies) Join(completed_, found->second);
  return true;
}

void SimulatedDevice::Recycle(Event event) noexcept {
  const std::lock_guard lock(mutex_);
  violations_ += events_.erase(event) == 1 ? 0 : 1;
}

bool SimulatedDevice::IsDone(std::uint32_t lo, std::uint32_t hi) const {
  const std::lock_guard lock(mutex_);
  return std::all_of(last_use_.begin() + lo, last_use_.begin() + hi, [this](const Clock& uses) {
    return std::equal(uses.begin(), uses.end(), completed_.begin(), std::less_equal<>());
  });
}

void SimulatedDevice::CalmDown() {
  const std::lock_guard lock(mutex_);
  habits_.refuses = 0;
  habits_.finishes = 1;
}

std::uint64_t SimulatedDevice::violations() const {
  const std::lock_guard lock(mutex_);
  return violations_;
}

std::uint64_t SimulatedDevice::outstanding_events() const {
  const std::lock_guard lock(mutex_);
  return events_.size();
}

}  // namespace stalloc
