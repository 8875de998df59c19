// A fence whose work ends when the test says so, and a plan whose slots are asked for in turn.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "allocator/driver/stream_fence.h"
#include "proto/model/plan.h"

namespace stalloc {

inline constexpr Bytes kBlock = 4096;
using Waits = std::vector<std::pair<StreamHandle, StreamHandle>>;
// An address range that nobody touches.
inline std::byte* const kBase = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);

// Streams whose work ends when the test says so; keeps score of who waits for whom.
class FakeFence : public StreamFence {
 public:
  Event Record(StreamHandle stream) noexcept override {
    const std::lock_guard lock(mutex_);
    ++records_;
    if (capturing_) return 0;
    outstanding_[++last_] = stream;
    return last_;
  }
  bool Wait(StreamHandle stream, Event event) noexcept override {
    if (on_wait) std::exchange(on_wait, nullptr)();
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(outstanding_.contains(event)) << "event " << event << " is not outstanding";
    if (capturing_) return false;
    waits_.push_back({stream, outstanding_[event]});
    return true;
  }
  bool Done(Event event) noexcept override {
    const std::lock_guard lock(mutex_);
    ++queries_;
    EXPECT_TRUE(outstanding_.contains(event)) << "event " << event << " is not outstanding";
    return finished_.contains(outstanding_[event]);
  }
  void Recycle(Event event) noexcept override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(outstanding_.erase(event), 1u) << "event " << event << " recycled twice";
  }

  std::function<void()> on_wait;  // called once, before the next Wait

  void Finish(StreamHandle stream) { finished_.insert(stream); }
  void SetCapturing(bool capturing) { capturing_ = capturing; }
  [[nodiscard]] std::size_t outstanding() const { return outstanding_.size(); }
  [[nodiscard]] int records() const { return records_; }
  [[nodiscard]] int queries() const { return queries_; }
  // Since the last call: (who waited, for whom).
  [[nodiscard]] Waits TakeWaits() { return std::exchange(waits_, {}); }

 private:
  std::mutex mutex_;
  bool capturing_ = false;
  int records_ = 0;
  int queries_ = 0;
  Event last_ = 0;
  std::map<Event, StreamHandle> outstanding_;
  std::set<StreamHandle> finished_;
  Waits waits_;
};

inline Mark MarkOf(MarkKind kind) { return {kind, MarkEdge::kBegin, Pass::kNone, 0, 0, "", false}; }

// Each of the `slots` places is asked for in turn, `rounds` times.
inline DevicePlan TurnsPlan(std::uint32_t slots, int rounds) {
  DevicePlan plan;
  plan.arena_bytes = slots * kBlock * 64;
  plan.cycle.emplace_back();
  for (std::uint32_t i = 0; i < slots; ++i) plan.slots.push_back({i * kBlock * 64, kBlock * (i + 1)});
  for (int round = 0; round < rounds; ++round) {
    for (std::uint32_t i = 0; i < slots; ++i) {
      Entry entry;
      entry.bytes = entry.min_bytes = entry.max_bytes = kBlock * (i + 1);
      entry.slot = i;
      plan.cycle[0].entries.push_back(entry);
    }
  }
  return plan;
}

}  // namespace stalloc
