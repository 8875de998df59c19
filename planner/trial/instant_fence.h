// InstantFence: streams of a replay, where nothing runs: a stream's work is done at once.
#pragma once

#include <atomic>

#include "allocator/driver/stream_fence.h"

namespace stalloc {

class InstantFence final : public StreamFence {
 public:
  Event Record(StreamHandle /*stream*/) noexcept override { return last_.fetch_add(1, std::memory_order_relaxed) + 1; }
  Event RecordAll() noexcept override { return Record(0); }
  bool Wait(StreamHandle /*stream*/, Event /*event*/) noexcept override { return true; }
  bool Done(Event /*event*/) noexcept override { return true; }
  void Recycle(Event /*event*/) noexcept override {}

 private:
  std::atomic<Event> last_{0};
};

}  // namespace stalloc
