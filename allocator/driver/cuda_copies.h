// Copies between a CUDA device and page-locked memory of the host, on a stream of their own.
//
// The host's memory is mapped in large pages and registered with the driver, which is many times faster than to let the
// driver take it. The stream is made at the first copy, and waits for no default stream. Calls
// are legal while other streams are captured.
#pragma once

#include <deque>

#include "allocator/driver/cuda_driver.h"
#include "allocator/driver/cuda_events.h"
#include "allocator/driver/device_copies.h"

namespace stalloc {

class CudaCopies final : public DeviceCopies {
 public:
  // For the same device; both outlive this, as does `captures` (null: nothing is ever captured).
  CudaCopies(const CudaDriver& driver, CudaEvents& events, CaptureGate* captures = nullptr) noexcept
      : api_(driver.api()), driver_(driver), events_(events), captures_(captures) {}

  DriverStatus TakeHost(Bytes bytes, void** memory) noexcept override;
  void GiveHostBack(void* memory, Bytes bytes) noexcept override;
  DriverStatus ToHost(void* to, Address from, Bytes bytes) noexcept override;
  DriverStatus ToDevice(Address to, const void* from, Bytes bytes) noexcept override;
  DriverStatus Fill(Address begin, Bytes bytes) noexcept override;
  DriverStatus Await() noexcept override;
  DriverStatus Mark() noexcept override;
  // Where no event could be recorded it waits for all.
  DriverStatus AwaitMark() noexcept override;
  // The host waits where the driver is older than CUDA 12.5, where a capture runs, which the call would break, and
  // where other devices may read this one's memory: their streams do not wait.
  DriverStatus PutBeforeAll() noexcept override;

 private:
  template <typename Call>
  DriverStatus InContext(const char* name, Call&& call) const noexcept;
  template <typename Call>
  DriverStatus OnStream(const char* name, Call&& call) noexcept;
  [[nodiscard]] cuda::Result MakeStream() noexcept;
  [[nodiscard]] bool TellContext() noexcept;
  DriverStatus AwaitStream() noexcept;

  const cuda::Api& api_;
  const CudaDriver& driver_;
  CudaEvents& events_;
  CaptureGate* const captures_;
  cuda::Stream stream_ = nullptr;
  std::deque<CudaEvents::Event> marks_;  // the oldest in front; 0: none could be recorded
};

}  // namespace stalloc
