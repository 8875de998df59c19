// CudaStreamFence: the engine's StreamFence over the pooled CUDA events of one device.
#pragma once

#include "allocator/driver/cuda_events.h"
#include "allocator/driver/stream_fence.h"

namespace stalloc {

class CudaStreamFence final : public StreamFence {
 public:
  explicit CudaStreamFence(CudaEvents& events) noexcept : events_(events) {}

  // The legacy default stream runs after all streams that are not "non-blocking", and every thread's default stream is
  // such a one: an event on it is after all of them.
  Event Record(StreamHandle stream) noexcept override {
    return events_.Record(stream == kPerThreadDefaultStream ? kLegacyDefaultStream : stream);
  }
  Event RecordAll() noexcept override { return events_.RecordAll(); }
  bool Wait(StreamHandle stream, Event event) noexcept override { return events_.Wait(stream, event); }
  bool Done(Event event) noexcept override { return events_.Done(event); }
  bool Await(Event event) noexcept override { return events_.Await(event).ok(); }
  void Recycle(Event event) noexcept override { events_.Recycle(event); }

 private:
  CudaEvents& events_;
};

}  // namespace stalloc
