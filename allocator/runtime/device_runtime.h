// DeviceRuntime: the allocator of one device in one mode, over an injected upstream. What adapters call.
//
//   Trace fast : upstream + Recorder          Trace exact : PageHeap (upstream where it cannot) + Recorder
//   Alloc      : PlanEngine, else upstream
//
// Keeps the ledger: bytes live in arena, heap and upstream together, and the peak of their sum. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "allocator/arena/arena.h"
#include "allocator/arena/page_heap.h"
#include "allocator/engine/plan_engine.h"
#include "allocator/record/recorder.h"
#include "allocator/runtime/config.h"
#include "proto/model/plan.h"

namespace stalloc {

// The allocator that exists anyway: PyTorch's native one, cudaMallocAsync, malloc.
class Upstream {
 public:
  virtual ~Upstream() = default;
  // May throw what its own allocator throws (c10::OutOfMemoryError); never returns null for bytes > 0.
  virtual void* Allocate(Bytes requested, StreamHandle stream) = 0;
  virtual void Free(void* pointer) noexcept = 0;
  virtual void RecordStream(void* pointer, StreamHandle stream) = 0;
  struct Held {
    Bytes current = 0;
    Bytes peak = 0;
  };
  // Bytes that it holds on the device, used or cached.
  [[nodiscard]] virtual Held HeldBytes() const = 0;
};

struct RuntimeStats {
  std::uint64_t requests = 0;
  std::uint64_t planned_hits = 0;
  std::uint64_t dynamic_hits = 0;
  std::uint64_t upstream = 0;
  EngineStats engine;
  Bytes live_bytes = 0;          // rounded to 512 B a block, arena + heap + upstream
  Bytes peak_live_bytes = 0;     // peak of the sum
  Bytes arena_bytes = 0;         // mapped
  Bytes arena_live_bytes = 0;
  Bytes heap_bytes = 0;          // PageHeap's physical bytes (exact Trace)
  Bytes upstream_reserved_bytes = 0;
  Bytes upstream_reserved_peak_bytes = 0;
  Bytes held_peak_bytes = 0;     // peak of arena + heap + upstream
  double efficiency = 0;         // peak_live / held_peak
};

class DeviceRuntime {
 public:
  struct Parts {
    DeviceIndex device = 0;
    Upstream* upstream = nullptr;     // not owned; outlives the runtime
    VmmDriver* driver = nullptr;      // not owned; may be null in Trace fast
    StreamFence* fence = nullptr;     // not owned; may be null
    Recorder* recorder = nullptr;     // Trace; not owned
    const DevicePlan* plan = nullptr; // Alloc; copied
    bool exact = false;               // Trace
    Bytes limit_bytes = 0;
  };
  // Never fails: an arena that cannot be mapped is a warning (both figures) and an unplanned run.
  explicit DeviceRuntime(const Parts& parts);
  ~DeviceRuntime();

  // `captured`: a graph capture or MemPool owns this stream's requests; goes to upstream, never to arena or heap.
  // Throws only what upstream throws. Exact Trace that is out of pages falls through to upstream, whose error it is then.
  void* Allocate(Bytes requested, StreamHandle stream, bool captured);
  void Free(void* pointer) noexcept;
  void RecordStream(void* pointer, StreamHandle stream);
  void OnMark(const Mark& mark);

  // Arena or heap owns the address (as opposed to upstream).
  [[nodiscard]] bool Owns(const void* pointer) const noexcept;
  [[nodiscard]] RuntimeStats Stats() const;
  void ResetPeaks() noexcept;
  [[nodiscard]] const Arena* arena() const noexcept;
  [[nodiscard]] const PlanEngine* engine() const noexcept;
  [[nodiscard]] PageHeap* heap() noexcept;

  // In a forked child: nothing is served from or given back to the arena any more, no driver call is made.
  void BecomeInert() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stalloc
