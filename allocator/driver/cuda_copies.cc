#include "allocator/driver/cuda_copies.h"

#include <cerrno>
#include <utility>

#include "allocator/driver/host_memory.h"
#include "allocator/driver/watch_memory.h"

namespace stalloc {

// Runs `call` with the primary context current and free of other threads' capture rules.
template <typename Call>
DriverStatus CudaCopies::InContext(const char* name, Call&& call) const noexcept {
  const cuda::ContextScope current(api_, driver_.context());
  if (current.result() != cuda::kSuccess) return cuda::ToStatus(current.result(), "cuCtxPushCurrent");
  const cuda::RelaxedCaptureScope relaxed(api_);
  return cuda::ToStatus(std::forward<Call>(call)(), name);
}

// And with the stream there.
template <typename Call>
DriverStatus CudaCopies::OnStream(const char* name, Call&& call) noexcept {
  const DriverStatus made = InContext("cuStreamCreate", [this] { return MakeStream(); });
  return made.ok() ? InContext(name, std::forward<Call>(call)) : made;
}

cuda::Result CudaCopies::MakeStream() noexcept {
  return stream_ != nullptr ? cuda::kSuccess : api_.StreamCreate(&stream_, cuda::kStreamNonBlocking);
}

DriverStatus CudaCopies::TakeHost(Bytes bytes, void** memory) noexcept {
  void* const mapped = MapHostMemory(bytes);
  if (mapped == nullptr) return {DriverCode::kOutOfMemory, errno, "mmap"};
  const DriverStatus status =
      InContext("cuMemHostRegister", [&] { return api_.MemHostRegister(mapped, bytes, cuda::kHostRegisterPortable); });
  if (!status.ok()) {
    UnmapHostMemory(mapped, bytes);
    return status;
  }
  *memory = mapped;
  return status;
}

// What the driver does not let go stays mapped: it may still look there.
void CudaCopies::GiveHostBack(void* memory, Bytes bytes) noexcept {
  const DriverStatus status = InContext("cuMemHostUnregister", [&] { return api_.MemHostUnregister(memory); });
  if (status.ok()) UnmapHostMemory(memory, bytes);
}

DriverStatus CudaCopies::ToHost(void* to, Address from, Bytes bytes) noexcept {
  return OnStream("cuMemcpyDtoHAsync", [&] { return api_.MemcpyDtoHAsync(to, from, bytes, stream_); });
}

DriverStatus CudaCopies::ToDevice(Address to, const void* from, Bytes bytes) noexcept {
  return OnStream("cuMemcpyHtoDAsync", [&] { return api_.MemcpyHtoDAsync(to, from, bytes, stream_); });
}

DriverStatus CudaCopies::Fill(Address begin, Bytes bytes) noexcept {
  return OnStream("cuMemsetD8Async", [&] { return api_.MemsetD8Async(begin, WatchMemory::kPattern, bytes, stream_); });
}

DriverStatus CudaCopies::Await() noexcept {
  for (const CudaEvents::Event event : marks_) events_.Recycle(event);
  marks_.clear();
  return AwaitStream();
}

DriverStatus CudaCopies::AwaitStream() noexcept {
  return OnStream("cuStreamSynchronize", [&] { return api_.StreamSynchronize(stream_); });
}

DriverStatus CudaCopies::Mark() noexcept {
  marks_.push_back(stream_ != nullptr ? events_.Record(reinterpret_cast<StreamHandle>(stream_)) : 0);
  return {};
}

DriverStatus CudaCopies::AwaitMark() noexcept {
  const CudaEvents::Event event = marks_.front();
  marks_.pop_front();
  if (event == 0) return AwaitStream();
  const DriverStatus status = events_.Await(event);
  events_.Recycle(event);
  return status;
}

DriverStatus CudaCopies::PutBeforeAll() noexcept { return TellContext() ? DriverStatus{} : Await(); }

bool CudaCopies::TellContext() noexcept {
  if (api_.CtxWaitEvent == nullptr || driver_.HasPeers() || stream_ == nullptr) return false;
  const CudaEvents::Event event = events_.Record(reinterpret_cast<StreamHandle>(stream_));
  if (event == 0) return false;
  const CaptureGate::Passage passage(captures_);
  const bool ordered = passage && OnStream("cuCtxWaitEvent", [&] {
                                    return api_.CtxWaitEvent(driver_.context(), reinterpret_cast<cuda::Event>(event));
                                  }).ok();
  events_.Recycle(event);
  return ordered;
}

}  // namespace stalloc
