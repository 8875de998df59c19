// A CUDA device's memory under a watch: a small kernel looks through the bytes, after the stream's work so far.
//
// The kernel is PTX text that the driver compiles when this is made, so that no CUDA compiler is needed to build. Each
// question has eight bytes on the device, where the kernel leaves the first other byte with its offset, and eight of
// page-locked memory, to which they are copied after it; an event after the copy shows when they are there. 64 KiB of
// each.
#pragma once

#include <cstdint>
#include <memory>

#include "allocator/base/mapped_array.h"
#include "allocator/driver/cuda_api.h"
#include "allocator/driver/cuda_events.h"
#include "allocator/driver/watch_memory.h"

namespace stalloc {

class CudaWatchMemory final : public WatchMemory {
 public:
  // Null where the driver refuses: `status` says what. `context` and `events` are the device's and outlive this.
  static std::unique_ptr<CudaWatchMemory> Create(const cuda::Api& api, cuda::Context context, CudaEvents& events,
                                                 DriverStatus* status);
  CudaWatchMemory(const CudaWatchMemory&) = delete;
  CudaWatchMemory& operator=(const CudaWatchMemory&) = delete;

  [[nodiscard]] bool HasStreams() const noexcept override { return true; }
  bool Fill(Address begin, Bytes bytes, StreamHandle stream) noexcept override;
  bool Query(std::uint32_t ticket, Address begin, Bytes bytes, StreamHandle stream) noexcept override;
  bool Answered(std::uint32_t ticket, Answer* answer) noexcept override;

 private:
  CudaWatchMemory(const cuda::Api& api, cuda::Context context, CudaEvents& events) noexcept
      : api_(api), context_(context), events_(events) {}
  [[nodiscard]] DriverStatus Open() noexcept;
  [[nodiscard]] bool MayUse(StreamHandle stream) noexcept;

  const cuda::Api& api_;
  const cuda::Context context_;
  CudaEvents& events_;
  cuda::Function kernel_ = nullptr;
  cuda::DevicePointer found_ = 0;  // on the device, by ticket
  std::uint64_t* seen_ = nullptr;  // on the host, by ticket
  MappedArray<CudaEvents::Event> queried_{kMostTickets};
};

}  // namespace stalloc
