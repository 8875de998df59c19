#include "allocator/runtime/native_model.h"

#include <algorithm>
#include <utility>

namespace stalloc {
namespace {

constexpr Bytes kSmallRequest = Bytes{1} << 20;   // up to here requests share small segments
constexpr Bytes kSmallSegment = Bytes{2} << 20;   // and the unit of large ones
constexpr Bytes kLargeRequest = Bytes{10} << 20;  // from here on requests have segments of their own size
constexpr Bytes kLargeSegment = Bytes{20} << 20;

Bytes SegmentBytes(Bytes bytes) {
  if (bytes <= kSmallRequest) return kSmallSegment;
  return bytes < kLargeRequest ? kLargeSegment : RoundUp(bytes, kSmallSegment);
}

// A large block is not cut for a rest that no large request could have.
bool IsWorthSplitting(Bytes rest, bool small) { return small ? rest >= kBlockAlignment : rest > kSmallRequest; }

}  // namespace

void NativeModel::Allocate(std::uint64_t address, Bytes bytes, StreamHandle stream) {
  Free(address);
  overflowed_ = overflowed_ || live_.size() == kMostBlocks;
  if (overflowed_) return;
  bytes = BlockBytes(bytes);
  const std::uint32_t number = PoolOf(stream, bytes <= kSmallRequest);
  std::set<FreeBlock>& free = pools_[number].free;
  BlockId id = kNone;
  if (const auto fit = free.lower_bound({bytes, 0, 0}); fit != free.end()) {
    id = fit->id;
    free.erase(fit);
  } else {
    id = NewSegment(SegmentBytes(bytes), number);
  }
  blocks_[id].free = false;
  if (IsWorthSplitting(blocks_[id].bytes - bytes, pools_[number].small)) Split(id, bytes);
  live_.Insert(address, id);
}

void NativeModel::Free(std::uint64_t address) {
  const std::optional<BlockId> found = live_.Erase(address);
  if (!found.has_value()) return;
  BlockId id = *found;
  std::set<FreeBlock>& free = pools_[blocks_[id].pool].free;
  const auto take = [&](BlockId neighbour) {
    if (neighbour == kNone || !blocks_[neighbour].free) return false;
    free.erase({blocks_[neighbour].bytes, blocks_[neighbour].place, neighbour});
    return true;
  };
  if (take(blocks_[id].next)) MergeWithNext(id);
  if (take(blocks_[id].previous)) {
    id = blocks_[id].previous;
    MergeWithNext(id);
  }
  SetFree(id);
}

void NativeModel::EmptyCache() {
  for (Pool& pool : pools_) {
    std::erase_if(pool.free, [this](const FreeBlock& block) {
      const bool whole = blocks_[block.id].previous == kNone && blocks_[block.id].next == kNone;
      if (whole) {
        held_ -= block.bytes;
        unused_.push_back(block.id);
      }
      return whole;
    });
  }
}

Bytes NativeModel::TakePeak() noexcept { return std::exchange(peak_, held_); }

// A run has few streams.
std::uint32_t NativeModel::PoolOf(StreamHandle stream, bool small) {
  const auto found = std::find_if(pools_.begin(), pools_.end(),
                                  [&](const Pool& pool) { return pool.stream == stream && pool.small == small; });
  if (found == pools_.end()) {
    pools_.push_back({stream, small, {}});
    return static_cast<std::uint32_t>(pools_.size() - 1);
  }
  return static_cast<std::uint32_t>(found - pools_.begin());
}

NativeModel::BlockId NativeModel::Add(const Block& block) {
  if (unused_.empty()) {
    blocks_.push_back(block);
    return static_cast<BlockId>(blocks_.size() - 1);
  }
  const BlockId id = unused_.back();
  unused_.pop_back();
  blocks_[id] = block;
  return id;
}

// Each segment lies below those before it, as the driver hands them out: among equal blocks those of the newest segment
// are taken first.
NativeModel::BlockId NativeModel::NewSegment(Bytes bytes, std::uint32_t pool) {
  next_place_ -= bytes;
  held_ += bytes;
  peak_ = std::max(peak_, held_);
  return Add({.place = next_place_, .bytes = bytes, .pool = pool});
}

// What the block has after its first `bytes` becomes a free one.
void NativeModel::Split(BlockId id, Bytes bytes) {
  Block rest = blocks_[id];
  rest.place += bytes;
  rest.bytes -= bytes;
  rest.previous = id;
  const BlockId next = rest.next;
  const BlockId rest_id = Add(rest);
  if (next != kNone) blocks_[next].previous = rest_id;
  blocks_[id].bytes = bytes;
  blocks_[id].next = rest_id;
  SetFree(rest_id);
}

// The block takes over the next one.
void NativeModel::MergeWithNext(BlockId id) {
  const BlockId gone = blocks_[id].next;
  blocks_[id].bytes += blocks_[gone].bytes;
  blocks_[id].next = blocks_[gone].next;
  if (blocks_[id].next != kNone) blocks_[blocks_[id].next].previous = id;
  unused_.push_back(gone);
}

void NativeModel::SetFree(BlockId id) {
  Block& block = blocks_[id];
  block.free = true;
  pools_[block.pool].free.insert({block.bytes, block.place, id});
}

}  // namespace stalloc
