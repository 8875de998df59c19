// BlockMapper: puts the physical parts of blocks behind addresses and takes them away again.
//
// Owns the page heap's one address reservation. A failed call changes nothing. Not thread-safe.
#pragma once

#include <memory>

#include "allocator/arena/address_space.h"
#include "allocator/arena/mapped_block.h"
#include "allocator/arena/shared_pages.h"
#include "allocator/driver/vmm_driver.h"

namespace stalloc {

class BlockMapper {
 public:
  // Reserves addresses; null when not even a part of what is wanted can be had.
  static std::unique_ptr<BlockMapper> Create(VmmDriver& driver);
  ~BlockMapper();
  BlockMapper(const BlockMapper&) = delete;
  BlockMapper& operator=(const BlockMapper&) = delete;

  // Fills in address, range and range_bytes. REQUIRES: head, extents and tail are set.
  DriverStatus Map(MappedBlock* block) noexcept;
  // REQUIRES: no work on the device uses the block.
  DriverStatus Unmap(const MappedBlock& block) noexcept;

  // Gives the page its home address, if it has none.
  DriverStatus MapHome(SharedPages::Page* page) noexcept;
  // REQUIRES: as Unmap.
  DriverStatus UnmapHome(SharedPages::Page* page) noexcept;

  [[nodiscard]] Address base() const noexcept { return base_; }
  [[nodiscard]] Bytes reserved_bytes() const noexcept { return bytes_; }
  // Addresses of mapped blocks and pages.
  [[nodiscard]] Bytes used_bytes() const noexcept { return bytes_ - space_.free_bytes() - lost_bytes_; }

 private:
  BlockMapper(VmmDriver& driver, Address base, Bytes bytes);
  DriverStatus MapParts(const MappedBlock& block, Bytes* mapped) noexcept;
  // Unmaps and gives the addresses back.
  DriverStatus UnmapRange(Address address, Bytes bytes) noexcept;
  // Undoes a map that did not come to its end: `mapped` of the `bytes` taken at `address`.
  void Abandon(Address address, Bytes bytes, Bytes mapped) noexcept;

  VmmDriver& driver_;
  const Bytes page_;
  const Address base_;
  const Bytes bytes_;
  AddressSpace space_;
  Bytes lost_bytes_ = 0;  // see Abandon
};

}  // namespace stalloc
