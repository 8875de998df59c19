#include "allocator/arena/arena.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace stalloc {
namespace {

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

std::unique_ptr<Arena> Arena::Create(VmmDriver& driver, Bytes reserve_bytes, DriverStatus* status, Bytes chunk_bytes) {
  const Bytes bytes = RoundUp(std::max<Bytes>(reserve_bytes, 1), driver.Granularity());
  Address base = 0;
  *status = driver.Reserve(bytes, &base);
  const Bytes chunk = RoundUp(std::max<Bytes>(chunk_bytes, 1), driver.Granularity());
  return status->ok() ? std::unique_ptr<Arena>(new Arena(driver, base, bytes, chunk)) : nullptr;
}

Arena::Arena(VmmDriver& driver, Address base, Bytes reserved_bytes, Bytes chunk_bytes)
    : driver_(driver), base_(base), reserved_bytes_(reserved_bytes), chunk_bytes_(chunk_bytes) {}

Arena::~Arena() {
  for (const Chunk& chunk : chunks_) {
    if (!UnmapChunk(chunk)) {
      CloseDescriptor(chunk);
    }
  }
  (void)driver_.ReleaseReservation(base_, reserved_bytes_);
}

DriverStatus Arena::GrowTo(Bytes bytes) noexcept {
  if (bytes > reserved_bytes_) {
    return {DriverCode::kInvalid, 0, "Arena::GrowTo"};
  }
  const std::lock_guard lock(mutex_);
  const Offset end = RoundUp(bytes, driver_.Granularity());
  const Offset begin = mapped_end_.load(std::memory_order_relaxed);
  if (end <= begin) {
    return {};
  }
  std::vector<Chunk> added;
  const DriverStatus status = MapRange(begin, end, &added);
  return Commit(status, added);
}

DriverStatus Arena::EnsureMapped(Offset offset, Bytes bytes) noexcept {
  if (offset > reserved_bytes_ || bytes > reserved_bytes_ - offset) {
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
    if (chunk.offset >= end || !status.ok()) {
      break;
    }
    if (chunk.offset > position) {
      status = MapRange(position, chunk.offset, &added);
    }
    position = std::max(position, chunk.offset + chunk.bytes);
  }
  if (status.ok() && position < end) {
    status = MapRange(position, end, &added);
  }
  return Commit(status, added);
}

DriverStatus Arena::MapRange(Offset begin, Offset end, std::vector<Chunk>* added) noexcept {
  const Offset first = begin;
  while (begin < end) {
    // The last chunk takes the remainder along: a small handle helps nobody.
    const Bytes bytes = end - begin < 2 * chunk_bytes_ ? end - begin : chunk_bytes_;
    Chunk chunk{};
    if (const DriverStatus status = MapChunk(begin, bytes, &chunk); !status.ok()) {
      return status;
    }
    added->push_back(chunk);
    begin += bytes;
  }
  return driver_.SetAccess(base_ + first, end - first);
}

DriverStatus Arena::MapChunk(Offset offset, Bytes bytes, Chunk* chunk) noexcept {
  *chunk = {offset, bytes, 0};
  DriverStatus status = driver_.Create(bytes, &chunk->handle);
  if (!status.ok()) {
    return status;
  }
  status = driver_.Map(base_ + offset, bytes, chunk->handle);
  if (!status.ok()) {
    (void)driver_.Release(chunk->handle);
  }
  return status;
}

DriverStatus Arena::Put(Offset offset, Bytes bytes, PhysicalHandle handle) noexcept {
  DriverStatus status = driver_.Map(base_ + offset, bytes, handle);
  if (!status.ok()) {
    return status;
  }
  status = driver_.SetAccess(base_ + offset, bytes);
  if (!status.ok()) {
    (void)driver_.Unmap(base_ + offset, bytes);
  }
  return status;
}

bool Arena::UnmapChunk(const Chunk& chunk) noexcept {
  if (!driver_.Unmap(base_ + chunk.offset, chunk.bytes).ok()) {
    return false;
  }
  Release(chunk);
  return true;
}

void Arena::CloseDescriptor(const Chunk& chunk) noexcept {
  if (chunk.descriptor >= 0) {
    close(chunk.descriptor);
  }
}

void Arena::Release(const Chunk& chunk) noexcept {
  CloseDescriptor(chunk);
  // A handle that cannot be released is beyond help; its addresses are free in any case.
  (void)driver_.Release(chunk.handle);
}

DriverStatus Arena::Commit(DriverStatus status, const std::vector<Chunk>& added) noexcept {
  if (!status.ok()) {
    for (auto chunk = added.rbegin(); chunk != added.rend(); ++chunk) {
      (void)UnmapChunk(*chunk);
    }
    return status;
  }
  const auto middle = chunks_.insert(chunks_.end(), added.begin(), added.end());
  std::inplace_merge(chunks_.begin(), middle, chunks_.end(),
                     [](const Chunk& a, const Chunk& b) { return a.offset < b.offset; });
  UpdateTotals();
  return status;
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
    if (next == joined.begin()) {
      return false;
    }
    --next;
    return chunk.offset + chunk.bytes <= next->offset + next->bytes;
  };
  const std::lock_guard lock(mutex_);
  const Bytes before = mapped_bytes_.load(std::memory_order_relaxed);
  std::erase_if(chunks_, [&](const Chunk& chunk) { return inside(chunk) && UnmapChunk(chunk); });
  UpdateTotals();
  return before - mapped_bytes_.load(std::memory_order_relaxed);
}

std::size_t Arena::MoveChunks(std::span<const Move> moves) noexcept {
  const std::lock_guard lock(mutex_);
  std::size_t moved = 0;
  while (moved < moves.size()) {
    const std::vector<Chunk*> run = RunOf(moves.subspan(moved));
    if (run.empty() || !MoveRun(run, moves[moved].to)) {
      break;
    }
    moved += run.size();
  }
  std::sort(chunks_.begin(), chunks_.end(), [](const Chunk& a, const Chunk& b) { return a.offset < b.offset; });
  UpdateTotals();
  return moved;
}

std::vector<Arena::Chunk*> Arena::RunOf(std::span<const Move> moves) noexcept {
  std::vector<Chunk*> run;
  for (const Move& move : moves) {
    const bool touches = run.empty() || move.to == moves[run.size() - 1].to + chunk_bytes_;
    const bool fits = move.to <= reserved_bytes_ && chunk_bytes_ <= reserved_bytes_ - move.to;
    const auto chunk =
        std::find_if(chunks_.begin(), chunks_.end(), [&move](const Chunk& one) { return one.offset == move.from; });
    if (!touches || !fits || chunk == chunks_.end() || chunk->bytes != chunk_bytes_) {
      break;
    }
    run.push_back(&*chunk);
  }
  return run;
}

bool Arena::MoveRun(std::span<Chunk* const> run, Offset to) noexcept {
  const Address begin = base_ + to;
  std::size_t unmapped = 0;
  while (unmapped < run.size() && driver_.Unmap(base_ + run[unmapped]->offset, chunk_bytes_).ok()) {
    ++unmapped;
  }
  std::size_t mapped = 0;
  if (unmapped == run.size()) {
    while (mapped < run.size() && driver_.Map(begin + mapped * chunk_bytes_, chunk_bytes_, run[mapped]->handle).ok()) {
      ++mapped;
    }
  }
  if (mapped == run.size() && driver_.SetAccess(begin, run.size() * chunk_bytes_).ok()) {
    for (Chunk* const chunk : run) {
      chunk->offset = to;
      to += chunk_bytes_;
    }
    return true;
  }
  for (std::size_t i = 0; i < mapped; ++i) {
    (void)driver_.Unmap(begin + i * chunk_bytes_, chunk_bytes_);
  }
  PutBack(run.first(unmapped));
  return false;
}

void Arena::PutBack(std::span<Chunk* const> taken) noexcept {
  constexpr PhysicalHandle kLost = 0;
  for (Chunk* const chunk : taken) {
    if (!Put(chunk->offset, chunk->bytes, chunk->handle).ok()) {
      Release(*chunk);
      chunk->handle = kLost;
    }
  }
  std::erase_if(chunks_, [](const Chunk& chunk) { return chunk.handle == kLost; });
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
  if (!lock.owns_lock()) {
    return;
  }
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
  for (const Chunk& chunk : chunks_) {
    if (const DriverStatus status = driver_.SetAccess(base_ + chunk.offset, chunk.bytes); !status.ok()) {
      return status;
    }
  }
  return {};
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

void Arena::UpdateTotals() noexcept {
  Bytes held = 0;
  for (const Chunk& chunk : chunks_) {
    held += chunk.bytes;
  }
  mapped_bytes_.store(held, std::memory_order_release);
  mapped_end_.store(chunks_.empty() ? 0 : chunks_.back().offset + chunks_.back().bytes, std::memory_order_release);
}

}  // namespace stalloc
