// The invariants of a PageHeap, walked from scratch. Cold: tests and the checked build.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "allocator/arena/page_heap_impl.h"

namespace stalloc {
namespace {

// offset -> bytes of everything that is in use or free in one shared page
using Parts = std::vector<std::pair<Offset, Bytes>>;

// The parts cover [0, page) exactly once.
bool Tile(Parts parts, Bytes page) {
  std::sort(parts.begin(), parts.end());
  Offset end = 0;
  for (const auto& [offset, bytes] : parts) {
    if (offset != end) {
      return false;
    }
    end += bytes;
  }
  return end == page;
}

bool Disjoint(Parts ranges, Offset begin, Bytes bytes) {
  std::sort(ranges.begin(), ranges.end());
  Offset end = begin;
  for (const auto& [address, size] : ranges) {
    if (address < end || size == 0) {
      return false;
    }
    end = address + size;
  }
  return end <= begin + bytes;
}

}  // namespace

std::string PageHeapImpl::CheckSharedParts() const {
  std::map<const SharedPages::Page*, Parts> parts;
  for (const auto& [id, page] : shared_.pages()) {
    Parts& of_page = parts[page.get()];
    for (const auto& [offset, gap] : page->gaps) {
      of_page.emplace_back(offset, gap.bytes);
    }
  }
  const auto add = [&parts](const SharedPages::Piece& piece) {
    if (piece) {
      parts[piece.page].emplace_back(piece.offset, piece.bytes);
    }
  };
  for (const auto& [address, block] : small_) {
    add(block.piece);
  }
  ForEachMapped([&add](const MappedBlock& block) {
    add(block.head);
    add(block.tail);
  });
  if (parts.size() != shared_.pages().size()) {
    return "a block holds a part of a shared page that is gone";
  }
  for (const auto& [page, of_page] : parts) {
    if (!Tile(of_page, page_)) {
      return "shared page " + std::to_string(page->id) + ": parts and gaps do not tile it";
    }
  }
  return "";
}

std::string PageHeapImpl::CheckInvariants() const {
  const std::lock_guard lock(mutex_);
  if (std::string error = shared_.CheckInvariants(); !error.empty()) {
    return error;
  }
  if (std::string error = CheckSharedParts(); !error.empty()) {
    return error;
  }
  Bytes live = 0;
  Parts ranges;
  std::uint64_t pages = pool_.free_pages() + shared_.pages().size();
  std::string error;
  ForEachMapped([&](const MappedBlock& block) {
    std::uint64_t own_pages = 0;
    for (const Extent& extent : block.extents) {
      own_pages += extent.pages;
    }
    pages += own_pages;
    ranges.emplace_back(block.range, block.range_bytes);
    if (block.bytes != own_pages * page_ + block.head.bytes + block.tail.bytes || block.address < block.range ||
        block.address + block.bytes > block.range + block.range_bytes) {
      error = "a block's parts do not add up to its bytes";
    }
  });
  for (const auto& [id, page] : shared_.pages()) {
    if (page->home != 0) {
      ranges.emplace_back(page->home, page_);
    }
  }
  for (const auto& [address, block] : small_) {
    live += block.piece.bytes;
    if (address != block.piece.page->home + block.piece.offset) {
      error = "a small block is not where its page is";
    }
  }
  for (const auto& [address, block] : live_) {
    live += block->bytes;
  }
  Bytes mapped = 0;
  for (const auto& [address, bytes] : ranges) {
    mapped += bytes;
  }
  if (!error.empty()) {
    return error;
  }
  if (live != stats_.live_bytes || live_.size() + small_.size() != stats_.live_blocks) {
    return "live blocks do not add up";
  }
  if (pages * page_ != pool_.physical_bytes()) {
    return "physical pages do not add up";
  }
  if (mapped != mapper_->used_bytes()) {
    return "mapped addresses do not add up";
  }
  return Disjoint(std::move(ranges), mapper_->base(), mapper_->reserved_bytes()) ? "" : "mapped ranges overlap";
}

}  // namespace stalloc
