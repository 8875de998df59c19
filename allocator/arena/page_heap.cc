#include "allocator/arena/page_heap.h"

#include <algorithm>
#include <utility>

#include "allocator/arena/page_heap_impl.h"
#include "allocator/driver/stream_fence.h"

namespace stalloc {
namespace {

constexpr DriverStatus kNoRoom{DriverCode::kOutOfMemory, 0, "PageHeap::Allocate"};

}  // namespace

std::unique_ptr<PageHeap> PageHeap::Create(VmmDriver& driver, Bytes limit_bytes) {
  std::unique_ptr<BlockMapper> mapper = BlockMapper::Create(driver);
  if (mapper == nullptr) {
    return nullptr;
  }
  return std::make_unique<PageHeapImpl>(driver, limit_bytes, std::move(mapper));
}

PageHeapImpl::PageHeapImpl(VmmDriver& driver, Bytes limit_bytes, std::unique_ptr<BlockMapper> mapper)
    : driver_(driver),
      page_(driver.Granularity()),
      mapper_(std::move(mapper)),
      pool_(driver, limit_bytes),
      shared_(page_) {}

PageHeapImpl::~PageHeapImpl() {
  ForEachMapped([this](const MappedBlock& block) { Destroy(block); });
  for (const auto& [id, page] : shared_.pages()) {
    (void)mapper_->UnmapHome(page.get());
    (void)driver_.Release(page->handle);
  }
}

void PageHeapImpl::Destroy(const MappedBlock& block) {
  (void)mapper_->Unmap(block);
  for (const Extent& extent : block.extents) {
    (void)driver_.Release(extent.handle);
  }
}

// Requests
// ---------------------------------------------------------------------------------------------------------------

void* PageHeapImpl::Allocate(Bytes requested, StreamHandle stream) noexcept {
  const std::lock_guard lock(mutex_);
  if (requested > mapper_->reserved_bytes()) {
    return nullptr;
  }
  const Bytes bytes = BlockBytes(requested);
  const auto place = [&](Growth growth, Address* address) {
    return bytes < page_ ? PlaceSmall(bytes, stream, growth, address) : PlaceLarge(bytes, stream, growth, address);
  };
  Address address = 0;
  DriverStatus status = place(Growth::kWhilePlenty, &address);
  const std::uint64_t pages = (bytes + page_ - 1) / page_;
  while (status.code == DriverCode::kOutOfMemory && MakeRoom(pages)) {
    status = place(Growth::kWhilePlenty, &address);
  }
  if (status.code == DriverCode::kOutOfMemory) {
    status = place(Growth::kToTheLimit, &address);
  }
  if (status.code == DriverCode::kOutOfMemory) {
    status = PlaceSplit(bytes, stream, &address);
  }
  return status.ok() ? Account(address, bytes) : nullptr;
}

void* PageHeapImpl::Account(Address address, Bytes bytes) {
  stats_.live_bytes += bytes;
  stats_.peak_live_bytes = std::max(stats_.peak_live_bytes, stats_.live_bytes);
  ++stats_.live_blocks;
  return reinterpret_cast<void*>(address);
}

DriverStatus PageHeapImpl::PlaceSmall(Bytes bytes, StreamHandle stream, Growth growth, Address* address) {
  SharedPages::Piece piece = shared_.TakeAnywhere(bytes, stream);
  Extent added;
  if (!piece) {
    SharedPages::Page* page = nullptr;
    if (const DriverStatus status = AddSharedPage(growth, &page, &added); !status.ok()) {
      return status;
    }
    piece = shared_.TakeAnywhere(bytes, stream);
  }
  if (const DriverStatus status = mapper_->MapHome(piece.page); !status.ok()) {
    shared_.Undo(piece);
    if (added.pages > 0) {
      RemoveSharedPage(piece.page, added);
    }
    return status;
  }
  *address = piece.page->home + piece.offset;
  small_.emplace(*address, SmallBlock{piece, stream, false});
  return {};
}

DriverStatus PageHeapImpl::PlaceLarge(Bytes bytes, StreamHandle stream, Growth growth, Address* address) {
  if (BlockPointer block = cache_.Take(bytes, stream)) {
    block->stream = stream;
    block->recorded = false;
    *address = block->address;
    live_.emplace(*address, std::move(block));
    ++stats_.cache_hits;
    return {};
  }
  return Build(bytes, {bytes / page_, bytes % page_, false}, stream, growth, address);
}

DriverStatus PageHeapImpl::PlaceSplit(Bytes bytes, StreamHandle stream, Address* address) {
  const std::uint64_t pages = bytes / page_;
  const Bytes rest = bytes % page_;
  DriverStatus status = kNoRoom;
  if (rest > 0) {
    status = Build(bytes, {pages, rest, true}, stream, Growth::kToTheLimit, address);
  }
  // One full page less, and its bytes in the two gaps as well.
  if (status.code == DriverCode::kOutOfMemory && pages > 0) {
    status = Build(bytes, {pages - 1, rest + page_, true}, stream, Growth::kToTheLimit, address);
  }
  return status;
}

DriverStatus PageHeapImpl::Build(Bytes bytes, Shape shape, StreamHandle stream, Growth growth, Address* address) {
  auto block = std::make_unique<MappedBlock>();
  block->bytes = bytes;
  block->stream = stream;
  Extent added;
  DriverStatus status = TakeRest(block.get(), shape, growth, &added);
  if (!status.ok()) {
    return status;
  }
  if (shape.pages > 0) {
    status = pool_.Take(shape.pages, growth, &block->extents);
  }
  if (status.ok()) {
    status = mapper_->Map(block.get());
  }
  if (!status.ok()) {
    pool_.Undo(block->extents);
    UndoRest(*block, added);
    return status;
  }
  ++stats_.builds;
  *address = block->address;
  live_.emplace(*address, std::move(block));
  return status;
}

DriverStatus PageHeapImpl::TakeRest(MappedBlock* block, Shape shape, Growth growth, Extent* added) {
  if (shape.rest == 0) {
    return {};
  }
  if (shape.split) {
    return shared_.TakeSplit(shape.rest, block->stream, &block->head, &block->tail) ? DriverStatus{} : kNoRoom;
  }
  SharedPages::Piece piece = shared_.TakeAtEdge(shape.rest, block->stream);
  if (!piece) {
    SharedPages::Page* page = nullptr;
    if (const DriverStatus status = AddSharedPage(growth, &page, added); !status.ok()) {
      return status;
    }
    piece = shared_.TakeAtEdge(shape.rest, block->stream);
  }
  (piece.offset == 0 ? block->tail : block->head) = piece;
  return {};
}

void PageHeapImpl::UndoRest(const MappedBlock& block, const Extent& added) {
  for (const SharedPages::Piece& piece : {block.head, block.tail}) {
    if (piece) {
      shared_.Undo(piece);
      if (added.pages > 0) {
        RemoveSharedPage(piece.page, added);
      }
    }
  }
}

DriverStatus PageHeapImpl::AddSharedPage(Growth growth, SharedPages::Page** page, Extent* extent) {
  std::vector<Extent> taken;
  if (const DriverStatus status = pool_.Take(1, growth, &taken); !status.ok()) {
    return status;
  }
  *extent = taken.front();
  *page = shared_.Add(extent->handle);
  return {};
}

void PageHeapImpl::RemoveSharedPage(SharedPages::Page* page, const Extent& extent) {
  shared_.Remove(page);
  pool_.Undo({extent});
}

// Frees
// ------------------------------------------------------------------------------------------------------------------

Bytes PageHeapImpl::BeginFree(void* pointer) noexcept {
  const auto address = reinterpret_cast<Address>(pointer);
  const std::lock_guard lock(mutex_);
  if (const auto small = small_.find(address); small != small_.end()) {
    return std::exchange(small->second.ending, true) ? 0 : small->second.piece.bytes;
  }
  const auto large = live_.find(address);
  return large == live_.end() || std::exchange(large->second->ending, true) ? 0 : large->second->bytes;
}

Bytes PageHeapImpl::Free(void* pointer) noexcept {
  const auto address = reinterpret_cast<Address>(pointer);
  const std::lock_guard lock(mutex_);
  Bytes bytes = 0;
  if (const auto small = small_.find(address); small != small_.end()) {
    const SmallBlock& block = small->second;
    bytes = block.piece.bytes;
    shared_.GiveBack(block.piece, block.recorded ? kQuarantine : block.stream);
    small_.erase(small);
  } else if (const auto large = live_.find(address); large != live_.end()) {
    bytes = large->second->bytes;
    large->second->ending = false;
    cache_.Put(std::move(large->second));
    live_.erase(large);
  } else {
    return 0;
  }
  freed_since_sync_ = true;
  stats_.live_bytes -= bytes;
  --stats_.live_blocks;
  return bytes;
}

void PageHeapImpl::RecordStream(void* pointer, StreamHandle stream) noexcept {
  const auto address = reinterpret_cast<Address>(pointer);
  const std::lock_guard lock(mutex_);
  used_elsewhere_ = used_elsewhere_ || IsOfOtherDevice(stream);
  if (const auto small = small_.find(address); small != small_.end()) {
    small->second.recorded = small->second.recorded || stream != small->second.stream;
  } else if (const auto large = live_.find(address); large != live_.end()) {
    large->second->recorded = large->second->recorded || stream != large->second->stream;
  }
}

bool PageHeapImpl::Contains(const void* pointer) const noexcept {
  return reinterpret_cast<Address>(pointer) - mapper_->base() < mapper_->reserved_bytes();
}

// Pressure
// ---------------------------------------------------------------------------------------------------------------

bool PageHeapImpl::MakeRoom(std::uint64_t pages) {
  const std::uint64_t creatable = pool_.CreatablePages();
  bool any = false;
  while (!any || pool_.free_pages() + creatable < pages) {
    if (!TakeOneApart()) {
      break;
    }
    any = true;
  }
  if (any) {
    ++stats_.takedowns;
    return true;
  }
  // After this the cache may serve the request as it is; the caller looks before more is taken apart.
  return freed_since_sync_ && Synchronize();
}

bool PageHeapImpl::TakeOneApart() {
  if (SharedPages::Page* const page = shared_.FindEmpty(); page != nullptr && mapper_->UnmapHome(page).ok()) {
    pool_.GiveBack({page->handle, 1, false});
    shared_.Remove(page);
    return true;
  }
  BlockPointer block = cache_.TakeOldestClean();
  if (block == nullptr) {
    return false;
  }
  if (!mapper_->Unmap(*block).ok()) {
    cache_.PutBackOldest(std::move(block));
    return false;
  }
  Dismantle(*block);
  return true;
}

void PageHeapImpl::Dismantle(const MappedBlock& block) {
  for (const Extent& extent : block.extents) {
    pool_.GiveBack(extent);
  }
  for (const SharedPages::Piece& piece : {block.head, block.tail}) {
    if (piece) {
      shared_.GiveBack(piece, kClean);
    }
  }
}

bool PageHeapImpl::Synchronize() {
  if (!driver_.Synchronize().ok() || (used_elsewhere_ && !driver_.SynchronizeOthers().ok())) {
    return false;
  }
  ++stats_.synchronizations;
  cache_.AllClean();
  shared_.AllClean();
  freed_since_sync_ = false;
  return true;
}

Bytes PageHeapImpl::ReleaseCached() noexcept {
  const std::lock_guard lock(mutex_);
  const Bytes before = pool_.physical_bytes();
  if (freed_since_sync_) {
    (void)Synchronize();  // where it fails, what was clean before can go all the same
  }
  while (TakeOneApart()) {
  }
  pool_.ReleaseFree(0);
  return before - pool_.physical_bytes();
}

void PageHeapImpl::SetLimit(Bytes limit_bytes) noexcept {
  const std::lock_guard lock(mutex_);
  pool_.set_limit(limit_bytes);
  if (limit_bytes == 0 || pool_.physical_bytes() <= limit_bytes) {
    return;
  }
  if (freed_since_sync_) {
    (void)Synchronize();
  }
  do {
    pool_.ReleaseFree(limit_bytes);
  } while (pool_.physical_bytes() > limit_bytes && TakeOneApart());
}

DriverStatus PageHeapImpl::RefreshAccess() noexcept {
  const std::lock_guard lock(mutex_);
  DriverStatus first_failure;
  const auto refresh = [&](Address address, Bytes bytes) {
    const DriverStatus status = driver_.SetAccess(address, bytes);
    if (first_failure.ok()) first_failure = status;
  };
  ForEachMapped([&](const MappedBlock& block) { refresh(block.range, block.range_bytes); });
  for (const auto& [id, page] : shared_.pages()) {
    if (page->home != 0) {
      refresh(page->home, page_);
    }
  }
  return first_failure;
}

PageHeap::Stats PageHeapImpl::GetStats() const noexcept {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.physical_bytes = pool_.physical_bytes();
  stats.peak_physical_bytes = pool_.peak_physical_bytes();
  stats.cached_bytes = cache_.bytes();
  stats.shared_gap_bytes = shared_.free_bytes();
  return stats;
}

}  // namespace stalloc
