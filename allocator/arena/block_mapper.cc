#include "allocator/arena/block_mapper.h"

#include <algorithm>

namespace stalloc {
namespace {

// See address_space.h: so many times the device's memory never run out.
constexpr Bytes kAddressesPerByte = 32;
constexpr Bytes kMostAddresses = Bytes{1} << 45;
constexpr DriverStatus kNoAddresses{DriverCode::kOutOfMemory, 0, "BlockMapper::Map"};

}  // namespace

std::unique_ptr<BlockMapper> BlockMapper::Create(VmmDriver& driver) {
  MemoryInfo info;
  if (!driver.GetMemoryInfo(&info).ok()) {
    return nullptr;
  }
  const Bytes page = driver.Granularity();
  const Bytes least = RoundUp(std::max(info.total, page), page);
  // Under a limit on addresses (RLIMIT_AS) a smaller reservation still serves.
  for (Bytes bytes = std::min(least * kAddressesPerByte, std::max(least, kMostAddresses)); bytes >= least; bytes /= 2) {
    Address base = 0;
    const Bytes rounded = RoundUp(bytes, page);
    if (driver.Reserve(rounded, &base).ok()) {
      return std::unique_ptr<BlockMapper>(new BlockMapper(driver, base, rounded));
    }
  }
  return nullptr;
}

BlockMapper::BlockMapper(VmmDriver& driver, Address base, Bytes bytes)
    : driver_(driver), page_(driver.Granularity()), base_(base), bytes_(bytes), space_(base, bytes) {}

BlockMapper::~BlockMapper() { (void)driver_.ReleaseReservation(base_, bytes_); }

DriverStatus BlockMapper::Map(MappedBlock* block) noexcept {
  std::uint64_t pages = (block->head ? 1 : 0) + (block->tail ? 1 : 0);
  for (const Extent& extent : block->extents) {
    pages += extent.pages;
  }
  const Bytes range_bytes = pages * page_;
  const Address range = space_.Take(range_bytes);
  if (range == 0) {
    return kNoAddresses;
  }
  block->range = range;
  block->range_bytes = range_bytes;
  Bytes mapped = 0;
  DriverStatus status = MapParts(*block, &mapped);
  if (status.ok()) {
    status = driver_.SetAccess(range, range_bytes);
  }
  if (!status.ok()) {
    Abandon(range, range_bytes, mapped);
    return status;
  }
  block->address = range + (block->head ? block->head.offset : 0);
  return status;
}

DriverStatus BlockMapper::MapParts(const MappedBlock& block, Bytes* mapped) noexcept {
  const auto map_next = [&](PhysicalHandle handle, Bytes bytes) {
    const DriverStatus status = driver_.Map(block.range + *mapped, bytes, handle);
    *mapped += status.ok() ? bytes : 0;
    return status;
  };
  DriverStatus status;
  if (block.head) {
    status = map_next(block.head.page->handle, page_);
  }
  for (const Extent& extent : block.extents) {
    if (status.ok()) {
      status = map_next(extent.handle, extent.pages * page_);
    }
  }
  if (status.ok() && block.tail) {
    status = map_next(block.tail.page->handle, page_);
  }
  return status;
}

DriverStatus BlockMapper::Unmap(const MappedBlock& block) noexcept {
  return UnmapRange(block.range, block.range_bytes);
}

DriverStatus BlockMapper::MapHome(SharedPages::Page* page) noexcept {
  if (page->home != 0) {
    return {};
  }
  const Address home = space_.Take(page_);
  if (home == 0) {
    return kNoAddresses;
  }
  DriverStatus status = driver_.Map(home, page_, page->handle);
  const Bytes mapped = status.ok() ? page_ : 0;
  if (status.ok()) {
    status = driver_.SetAccess(home, page_);
  }
  if (!status.ok()) {
    Abandon(home, page_, mapped);
    return status;
  }
  page->home = home;
  return status;
}

DriverStatus BlockMapper::UnmapHome(SharedPages::Page* page) noexcept {
  if (page->home == 0) {
    return {};
  }
  const DriverStatus status = UnmapRange(page->home, page_);
  if (status.ok()) {
    page->home = 0;
  }
  return status;
}

DriverStatus BlockMapper::UnmapRange(Address address, Bytes bytes) noexcept {
  const DriverStatus status = driver_.Unmap(address, bytes);
  if (status.ok()) {
    space_.GiveBack(address, bytes);
  }
  return status;
}

void BlockMapper::Abandon(Address address, Bytes bytes, Bytes mapped) noexcept {
  if (mapped > 0 && !driver_.Unmap(address, mapped).ok()) {
    // The driver neither maps nor unmaps any more. Addresses that may still be mapped are never given out again.
    lost_bytes_ += bytes;
    return;
  }
  space_.GiveBack(address, bytes);
}

}  // namespace stalloc
