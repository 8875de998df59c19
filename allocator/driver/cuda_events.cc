#include "allocator/driver/cuda_events.h"

#include <algorithm>
#include <new>

namespace stalloc {
namespace {

cuda::Event ToEvent(CudaEvents::Event event) { return reinterpret_cast<cuda::Event>(event); }

}  // namespace

CudaEvents::CudaEvents(const cuda::Api& api, cuda::Context context, CaptureGate* captures) noexcept
    : api_(api), context_(context), captures_(captures) {}

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

StreamHandle CudaEvents::NameOf(StreamHandle stream) noexcept {
  cuda::Context context = nullptr;
  const cuda::Result result = stream > kPerThreadDefaultStream ? api_.StreamGetCtx(cuda::ToStream(stream), &context)
                                                               : api_.CtxGetCurrent(&context);
  if (result != cuda::kSuccess || context == nullptr || context == context_) return stream;
  const int device = DeviceOf(context);
  return device < 0 || device == DeviceOf(context_) ? stream : StreamOfDevice(device, stream);
}

int CudaEvents::DeviceOf(cuda::Context context) noexcept {
  const cuda::ContextScope current(api_, context);
  cuda::Device device = 0;
  return current.result() == cuda::kSuccess && api_.CtxGetDevice(&device) == cuda::kSuccess ? device : -1;
}

CudaEvents::Event CudaEvents::Record(StreamHandle stream) noexcept {
  if (const StreamHandle device = stream >> kOtherDeviceShift; device != 0) {
    const cuda::Context context = ContextOf(static_cast<std::size_t>(device) - 1);
    return context != nullptr ? RecordNew(context, cuda::ToStream(stream ^ device << kOtherDeviceShift)) : 0;
  }
  const cuda::ContextScope current(api_, context_);
  if (current.result() != cuda::kSuccess || Capturing(stream)) return 0;
  return RecordPooled([&](cuda::Event event) {
    const cuda::Result result = api_.EventRecord(event, cuda::ToStream(stream));
    // Another thread may have begun to capture the stream: then who waits for the event would be drawn into the graph.
    return result == cuda::kSuccess && Capturing(stream) ? cuda::kErrorStreamCaptureUnsupported : result;
  });
}

CudaEvents::Event CudaEvents::RecordAll() noexcept {
  const CaptureGate::Passage passage(captures_);
  const cuda::ContextScope current(api_, context_);
  if (!passage || api_.CtxRecordEvent == nullptr || current.result() != cuda::kSuccess) return 0;
  return RecordPooled([&](cuda::Event event) { return api_.CtxRecordEvent(context_, event); });
}

template <typename Call>
CudaEvents::Event CudaEvents::RecordPooled(Call&& call) noexcept {
  const cuda::RelaxedCaptureScope relaxed(api_);
  const cuda::Event event = Take();
  if (event == nullptr) return 0;
  if (call(event) != cuda::kSuccess) {
    Recycle(reinterpret_cast<Event>(event));
    return 0;
  }
  return reinterpret_cast<Event>(event);
}

CudaEvents::Event CudaEvents::RecordNew(cuda::Context context, cuda::Stream stream) noexcept {
  const cuda::ContextScope current(api_, context);
  if (current.result() != cuda::kSuccess || Capturing(reinterpret_cast<StreamHandle>(stream))) {
    return 0;
  }
  const cuda::RelaxedCaptureScope relaxed(api_);
  cuda::Event event = nullptr;
  if (api_.EventCreate(&event, cuda::kEventDisableTiming) != cuda::kSuccess) return 0;
  if (api_.EventRecord(event, stream) == cuda::kSuccess && !Capturing(reinterpret_cast<StreamHandle>(stream))) {
    try {
      const std::lock_guard lock(mutex_);
      foreign_.push_back(event);
      return reinterpret_cast<Event>(event);
    } catch (const std::bad_alloc&) {
    }
  }
  (void)api_.EventDestroy(event);
  return 0;
}

cuda::Context CudaEvents::ContextOf(std::size_t device) noexcept {
  if (device >= kMostDevices) return nullptr;
  const std::lock_guard lock(mutex_);
  cuda::Device handle = 0;
  if (contexts_[device] == nullptr && api_.DeviceGet(&handle, static_cast<int>(device)) == cuda::kSuccess) {
    (void)api_.DevicePrimaryCtxRetain(&contexts_[device], handle);
  }
  return contexts_[device];
}

bool CudaEvents::ForgetForeign(cuda::Event event) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = std::find(foreign_.begin(), foreign_.end(), event);
  if (found == foreign_.end()) return false;
  foreign_.erase(found);
  return true;
}

bool CudaEvents::Done(Event event) noexcept {
  if (event == 0) return true;
  const cuda::RelaxedCaptureScope relaxed(api_);
  const DriverCode code = cuda::ToStatus(api_.EventQuery(ToEvent(event)), "cuEventQuery").code;
  return code == DriverCode::kOk || code == DriverCode::kShuttingDown;
}

DriverStatus CudaEvents::Await(Event event) noexcept {
  const cuda::RelaxedCaptureScope relaxed(api_);
  return cuda::ToStatus(api_.EventSynchronize(ToEvent(event)), "cuEventSynchronize");
}

bool CudaEvents::Wait(StreamHandle stream, Event event) noexcept {
  if (event == 0) return true;
  const cuda::ContextScope current(api_, context_);
  if (current.result() != cuda::kSuccess || Capturing(stream)) {
    return false;  // a captured wait on an event from outside the capture would break it
  }
  const cuda::RelaxedCaptureScope relaxed(api_);
  return api_.StreamWaitEvent(cuda::ToStream(stream), ToEvent(event), 0) == cuda::kSuccess;
}

void CudaEvents::Recycle(Event event) noexcept {
  if (event == 0) return;
  if (ForgetForeign(ToEvent(event))) {
    (void)api_.EventDestroy(ToEvent(event));
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
  // A thread's first call may come before it has a context, without which no stream can be queried.
  const cuda::ContextScope current(api_, context_);
  int status = cuda::kCaptureStatusNone;
  // The legacy stream cannot be queried while a blocking stream is captured: an error, and as good as a yes.
  return api_.StreamIsCapturing(cuda::ToStream(stream), &status) != cuda::kSuccess ||
         status != cuda::kCaptureStatusNone;
}

}  // namespace stalloc
