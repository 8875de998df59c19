// What torch.cuda.memory_snapshot() shows of our memory, in the native allocator's own types.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <vector>

#include "allocator/arena/arena.h"
#include "allocator/engine/plan_engine.h"
#include "allocator/torch/cuda_history.h"
#include "allocator/torch/cuda_known_blocks.h"

namespace stalloc {

// A contiguous mapped range of the arena as one segment: its live blocks, ascending, and the gaps between them as
// inactive blocks. (Without holes that range is the whole arena.) `live` ascending by offset, as PlanEngine::LiveBlocks
// gives them.
[[nodiscard]] c10::cuda::CUDACachingAllocator::SegmentInfo ArenaSegment(c10::DeviceIndex device, Address base,
                                                                        const Arena::Range& mapped,
                                                                        const std::vector<LiveBlock>& live,
                                                                        const AllocationHistory& history);

// A block as a segment of its own, since its neighbours in address space are unrelated: of the exact trace's heap, or
// of a MemPool in the arena. `order` of those that are shown together: see version::SetRegistrationOrder.
[[nodiscard]] c10::cuda::CUDACachingAllocator::SegmentInfo LoneSegment(c10::DeviceIndex device, const KnownBlock& block,
                                                                       const AllocationHistory& history,
                                                                       std::size_t order = 0,
                                                                       const c10::MempoolId_t& pool = {0, 0});

// Merges `ours` (times in approximate-clock ticks) into `native` (converted, microseconds), by time; each keeps its own
// order.
void MergeTraces(std::vector<AllocationHistory::Entry> ours, c10::ApproximateClockToUnixTimeConverter& clock,
                 std::vector<AllocationHistory::Entry>& native);

}  // namespace stalloc
