// PyTorch's caching allocators, simulated: what would the device hold if this run had used them? Own implementations of
// documented behaviour (c10/cuda/CUDACachingAllocator, torch 2.11, default settings), checked against recorded runs.
//
// Left out: garbage collection, rounding options, limits on the size that may be split, memory that runs out, and
// emptied caches but those before captures of graphs (torch.cuda.graph empties them). A block that another stream uses
// can be had again as soon as it is freed; on a device it waits for that stream. Bytes throughout. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "planner/analysis/lifetimes.h"
#include "proto/model/native_segments.h"
#include "proto/model/segment_blocks.h"

namespace stalloc::planner {

using SimulatedPool = SegmentPool;

class SimulatedAllocator {
 public:
  using BlockId = BlockList::BlockId;

  virtual ~SimulatedAllocator() = default;
  // `bytes`: a multiple of kBlockAlignment, > 0.
  [[nodiscard]] virtual BlockId Allocate(Bytes bytes, const SimulatedPool& pool) = 0;
  virtual void Free(BlockId block) = 0;
  // What is free goes back to the device, as far as no block lives there; not of graphs' pools.
  virtual void EmptyCaches() = 0;
  // For the device.
  [[nodiscard]] virtual Bytes held_bytes() const = 0;
};

class NativeSimulation final : public SimulatedAllocator {
 public:
  [[nodiscard]] BlockId Allocate(Bytes bytes, const SimulatedPool& pool) override {
    return segments_.Allocate(bytes, pool);
  }
  void Free(BlockId block) override { segments_.Free(block); }
  void EmptyCaches() override { segments_.EmptyCaches(); }
  [[nodiscard]] Bytes held_bytes() const override { return segments_.held_bytes(); }

 private:
  NativeSegments segments_;
};

// An iteration that is played once more, before another one begins: events [begin, end) before the event `before`.
// Blocks that it allocates and frees itself, no others.
struct Rehearsal {
  std::uint64_t before = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Plays the whole traced run, fences included, and returns the most that the allocator holds. Caches are emptied before
// the first request after each of the events `emptied`, which ascend.
[[nodiscard]] Bytes SimulateRun(const DeviceTrace& device, SimulatedAllocator& allocator,
                                std::span<const std::uint64_t> emptied = {},
                                std::optional<Rehearsal> rehearsal = std::nullopt);

}  // namespace stalloc::planner
