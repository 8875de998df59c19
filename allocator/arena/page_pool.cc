#include "allocator/arena/page_pool.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace stalloc {
namespace {

// Beyond this many extents a block is cheaper to create anew than to map piece by piece.
constexpr std::size_t kMaxExtents = 16;
// The part of the device that growth beyond need leaves to others: 2.2 GiB of an H200.
constexpr Bytes kHeadroomDivisor = 64;

constexpr DriverStatus kOutOfPages{DriverCode::kOutOfMemory, 0, "PagePool::Take"};

}  // namespace

PagePool::PagePool(VmmDriver& driver, Bytes limit) : driver_(driver), page_(driver.Granularity()), limit_(limit) {
  MemoryInfo info;
  if (driver_.GetMemoryInfo(&info).ok()) {
    headroom_ = info.total / kHeadroomDivisor;
  }
}

PagePool::~PagePool() { ReleaseFree(0); }

DriverStatus PagePool::Take(std::uint64_t pages, Growth growth, std::vector<Extent>* extents) {
  const std::uint64_t missing = pages > free_pages_ ? pages - free_pages_ : 0;
  if (missing > 0) {
    if (!WithinLimit(missing) || (growth == Growth::kWhilePlenty && !Plenty(missing * page_))) {
      return kOutOfPages;
    }
  }
  std::vector<Extent> taken;
  const std::uint64_t rest = TakeFree(pages, &taken);
  if (rest > 0) {
    Extent created;
    if (const DriverStatus status = CreateInPlaceOfFree(rest, &created); !status.ok()) {
      Undo(taken);
      return status;
    }
    taken.push_back(created);
  }
  extents->insert(extents->end(), taken.begin(), taken.end());
  return {};
}

std::uint64_t PagePool::TakeFree(std::uint64_t pages, std::vector<Extent>* extents) {
  while (pages > 0 && extents->size() < kMaxExtents) {
    auto above = free_.upper_bound(pages);
    if (above == free_.begin()) {
      break;
    }
    const auto largest = std::prev(above);
    extents->push_back({largest->second, largest->first, false});
    pages -= largest->first;
    free_pages_ -= largest->first;
    free_.erase(largest);
  }
  return pages;
}

DriverStatus PagePool::CreateInPlaceOfFree(std::uint64_t pages, Extent* extent) {
  // What is free already is used before the pool grows, so that growth stays what is needed.
  const std::uint64_t target = free_pages_ > pages ? free_pages_ - pages : 0;
  while (free_pages_ > target) {
    if (!ReleaseOneFor(pages)) {
      return kOutOfPages;
    }
  }
  while (true) {
    const DriverStatus status = CreateExtent(pages, extent);
    if (status.code != DriverCode::kOutOfMemory || !ReleaseOneFor(pages)) {
      return status;
    }
  }
}

DriverStatus PagePool::CreateExtent(std::uint64_t pages, Extent* extent) {
  if (!WithinLimit(pages)) {
    return kOutOfPages;
  }
  const Bytes bytes = pages * page_;
  *extent = {0, pages, true};
  const DriverStatus status = driver_.Create(bytes, &extent->handle);
  if (status.ok()) {
    physical_bytes_ += bytes;
    peak_physical_bytes_ = std::max(peak_physical_bytes_, physical_bytes_);
    credit_ -= std::min(credit_, bytes);
  } else {
    credit_ = 0;
  }
  return status;
}

// Returns one free extent to the driver: the smallest that makes room for `pages` alone, else the largest.
bool PagePool::ReleaseOneFor(std::uint64_t pages) {
  if (free_.empty()) {
    return false;
  }
  auto victim = free_.lower_bound(pages);
  if (victim == free_.end()) {
    victim = std::prev(victim);
  }
  if (!ReleaseExtent(victim->second, victim->first)) {
    return false;
  }
  free_pages_ -= victim->first;
  free_.erase(victim);
  return true;
}

bool PagePool::ReleaseExtent(PhysicalHandle handle, std::uint64_t pages) {
  const DriverCode code = driver_.Release(handle).code;
  if (code != DriverCode::kOk && code != DriverCode::kShuttingDown) {
    return false;
  }
  physical_bytes_ -= pages * page_;
  return true;
}

void PagePool::GiveBack(const Extent& extent) {
  free_.emplace(extent.pages, extent.handle);
  free_pages_ += extent.pages;
}

void PagePool::Undo(const std::vector<Extent>& extents) {
  for (const Extent& extent : extents) {
    if (!extent.fresh || !ReleaseExtent(extent.handle, extent.pages)) {
      GiveBack(extent);
    }
  }
}

Bytes PagePool::ReleaseFree(Bytes keep) {
  const Bytes before = physical_bytes_;
  while (physical_bytes_ > keep && ReleaseOneFor((physical_bytes_ - keep + page_ - 1) / page_)) {
  }
  return before - physical_bytes_;
}

bool PagePool::WithinLimit(std::uint64_t pages) const noexcept {
  return limit_ == 0 || (physical_bytes_ <= limit_ && pages <= (limit_ - physical_bytes_) / page_);
}

bool PagePool::Plenty(Bytes bytes) {
  if (bytes <= credit_) {
    return true;
  }
  MemoryInfo info;
  if (!driver_.GetMemoryInfo(&info).ok() || info.free < headroom_ || info.free - headroom_ < bytes) {
    return false;
  }
  // Others take memory too, so the answer is trusted for a part of the headroom only.
  credit_ = std::min(info.free - headroom_, std::max(bytes, headroom_ / 2));
  return true;
}

std::uint64_t PagePool::CreatablePages() {
  std::uint64_t pages = std::numeric_limits<std::uint64_t>::max();
  if (limit_ != 0) {
    pages = physical_bytes_ < limit_ ? (limit_ - physical_bytes_) / page_ : 0;
  }
  MemoryInfo info;
  if (!driver_.GetMemoryInfo(&info).ok() || info.free < headroom_) {
    return 0;
  }
  return std::min(pages, (info.free - headroom_) / page_);
}

}  // namespace stalloc
