// PageHeap: a heap without fragmentation, for exact traces.
//
// Every large block is a range of addresses of its own, assembled from physical pages (the driver's granularity) that are
// recycled from block to block: a run whose live bytes fit can be traced although no caching allocator could hold it.
// Blocks under one page, and the remainders of larger ones, share pages at 512 B grain (page_heap.cc has a drawing).
//
// Freed blocks keep their mapping and serve the next request of the same size on the same stream for free. Only when the
// device (or `limit_bytes`) has no page left are cached mappings taken apart: the device is synchronised, their pages are
// unmapped and go to the request. Out of memory therefore means that live bytes plus the request do not fit.
// Thread-safe. Calls the driver under its lock: this is the slow, exact mode.
#pragma once

#include <memory>
#include <string>

#include "allocator/driver/vmm_driver.h"
#include "proto/model/units.h"

namespace stalloc {

class PageHeap {
 public:
  // `limit_bytes`: physical bytes at most; 0 is no limit of ours.
  static std::unique_ptr<PageHeap> Create(VmmDriver& driver, Bytes limit_bytes);
  virtual ~PageHeap() = default;

  // Null when live bytes + request do not fit.
  virtual void* Allocate(Bytes requested, StreamHandle stream) noexcept = 0;
  // Returns the rounded bytes of the block; 0 if `pointer` is none of ours.
  virtual Bytes Free(void* pointer) noexcept = 0;
  // The block was used on another stream too: it is not reused without a device synchronisation.
  virtual void RecordStream(void* pointer, StreamHandle stream) noexcept = 0;
  virtual bool Contains(const void* pointer) const noexcept = 0;
  // Gives cached mappings and free pages back to the device; bytes returned.
  virtual Bytes ReleaseCached() noexcept = 0;
  virtual void SetLimit(Bytes limit_bytes) noexcept = 0;

  struct Stats {
    Bytes live_bytes = 0;      // rounded to 512
    Bytes peak_live_bytes = 0;
    Bytes physical_bytes = 0;  // held on the device now
    Bytes peak_physical_bytes = 0;
    std::uint64_t live_blocks = 0;
    std::uint64_t takedowns = 0;  // times that cached mappings had to be taken apart
  };
  [[nodiscard]] virtual Stats GetStats() const noexcept = 0;
  // Empty: fine.
  [[nodiscard]] virtual std::string CheckInvariants() const = 0;
};

}  // namespace stalloc
