// Memory of another allocator in the arena: see Note [Borrowed memory].
#include <algorithm>
#include <utility>

#include "allocator/arena/arena.h"

namespace stalloc {
namespace {

bool TouchesBorrowed(const Arena::Range& range, Offset offset, Bytes bytes) {
  return range.offset < offset + bytes && offset < range.offset + range.bytes;
}

}  // namespace

DriverStatus Arena::Borrow(Offset offset, Address from, Bytes bytes, Bytes* borrowed) noexcept {
  *borrowed = 0;
  if (offset < borrow_begin_ || bytes > reserved_bytes_ - offset) return {DriverCode::kInvalid, 0, "Arena::Borrow"};
  const std::lock_guard lock(mutex_);
  DriverStatus status;
  while (*borrowed < bytes && status.ok()) {
    MappedMemory memory;
    status = driver_.Retain(from + *borrowed, &memory);
    if (!status.ok()) break;
    if (memory.address != from + *borrowed || memory.bytes > bytes - *borrowed) {
      (void)driver_.Release(memory.handle);
      status = {DriverCode::kInvalid, 0, "Arena::Borrow"};
      break;
    }
    status = MapBorrowed(offset + *borrowed, memory);
    if (status.ok()) *borrowed += memory.bytes;
  }
  if (*borrowed > 0) status = {};  // it ends there
  if (status.ok()) status = driver_.SetAccess(base_ + offset, *borrowed);
  if (status.ok()) return status;
  UnmapBorrowedIn({offset, bytes});
  *borrowed = 0;
  return status;
}

DriverStatus Arena::MapBorrowed(Offset offset, const MappedMemory& memory) noexcept {
  const DriverStatus status = driver_.Map(base_ + offset, memory.bytes, memory.handle);
  if (status.ok()) {
    borrowed_[offset] = {memory.bytes, memory.handle};
  } else {
    (void)driver_.Release(memory.handle);
  }
  return status;
}

bool Arena::UnmapBorrowed(Offset offset, const Borrowed& borrowed) noexcept {
  if (!driver_.Unmap(base_ + offset, borrowed.bytes).ok()) return false;
  (void)driver_.Release(borrowed.handle);
  return true;
}

void Arena::UnmapBorrowedIn(const Range& range) noexcept {
  std::erase_if(borrowed_, [&](const auto& entry) {
    return TouchesBorrowed(range, entry.first, entry.second.bytes) && UnmapBorrowed(entry.first, entry.second);
  });
}

void Arena::EndBorrowing(const Range& range) noexcept {
  const std::lock_guard lock(mutex_);
  UnmapBorrowedIn(range);
}

DriverStatus Arena::OwnBorrowed(std::span<const Range> ranges) noexcept {
  const std::lock_guard lock(mutex_);
  for (auto at = borrowed_.begin(); at != borrowed_.end();) {
    const auto& [offset, borrowed] = *at;
    const auto touches = [&](const Range& range) { return TouchesBorrowed(range, offset, borrowed.bytes); };
    if (std::ranges::none_of(ranges, touches)) {
      ++at;
      continue;
    }
    if (const DriverStatus status = Own(offset, borrowed, ranges); !status.ok()) return status;
    at = borrowed_.erase(at);
  }
  return {};
}

// The bytes are copied to where the new memory lies for the time being, and then it takes the place.
DriverStatus Arena::Own(Offset offset, const Borrowed& borrowed, std::span<const Range> ranges) noexcept {
  Chunk chunk{offset, borrowed.bytes, 0};
  DriverStatus status = driver_.Create(chunk.bytes, &chunk.handle);
  if (!status.ok()) return status;
  status = FillNew(chunk, ranges);
  if (status.ok()) status = driver_.Unmap(base_ + offset, borrowed.bytes);
  if (!status.ok()) {
    (void)driver_.Release(chunk.handle);
    return status;
  }
  const auto put = [&](PhysicalHandle handle) {
    const DriverStatus mapped = driver_.Map(base_ + offset, chunk.bytes, handle);
    return mapped.ok() ? driver_.SetAccess(base_ + offset, chunk.bytes) : mapped;
  };
  status = put(chunk.handle);
  if (!status.ok()) {
    (void)driver_.Unmap(base_ + offset, chunk.bytes);
    (void)put(borrowed.handle);
    (void)driver_.Release(chunk.handle);
    return status;
  }
  (void)driver_.Release(borrowed.handle);
  Insert({&chunk, 1});
  return status;
}

DriverStatus Arena::FillNew(const Chunk& chunk, std::span<const Range> ranges) noexcept {
  Address scratch = 0;
  DriverStatus status = driver_.Reserve(chunk.bytes, &scratch);
  if (!status.ok()) return status;
  status = driver_.Map(scratch, chunk.bytes, chunk.handle);
  const bool mapped = status.ok();
  if (mapped) status = driver_.SetAccess(scratch, chunk.bytes);
  for (const Range& range : ranges) {
    const Offset begin = std::max(range.offset, chunk.offset);
    const Offset end = std::min(range.offset + range.bytes, chunk.offset + chunk.bytes);
    if (status.ok() && begin < end) {
      status = driver_.Copy(scratch + (begin - chunk.offset), base_ + begin, end - begin);
    }
  }
  if (mapped) {
    const DriverStatus unmapped = driver_.Unmap(scratch, chunk.bytes);
    if (status.ok()) status = unmapped;
  }
  (void)driver_.ReleaseReservation(scratch, chunk.bytes);
  return status;
}

}  // namespace stalloc
