// CudaEvents: pooled CUDA events (no timing) of one device, to learn when a stream has passed a point.
//
// An event belongs to the context of the stream that it is recorded on, while streams of all devices may wait for it. A
// stream of another device than this object's has to be named by StreamOfDevice (stream_fence.h). Its events are made
// anew each time, since that is rare.
//
// An event is a number, 0 is none. Never touches a stream that is being captured, and its calls are legal while other
// streams are (RecordAll's are not: it records nothing then). Thread-safe, noexcept; events are made when the pool is
// empty and kept until destruction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "allocator/driver/capture_gate.h"
#include "allocator/driver/cuda_api.h"
#include "allocator/driver/stream_fence.h"
#include "proto/model/units.h"

namespace stalloc {

class CudaEvents {
 public:
  using Event = std::uint64_t;

  // `context`: the device's primary context, which outlives this object (CudaDriver::context()), as does `captures`;
  // null: nothing is captured.
  CudaEvents(const cuda::Api& api, cuda::Context context, CaptureGate* captures = nullptr) noexcept;
  ~CudaEvents();
  CudaEvents(const CudaEvents&) = delete;
  CudaEvents& operator=(const CudaEvents&) = delete;

  // The stream's name for Record where its device is not known. Default streams are those of the context that is
  // current on this thread, as for the driver.
  [[nodiscard]] StreamHandle NameOf(StreamHandle stream) noexcept;

  // An event after all work given to `stream` so far; 0 when none can be recorded now: the stream is captured, the
  // driver is gone.
  [[nodiscard]] Event Record(StreamHandle stream) noexcept;
  // An event after all work given to the device so far, on whatever stream of the context; 0 when none can be recorded
  // now: a capture runs, or the driver is older than CUDA 12.5.
  [[nodiscard]] Event RecordAll() noexcept;
  // True when all work before the event is done; also when the driver is unloading, for then nothing runs any more.
  [[nodiscard]] bool Done(Event event) noexcept;
  // Returns when all work before the event is done. A failure may be of any work of the context.
  DriverStatus Await(Event event) noexcept;
  // Work given to `stream` after this call waits on the device for the event. False when that cannot be requested now.
  [[nodiscard]] bool Wait(StreamHandle stream, Event event) noexcept;
  // Gives the event back to the pool. 0 is fine.
  void Recycle(Event event) noexcept;
  // True when `stream` is being captured, or cannot be queried since another capture forbids it.
  [[nodiscard]] bool Capturing(StreamHandle stream) noexcept;

 private:
  static constexpr std::size_t kMostDevices = 64;

  [[nodiscard]] cuda::Event Take() noexcept;
  // Into a pooled event, by what returns a Result.
  template <typename Call>
  [[nodiscard]] Event RecordPooled(Call&& call) noexcept;
  [[nodiscard]] Event RecordNew(cuda::Context context, cuda::Stream stream) noexcept;
  [[nodiscard]] cuda::Context ContextOf(std::size_t device) noexcept;
  [[nodiscard]] int DeviceOf(cuda::Context context) noexcept;  // -1: not known
  bool ForgetForeign(cuda::Event event) noexcept;

  const cuda::Api& api_;
  const cuda::Context context_;
  CaptureGate* const captures_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<cuda::Event> pool_;                       // recycled
  std::vector<cuda::Event> foreign_;                    // of other devices' contexts, not recycled yet
  std::array<cuda::Context, kMostDevices> contexts_{};  // other devices' primary ones, retained for good
};

}  // namespace stalloc
