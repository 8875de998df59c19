#include "allocator/driver/cuda_events.h"

#include <new>

namespace stalloc {
namespace {

cuda::Stream ToStream(StreamHandle stream) { return reinterpret_cast<cuda::Stream>(stream); }
cuda::Event ToEvent(CudaEvents::Event event) { return reinterpret_cast<cuda::Event>(event); }

}  // namespace

CudaEvents::CudaEvents(const cuda::Api& api, cuda::Context context) noexcept : api_(api), context_(context) {}

CudaEvents::~CudaEvents() {
  const cuda::ContextScope current(api_, context_);
  for (const cuda::Event event : pool_) {
    (void)api_.EventDestroy(event);  // fails where the driver unloads first, and need not succeed then
  }
}

cuda::Event CudaEvents::Take() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!pool_.empty()) {
      const cuda::Event event = pool_.back();
      pool_.pop_back();
      return event;
    }
  }
  cuda::Event event = nullptr;
  return api_.EventCreate(&event, cuda::kEventDisableTiming) == cuda::kSuccess ? event : nullptr;
}

CudaEvents::Event CudaEvents::Record(StreamHandle stream) noexcept {
  const cuda::ContextScope current(api_, context_);
  if (current.result() != cuda::kSuccess || Capturing(stream)) {
    return 0;
  }
  const cuda::RelaxedCaptureScope relaxed(api_);
  const cuda::Event event = Take();
  if (event == nullptr) {
    return 0;
  }
  if (api_.EventRecord(event, ToStream(stream)) != cuda::kSuccess) {
    Recycle(reinterpret_cast<Event>(event));
    return 0;
  }
  return reinterpret_cast<Event>(event);
}

bool CudaEvents::Done(Event event) noexcept {
  if (event == 0) {
    return true;
  }
  const cuda::RelaxedCaptureScope relaxed(api_);
  const DriverCode code = cuda::ToStatus(api_.EventQuery(ToEvent(event)), "cuEventQuery").code;
  return code == DriverCode::kOk || code == DriverCode::kShuttingDown;
}

bool CudaEvents::Wait(StreamHandle stream, Event event) noexcept {
  if (event == 0) {
    return true;
  }
  const cuda::ContextScope current(api_, context_);
  if (current.result() != cuda::kSuccess || Capturing(stream)) {
    return false;  // a captured wait on an event from outside the capture would break it
  }
  const cuda::RelaxedCaptureScope relaxed(api_);
  return api_.StreamWaitEvent(ToStream(stream), ToEvent(event), 0) == cuda::kSuccess;
}

void CudaEvents::Recycle(Event event) noexcept {
  if (event == 0) {
    return;
  }
  try {
    const std::lock_guard lock(mutex_);
    pool_.push_back(ToEvent(event));
  } catch (const std::bad_alloc&) {
    (void)api_.EventDestroy(ToEvent(event));
  }
}

bool CudaEvents::Capturing(StreamHandle stream) noexcept {
  int status = cuda::kCaptureStatusNone;
  // The legacy stream cannot be asked while a blocking stream is captured: an error, and as good as a yes.
  return api_.StreamIsCapturing(ToStream(stream), &status) != cuda::kSuccess || status != cuda::kCaptureStatusNone;
}

}  // namespace stalloc
