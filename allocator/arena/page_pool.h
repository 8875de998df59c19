// PagePool: the physical memory of a page heap, in extents of whole pages.
//
// An extent is one driver handle of one or more pages. One large handle costs as much to create and map as one page
// does (8 us and 1.2 us on an H200), so blocks are given as few extents as possible. Free extents that do not fit a
// request are returned to the driver and created anew in the size that does: the driver pages physical memory itself,
// so nothing is lost to fragmentation among extents. Not thread-safe. Bytes; counts are pages.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "allocator/driver/vmm_driver.h"
#include "proto/model/units.h"

namespace stalloc {

struct Extent {
  PhysicalHandle handle = 0;
  std::uint64_t pages = 0;
  bool fresh = false;  // created by the Take that gave it
};

// How far a request may make the pool grow.
enum class Growth : std::uint8_t {
  kWhilePlenty,  // leaves headroom on the device for whoever else needs memory there (kernels, NCCL, other allocators)
  kToTheLimit,   // takes what there is
};

class PagePool {
 public:
  // `limit`: bytes; 0 is none of ours.
  PagePool(VmmDriver& driver, Bytes limit);
  // Releases the free extents. Extents that were taken are their holders' to give back first.
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // Exactly `pages` pages, appended to `extents`; all or nothing. A failure may return free pages to the driver.
  DriverStatus Take(std::uint64_t pages, Growth growth, std::vector<Extent>* extents);
  // REQUIRES: not mapped any more.
  void GiveBack(const Extent& extent);
  // Undoes a Take whose block came to nothing: what it created is released, what it found free is free again.
  void Undo(const std::vector<Extent>& extents);
  // Gives free extents back to the driver until at most `keep` physical bytes are held; returns the bytes given back.
  Bytes ReleaseFree(Bytes keep);

  void set_limit(Bytes limit) noexcept { limit_ = limit; }
  [[nodiscard]] Bytes limit() const noexcept { return limit_; }
  [[nodiscard]] Bytes page() const noexcept { return page_; }
  [[nodiscard]] std::uint64_t free_pages() const noexcept { return free_pages_; }
  // Pages that could be created now, leaving headroom; asks the driver.
  [[nodiscard]] std::uint64_t CreatablePages();
  [[nodiscard]] Bytes physical_bytes() const noexcept { return physical_bytes_; }
  [[nodiscard]] Bytes peak_physical_bytes() const noexcept { return peak_physical_bytes_; }

 private:
  // The largest free extents that fit, at most kMaxExtents; returns the pages still missing.
  std::uint64_t TakeFree(std::uint64_t pages, std::vector<Extent>* extents);
  // One extent, in place of free ones where the limit or the device asks for it.
  DriverStatus CreateInPlaceOfFree(std::uint64_t pages, Extent* extent);
  DriverStatus CreateExtent(std::uint64_t pages, Extent* extent);
  bool ReleaseOneFor(std::uint64_t pages);
  bool ReleaseExtent(PhysicalHandle handle, std::uint64_t pages);
  [[nodiscard]] bool WithinLimit(std::uint64_t pages) const noexcept;
  [[nodiscard]] bool Plenty(Bytes bytes);

  VmmDriver& driver_;
  const Bytes page_;
  Bytes limit_;
  Bytes headroom_ = 0;
  Bytes credit_ = 0;  // may be created before the driver is asked again whether there is plenty
  std::multimap<std::uint64_t, PhysicalHandle> free_;  // pages -> handle
  std::uint64_t free_pages_ = 0;
  Bytes physical_bytes_ = 0;
  Bytes peak_physical_bytes_ = 0;
};

}  // namespace stalloc
