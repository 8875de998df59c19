#include "allocator/torch/cuda_snapshot.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "allocator/torch/cuda_stats.h"
#include "allocator/torch/version/records.h"

namespace stalloc {
namespace {

using c10::cuda::CUDACachingAllocator::BlockInfo;
using c10::cuda::CUDACachingAllocator::SegmentInfo;

constexpr Bytes kSmallestChunk = Bytes{2} << 20;

BlockInfo Gap(Bytes bytes) {
  BlockInfo gap;
  gap.size = bytes;
  return gap;
}

void AppendBlock(SegmentInfo& segment, const BlockInfo& block) {
  segment.requested_size += block.requested_size;
  if (block.allocated) segment.allocated_size += block.size;
  if (block.active) segment.active_size += block.size;
  segment.blocks.push_back(block);
}

}  // namespace

SegmentInfo ArenaSegment(c10::DeviceIndex device, Address base, const Arena::Range& mapped,
                         const std::vector<LiveBlock>& live, const AllocationHistory& history) {
  SegmentInfo segment;
  segment.device = device;
  segment.address = base + mapped.offset;
  segment.total_size = mapped.bytes;
  segment.is_large = true;
  segment.is_expandable = true;  // a mapped part of reserved addresses, as the native allocator's
  version::SetRegistrationOrder(segment, static_cast<std::size_t>(mapped.offset / kSmallestChunk));
  Offset end = mapped.offset;
  for (const LiveBlock& block : live) {
    if (block.offset < mapped.offset || block.offset + block.bytes > mapped.offset + mapped.bytes) continue;
    if (block.offset > end) AppendBlock(segment, Gap(block.offset - end));
    BlockInfo info;
    info.size = block.bytes;
    info.requested_size = block.requested;
    info.allocated = !block.freed_pending;
    info.active = true;
    info.context_when_allocated = history.BlockContext(reinterpret_cast<const void*>(base + block.offset));
    AppendBlock(segment, info);
    // A segment has one field for it, the arena serves several: the last block's.
    version::SetStream(segment, reinterpret_cast<void*>(block.stream));
    end = block.offset + block.bytes;
  }
  const Offset top = mapped.offset + mapped.bytes;
  if (end < top) AppendBlock(segment, Gap(top - end));
  return segment;
}

SegmentInfo LoneSegment(c10::DeviceIndex device, const KnownBlock& block, const AllocationHistory& history,
                        std::size_t order, const c10::MempoolId_t& pool) {
  SegmentInfo segment;
  segment.owner_private_pool_id = pool;
  version::SetRegistrationOrder(segment, order);
  segment.device = device;
  segment.address = reinterpret_cast<std::size_t>(block.pointer);
  segment.total_size = BlockBytes(block.requested);
  segment.is_large = CombinedStats::PoolOfSize(segment.total_size) == CombinedStats::Pool::kLarge;
  version::SetStream(segment, reinterpret_cast<void*>(block.stream));
  BlockInfo info;
  info.size = segment.total_size;
  info.requested_size = block.requested;
  info.allocated = true;
  info.active = true;
  info.context_when_allocated = history.BlockContext(block.pointer);
  AppendBlock(segment, info);
  return segment;
}

void MergeTraces(std::vector<AllocationHistory::Entry> ours, c10::ApproximateClockToUnixTimeConverter& clock,
                 std::vector<AllocationHistory::Entry>& native) {
  const auto to_nanoseconds = clock.makeConverter();
  for (AllocationHistory::Entry& entry : ours) {
    entry.time_.t_ = static_cast<time_t>(to_nanoseconds(entry.time_.approx_t_) / 1000);
  }
  const std::size_t native_count = native.size();
  native.insert(native.end(), std::make_move_iterator(ours.begin()), std::make_move_iterator(ours.end()));
  const auto middle = native.begin() + static_cast<std::ptrdiff_t>(native_count);
  std::inplace_merge(native.begin(), middle, native.end(),
                     [](const auto& a, const auto& b) { return a.time_.t_ < b.time_.t_; });
}

}  // namespace stalloc
