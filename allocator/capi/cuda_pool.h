// CudaPool: the CUDA driver's stream-ordered allocator (cuMemAllocAsync) of one device, as an Upstream.
//
// Uses the device's default pool and configures it to keep what is freed, as a caching allocator does. A block belongs
// to the stream it was allocated on; one that other streams used too is freed after them: events on those streams,
// waits on its own.
//
// Stream capture: an allocation on a captured stream becomes a node of the graph and its memory the graph's, so its
// free outside of the capture is left to the graph. A free that cannot be given to the driver now (its stream is
// captured and the block is older than the capture, or a wait cannot be recorded) is put off and tried again at later
// calls. Thread-safe. Bytes.
#pragma once

#include <mutex>
#include <unordered_map>
#include <vector>

#include "allocator/driver/cuda_api.h"
#include "allocator/driver/cuda_events.h"
#include "allocator/runtime/device_runtime.h"

namespace stalloc {

class CudaPool final : public Upstream {
 public:
  // `events` is of the same device and outlives the pool.
  CudaPool(const cuda::Api& api, int device, cuda::Context context, CudaEvents& events) noexcept;

  // Throws AllocationFailure (allocation_failure.h).
  void* Allocate(Bytes requested, StreamHandle stream) override;
  void Free(void* pointer) noexcept override;
  void RecordStream(void* pointer, StreamHandle stream) override;
  // What the device is done with.
  void ReleaseCached() noexcept override;
  // Reserved bytes of the pool, which other users of the default pool share; what was last known once the driver
  // unloads.
  [[nodiscard]] Held HeldBytes() const override;

  // Blocks whose free is put off. For tests.
  [[nodiscard]] std::size_t PutOff() const;

 private:
  struct Block {
    StreamHandle stream = 0;
    bool captured = false;                    // memory of a graph
    std::vector<StreamHandle> other_streams;  // from RecordStream
  };
  using Blocks = std::unordered_map<void*, Block>;

  [[nodiscard]] bool IsCaptured(StreamHandle stream) const noexcept;
  cuda::Result AllocateOnce(Bytes requested, StreamHandle stream, cuda::DevicePointer* address) noexcept;
  // Waits for the device and gives the pool's unused memory back to it. Not possible during a capture.
  void MakeRoom() noexcept;
  // False: not now.
  bool FreeNow(void* pointer, const Block& block) noexcept;
  void RetryPutOff() noexcept;

  const cuda::Api& api_;
  const int device_;
  const cuda::Context context_;
  CudaEvents& events_;
  cuda::MemoryPool pool_ = nullptr;
  mutable std::mutex mutex_;
  Blocks blocks_;                                 // guarded by mutex_
  std::vector<std::pair<void*, Block>> put_off_;  // guarded by mutex_
  mutable Held last_held_;                        // guarded by mutex_
};

}  // namespace stalloc
