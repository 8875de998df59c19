// CudaStreamFence: the engine's StreamFence over pooled CUDA events.
#pragma once

#include "allocator/driver/cuda_events.h"
#include "allocator/engine/plan_engine.h"

namespace stalloc {

class CudaStreamFence final : public StreamFence {
 public:
  explicit CudaStreamFence(CudaEvents& events) noexcept : events_(events) {}

  Event Record(StreamHandle stream) noexcept override { return events_.Record(stream); }
  bool Done(Event event) noexcept override { return events_.Done(event); }
  void Recycle(Event event) noexcept override { events_.Recycle(event); }

 private:
  CudaEvents& events_;
};

}  // namespace stalloc
