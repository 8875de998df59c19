#include "proto/model/pool_layout.h"

#include <algorithm>

namespace stalloc {
namespace {

// FNV-1a by words of 8 bytes.
constexpr std::uint64_t kHashBegin = 0xcbf29ce484222325u;
std::uint64_t Hashed(std::uint64_t hash, std::uint64_t word) {
  constexpr std::uint64_t kPrime = 0x100000001b3u;
  hash = (hash ^ word) * kPrime;
  return hash ^ hash >> 32;
}

}  // namespace

PoolLayout::PoolLayout(std::span<const PoolBlock> requests) {
  if (requests.empty() || std::ranges::any_of(requests, [](const PoolBlock& block) { return block.address == 0; })) {
    return;
  }
  std::vector<PoolBlock> sorted(requests.begin(), requests.end());
  std::ranges::sort(sorted, {}, &PoolBlock::address);
  std::uint64_t end = 0;
  for (const PoolBlock& block : sorted) {
    if (extents_.empty() || block.address > end + kExtentGap) extents_.push_back({.address = block.address});
    end = std::max(end, block.address + block.bytes);
    Extent& extent = extents_.back();
    extent.bytes = RoundUp(end - extent.address, kExtentUnit);
  }
  const auto first_request = [&](const Extent& extent) {
    const auto inside = [&](const PoolBlock& block) { return block.address - extent.address < extent.bytes; };
    return std::ranges::find_if(requests, inside) - requests.begin();
  };
  std::ranges::sort(extents_, {}, first_request);
  for (Extent& extent : extents_) {
    extent.offset = bytes_;
    bytes_ += extent.bytes;
  }
  hash_ = kHashBegin;
  for (const PoolBlock& block : requests) hash_ = Hashed(Hashed(hash_, block.bytes), *OffsetOf(block.address));
}

std::vector<Offset> PieceOffsets(std::size_t pieces, std::span<const std::uint32_t> first) {
  constexpr Offset kNowhere = ~Offset{0};
  std::vector<Offset> offsets(pieces, kNowhere);
  Offset next = 0;
  const auto place = [&](Offset& offset) {
    offset = next;
    next += PoolLayout::kExtentUnit;
  };
  for (const std::uint32_t piece : first) place(offsets[piece]);
  for (Offset& offset : offsets) {
    if (offset == kNowhere) place(offset);
  }
  return offsets;
}

std::optional<Offset> PoolLayout::OffsetOf(std::uint64_t address) const {
  for (const Extent& extent : extents_) {
    if (address - extent.address < extent.bytes) return extent.offset + (address - extent.address);
  }
  return std::nullopt;
}

}  // namespace stalloc
