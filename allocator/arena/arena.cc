#include "allocator/arena/arena.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

namespace stalloc {
namespace {

constexpr PhysicalHandle kNone = 0;

// Sorted, with touching and overlapping ranges joined.
std::vector<Arena::Range> Union(std::span<const Arena::Range> ranges) {
  std::vector<Arena::Range> sorted(ranges.begin(), ranges.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  std::vector<Arena::Range> joined;
  for (const Arena::Range& range : sorted) {
    if (!joined.empty() && range.offset <= joined.back().offset + joined.back().bytes) {
      const Offset end = std::max(joined.back().offset + joined.back().bytes, range.offset + range.bytes);
      joined.back().bytes = end - joined.back().offset;
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

}  // namespace

std::unique_ptr<Arena> Arena::Create(VmmDriver& driver, Bytes reserve_bytes, DriverStatus* status, Bytes chunk_bytes,
                                     Bytes borrow_bytes) {
  const Offset own = RoundUp(std::max<Bytes>(reserve_bytes, 1), driver.Granularity());
  const Bytes bytes = own + RoundUp(borrow_bytes, driver.Granularity());
  Address base = 0;
  *status = driver.Reserve(bytes, &base);
  chunk_bytes = RoundUp(std::max<Bytes>(chunk_bytes, 1), driver.Granularity());
  return status->ok() ? std::unique_ptr<Arena>(new Arena(driver, base, bytes, chunk_bytes, own)) : nullptr;
}

Arena::Arena(VmmDriver& driver, Address base, Bytes reserved_bytes, Bytes chunk_bytes, Offset borrow_begin)
    : driver_(driver),
      base_(base),
      reserved_bytes_(reserved_bytes),
      chunk_bytes_(chunk_bytes),
      borrow_begin_(borrow_begin) {}

Arena::~Arena() {
  for (const Chunk& chunk : chunks_) {
    if (!UnmapChunk(chunk)) CloseDescriptor(chunk);
  }
  for (const auto& [offset, borrowed] : borrowed_) (void)UnmapBorrowed(offset, borrowed);
  (void)driver_.ReleaseReservation(base_, reserved_bytes_);
}

void Arena::SetChunkBytes(Bytes bytes) noexcept {
  const std::lock_guard lock(mutex_);
  chunk_bytes_.store(RoundUp(std::max<Bytes>(bytes, 1), driver_.Granularity()), std::memory_order_relaxed);
}

DriverStatus Arena::GrowTo(Bytes bytes, Bytes chunk_bytes) noexcept {
  if (bytes > borrow_begin_) {
    return {DriverCode::kInvalid, 0, "Arena::GrowTo"};
  }
  const std::lock_guard lock(mutex_);
  const Offset end = RoundUp(bytes, driver_.Granularity());
  const Offset begin = mapped_end_.load(std::memory_order_relaxed);
  if (end <= begin) {
    return {};
  }
  std::vector<Chunk> added;
  const DriverStatus status = MapRange(begin, end, chunk_bytes > 0 ? chunk_bytes : this->chunk_bytes(), &added);
  return Commit(status, added);
}

DriverStatus Arena::EnsureMapped(Offset offset, Bytes bytes) noexcept {
  if (offset > borrow_begin_ || bytes > borrow_begin_ - offset) {
    return {DriverCode::kInvalid, 0, "Arena::EnsureMapped"};
  }
  if (bytes == 0) {
    return {};
  }
  const std::lock_guard lock(mutex_);
  const Bytes unit = driver_.Granularity();
  const Offset end = RoundUp(offset + bytes, unit);
  Offset position = offset / unit * unit;
  std::vector<Chunk> added;
  DriverStatus status;
  for (const Chunk& chunk : chunks_) {
    if (chunk.offset >= end || !status.ok()) break;
    if (chunk.offset > position) status = MapRange(position, chunk.offset, chunk_bytes(), &added);
    position = std::max(position, chunk.offset + chunk.bytes);
  }
  if (status.ok() && position < end) status = MapRange(position, end, chunk_bytes(), &added);
  return Commit(status, added);
}

DriverStatus Arena::MapRange(Offset begin, Offset end, Bytes chunk_bytes, std::vector<Chunk>* added) noexcept {
  const Offset first = begin;
  while (begin < end) {
    const Offset next = std::min(end, begin / chunk_bytes * chunk_bytes + chunk_bytes);
    Chunk chunk{};
    if (const DriverStatus status = MapChunk(begin, next - begin, &chunk); !status.ok()) {
      return status;
    }
    added->push_back(chunk);
    begin = next;
  }
  return driver_.SetAccess(base_ + first, end - first);
}

DriverStatus Arena::MapAsChunks(std::span<const Range> chunks) noexcept {
  std::vector<Range> sorted(chunks.begin(), chunks.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  const std::lock_guard lock(mutex_);
  std::vector<Chunk> added;
  const DriverStatus status = MapEach(sorted, &added);
  return Commit(status, added);
}

// One call makes usable what touches.
DriverStatus Arena::MapEach(std::span<const Range> chunks, std::vector<Chunk>* added) noexcept {
  for (const Range& range : chunks) {
    Chunk chunk{};
    if (const DriverStatus status = MapChunk(range.offset, range.bytes, &chunk); !status.ok()) return status;
    added->push_back(chunk);
  }
  for (const Range& run : Union(chunks)) {
    if (const DriverStatus status = driver_.SetAccess(base_ + run.offset, run.bytes); !status.ok()) return status;
  }
  return {};
}

DriverStatus Arena::MapChunk(Offset offset, Bytes bytes, Chunk* chunk) noexcept {
  *chunk = {offset, bytes, 0};
  DriverStatus status = driver_.Create(bytes, &chunk->handle);
  if (!status.ok()) return status;
  status = driver_.Map(base_ + offset, bytes, chunk->handle);
  if (!status.ok()) (void)driver_.Release(chunk->handle);
  return status;
}

bool Arena::UnmapChunk(const Chunk& chunk) noexcept {
  if (!driver_.Unmap(base_ + chunk.offset, chunk.bytes).ok()) return false;
  Release(chunk);
  return true;
}

void Arena::CloseDescriptor(const Chunk& chunk) noexcept {
  if (chunk.descriptor >= 0) close(chunk.descriptor);
}

void Arena::Release(const Chunk& chunk) noexcept {
  CloseDescriptor(chunk);
  // A handle that cannot be released is beyond help; its addresses are free in any case.
  (void)driver_.Release(chunk.handle);
}

DriverStatus Arena::Commit(DriverStatus status, const std::vector<Chunk>& added) noexcept {
  if (!status.ok()) {
    for (auto chunk = added.rbegin(); chunk != added.rend(); ++chunk) (void)UnmapChunk(*chunk);
    return status;
  }
  Insert(added);
  return status;
}

void Arena::Insert(std::span<const Chunk> added) {
  const auto size = static_cast<std::ptrdiff_t>(chunks_.size());
  chunks_.insert(chunks_.end(), added.begin(), added.end());
  const auto by_offset = [](const Chunk& a, const Chunk& b) { return a.offset < b.offset; };
  std::sort(chunks_.begin() + size, chunks_.end(), by_offset);
  std::inplace_merge(chunks_.begin(), chunks_.begin() + size, chunks_.end(), by_offset);
  UpdateTotals();
}

Bytes Arena::ShrinkTo(Bytes bytes) noexcept {
  const std::lock_guard lock(mutex_);
  Bytes given_back = 0;
  while (!chunks_.empty() && chunks_.back().offset >= bytes && UnmapChunk(chunks_.back())) {
    given_back += chunks_.back().bytes;
    chunks_.pop_back();
  }
  UpdateTotals();
  return given_back;
}

Bytes Arena::ReleaseIdle(std::span<const Range> idle) noexcept {
  const std::vector<Range> joined = Union(idle);
  const auto inside = [&joined](const Chunk& chunk) {
    auto next = std::upper_bound(joined.begin(), joined.end(), chunk.offset,
                                 [](Offset offset, const Range& range) { return offset < range.offset; });
    if (next == joined.begin()) return false;
    --next;
    return chunk.offset + chunk.bytes <= next->offset + next->bytes;
  };
  const std::lock_guard lock(mutex_);
  const Bytes before = mapped_bytes_.load(std::memory_order_relaxed);
  std::erase_if(chunks_, [&](const Chunk& chunk) { return inside(chunk) && UnmapChunk(chunk); });
  UpdateTotals();
  return before - mapped_bytes_.load(std::memory_order_relaxed);
}

void Arena::Move(std::span<const Range> from, std::span<const Range> to) noexcept {
  const std::lock_guard lock(mutex_);
  std::vector<Chunk> taken = Take(from);
  const auto add = [](Bytes sum, const auto& range) { return sum + range.bytes; };
  const Bytes bytes = std::accumulate(taken.begin(), taken.end(), Bytes{0}, add);
  const Bytes wanted = std::accumulate(to.begin(), to.end(), Bytes{0}, add);
  std::vector<Chunk> parts = Parts(Union(to), std::min(bytes, wanted));
  // No more than the last chunk, unless the caller took more than it needs.
  if (bytes > wanted) parts.push_back({taken.back().offset, std::min(bytes - wanted, taken.back().bytes), kNone});
  Reuse(&taken, &parts);
  MapParts(&parts);
  Insert(parts);
}

std::vector<Arena::Chunk> Arena::Take(std::span<const Range> from) noexcept {
  std::vector<Chunk> taken;
  for (const Range& range : from) {
    const auto chunk = std::lower_bound(chunks_.begin(), chunks_.end(), range.offset,
                                        [](const Chunk& one, Offset offset) { return one.offset < offset; });
    const bool whole = chunk != chunks_.end() && chunk->offset == range.offset && chunk->bytes == range.bytes;
    if (!whole || !driver_.Unmap(base_ + chunk->offset, chunk->bytes).ok()) continue;
    taken.push_back(*chunk);
    chunk->bytes = 0;
  }
  std::erase_if(chunks_, [](const Chunk& chunk) { return chunk.bytes == 0; });
  return taken;
}

std::vector<Arena::Chunk> Arena::Parts(std::span<const Range> ranges, Bytes bytes) const {
  std::vector<Chunk> parts;
  const Bytes unit = chunk_bytes();
  for (const Range& range : ranges) {
    Offset at = range.offset;
    for (const Offset end = at + std::min(range.bytes, bytes); at < end;) {
      const Offset next = std::min(end, at / unit * unit + unit);
      parts.push_back({at, next - at, kNone});
      bytes -= next - at;
      at = next;
    }
  }
  return parts;
}

void Arena::Reuse(std::vector<Chunk>* taken, std::vector<Chunk>* parts) noexcept {
  for (Chunk& part : *parts) {
    const auto alike = std::find_if(taken->begin(), taken->end(), [&part](const Chunk& chunk) {
      return chunk.bytes == part.bytes && chunk.handle != kNone;
    });
    if (alike == taken->end()) continue;
    part.handle = std::exchange(alike->handle, kNone);
    part.descriptor = alike->descriptor;
  }
  for (const Chunk& chunk : *taken) {
    if (chunk.handle != kNone) Release(chunk);
  }
}

void Arena::MapParts(std::vector<Chunk>* parts) noexcept {
  std::sort(parts->begin(), parts->end(), [](const Chunk& a, const Chunk& b) { return a.offset < b.offset; });
  std::erase_if(*parts, [this](Chunk& part) {
    if (part.handle == kNone) return !MapChunk(part.offset, part.bytes, &part).ok();
    if (driver_.Map(base_ + part.offset, part.bytes, part.handle).ok()) return false;
    Release(part);
    return true;
  });
  for (auto first = parts->begin(); first != parts->end();) {
    auto last = std::next(first);
    while (last != parts->end() && std::prev(last)->offset + std::prev(last)->bytes == last->offset) ++last;
    const Offset end = std::prev(last)->offset + std::prev(last)->bytes;
    if (driver_.SetAccess(base_ + first->offset, end - first->offset).ok()) {
      first = last;
      continue;
    }
    // What cannot be unmapped either is lost to everybody: nobody may touch it.
    std::for_each(first, last, [this](const Chunk& chunk) {
      if (!UnmapChunk(chunk)) CloseDescriptor(chunk);
    });
    first = parts->erase(first, last);
  }
}

Result<Arena::Exported> Arena::Export(Offset offset, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  const std::span<Chunk> run = ChunksUnder(offset, bytes);
  if (run.empty()) {
    return Error{"a part of it is not mapped"};
  }
  Exported exported{run.front().offset, run.front().bytes, {}};
  for (Chunk& chunk : run) {
    if (chunk.bytes != exported.chunk_bytes) {
      return Error{"it lies in chunks of several sizes, " + std::to_string(exported.chunk_bytes) + " and " +
                   std::to_string(chunk.bytes) + " bytes"};
    }
    const DriverStatus status =
        chunk.descriptor >= 0 ? DriverStatus{} : driver_.Export(chunk.handle, &chunk.descriptor);
    if (!status.ok()) {
      return Error{std::string("the driver does not export its memory: ") + status.call + " gave " +
                   std::to_string(status.native)};
    }
    exported.descriptors.push_back(chunk.descriptor);
  }
  return exported;
}

void Arena::DropDescriptors() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (Chunk& chunk : chunks_) {
    CloseDescriptor(chunk);
    chunk.descriptor = -1;
  }
}

std::span<Arena::Chunk> Arena::ChunksUnder(Offset offset, Bytes bytes) noexcept {
  const Offset end = offset + bytes;
  const auto first = std::partition_point(
      chunks_.begin(), chunks_.end(), [offset](const Chunk& chunk) { return chunk.offset + chunk.bytes <= offset; });
  auto last = first;
  Offset reached = offset;
  while (reached < end && last != chunks_.end() && last->offset <= reached) {
    reached = last->offset + last->bytes;
    ++last;
  }
  return reached < end ? std::span<Chunk>{} : std::span<Chunk>{first, last};
}

DriverStatus Arena::RefreshAccess() noexcept {
  const std::lock_guard lock(mutex_);
  DriverStatus first_failure;
  const auto refresh = [&](Offset offset, Bytes bytes) {
    const DriverStatus status = driver_.SetAccess(base_ + offset, bytes);
    if (first_failure.ok()) first_failure = status;
  };
  for (const Chunk& chunk : chunks_) refresh(chunk.offset, chunk.bytes);
  for (const auto& [offset, borrowed] : borrowed_) refresh(offset, borrowed.bytes);
  return first_failure;
}

std::vector<Arena::Range> Arena::Chunks() const {
  const std::lock_guard lock(mutex_);
  std::vector<Range> ranges;
  ranges.reserve(chunks_.size());
  for (const Chunk& chunk : chunks_) {
    ranges.push_back({chunk.offset, chunk.bytes});
  }
  return ranges;
}

std::vector<Arena::Range> Arena::HolesIn(Offset offset, Bytes bytes) const {
  const std::lock_guard lock(mutex_);
  std::vector<Range> holes;
  auto chunk = std::partition_point(chunks_.begin(), chunks_.end(),
                                    [offset](const Chunk& one) { return one.offset + one.bytes <= offset; });
  for (const Offset end = offset + bytes; offset < end; ++chunk) {
    const Offset hole_end = chunk != chunks_.end() ? std::min(chunk->offset, end) : end;
    if (hole_end > offset) holes.push_back({offset, hole_end - offset});
    if (chunk == chunks_.end()) break;
    offset = chunk->offset + chunk->bytes;
  }
  return holes;
}

void Arena::UpdateTotals() noexcept {
  Bytes held = 0;
  Offset end = 0;
  for (const Chunk& chunk : chunks_) {
    held += chunk.bytes;
    if (chunk.offset < borrow_begin_) end = chunk.offset + chunk.bytes;
  }
  mapped_bytes_.store(held, std::memory_order_release);
  mapped_end_.store(end, std::memory_order_release);
}

}  // namespace stalloc
