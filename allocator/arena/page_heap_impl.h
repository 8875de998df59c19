// PageHeapImpl: how a PageHeap is put together. Internal to page_heap.cc and page_heap_check.cc.
//
//   request --> BlockCache (same size, same stream) --------------------------------> block
//       \--> parts: PagePool (full pages) + SharedPages (remainder) --> BlockMapper --> block
//                       ^ no page: MakeRoom takes the oldest clean cached block apart, synchronises when none is clean
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "allocator/arena/block_cache.h"
#include "allocator/arena/block_mapper.h"
#include "allocator/arena/page_heap.h"
#include "allocator/arena/page_pool.h"
#include "allocator/arena/shared_pages.h"

namespace stalloc {

class PageHeapImpl final : public PageHeap {
 public:
  PageHeapImpl(VmmDriver& driver, Bytes limit_bytes, std::unique_ptr<BlockMapper> mapper);
  ~PageHeapImpl() override;

  void* Allocate(Bytes requested, StreamHandle stream) noexcept override;
  Bytes BeginFree(void* pointer) noexcept override;
  Bytes Free(void* pointer) noexcept override;
  void RecordStream(void* pointer, StreamHandle stream) noexcept override;
  bool Contains(const void* pointer) const noexcept override;
  Bytes ReleaseCached() noexcept override;
  void SetLimit(Bytes limit_bytes) noexcept override;
  DriverStatus RefreshAccess() noexcept override;
  Stats GetStats() const noexcept override;
  std::string CheckInvariants() const override;

 private:
  using BlockPointer = std::unique_ptr<MappedBlock>;
  struct SmallBlock {
    SharedPages::Piece piece;
    StreamHandle stream = 0;
    bool recorded = false;
    bool ending = false;  // its free has begun
  };
  // How a block is divided: full pages, and the rest in one shared page or in two.
  struct Shape {
    std::uint64_t pages = 0;
    Bytes rest = 0;
    bool split = false;
  };

  DriverStatus PlaceSmall(Bytes bytes, StreamHandle stream, Growth growth, Address* address);
  DriverStatus PlaceLarge(Bytes bytes, StreamHandle stream, Growth growth, Address* address);
  // The last resort of both: the request in two gaps of shared pages.
  DriverStatus PlaceSplit(Bytes bytes, StreamHandle stream, Address* address);
  DriverStatus Build(Bytes bytes, Shape shape, StreamHandle stream, Growth growth, Address* address);
  DriverStatus TakeRest(MappedBlock* block, Shape shape, Growth growth, Extent* added);
  void UndoRest(const MappedBlock& block, const Extent& added);
  // A new, empty shared page over one page of the pool, which `extent` tells.
  DriverStatus AddSharedPage(Growth growth, SharedPages::Page** page, Extent* extent);
  void RemoveSharedPage(SharedPages::Page* page, const Extent& extent);

  // Frees at least one page, better `pages`, or makes the cache clean; false when there is nothing to gain any more.
  bool MakeRoom(std::uint64_t pages);
  bool TakeOneApart();
  bool Synchronize();
  void Dismantle(const MappedBlock& block);
  // Unmaps and releases everything of a block or page, for the destructor.
  void Destroy(const MappedBlock& block);

  void* Account(Address address, Bytes bytes);
  template <typename Visit>
  void ForEachMapped(Visit visit) const;
  [[nodiscard]] std::string CheckSharedParts() const;

  VmmDriver& driver_;
  const Bytes page_;
  mutable std::mutex mutex_;
  std::unique_ptr<BlockMapper> mapper_;
  PagePool pool_;
  SharedPages shared_;
  BlockCache cache_;
  std::unordered_map<Address, BlockPointer> live_;
  std::unordered_map<Address, SmallBlock> small_;
  bool freed_since_sync_ = false;
  bool used_elsewhere_ = false;  // some block, by a stream of another device
  Stats stats_;
};

template <typename Visit>
void PageHeapImpl::ForEachMapped(Visit visit) const {
  for (const auto& [address, block] : live_) {
    visit(*block);
  }
  cache_.ForEach(visit);
}

}  // namespace stalloc
