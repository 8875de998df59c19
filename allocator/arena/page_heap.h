// PageHeap: a heap without fragmentation, for exact traces.
//
// Every large block is a range of addresses of its own, assembled from physical pages (the driver's granularity) that
// are recycled from block to block: a run whose live bytes fit can be traced although no caching allocator could hold
// it. Blocks under one page, and the remainders of larger ones, share pages at 512 B grain (shared_pages.h has a
// drawing).
//
// Freed blocks keep their mapping and serve the next request of the same size on the same stream for free. Only when
// the device (or `limit_bytes`) has no page left are cached mappings taken apart, oldest first: the device is
// synchronised once, and then as many are unmapped as the request needs.
//
// The bound: a null from Allocate means that even with every freed byte back in the pool
//   live bytes + request rounded up to pages + gaps in shared pages (Stats::shared_gap_bytes) > the limit, or what the
//   device
// has. A shared page exists only while a block holds a part of it, so gaps are below one page per such part (a block
// has one, or two if it was split, as the heap tries before it gives up). Recorded training runs with tens of GiB live
// need 1.0002 to 1.003 times their live peak.
//
// Thread-safe. Calls the driver under its lock: this is the slow, exact mode.
#pragma once

#include <memory>
#include <string>

#include "allocator/driver/vmm_driver.h"
#include "proto/model/units.h"

namespace stalloc {

class PageHeap {
 public:
  // `limit_bytes`: physical bytes at most; 0 is no limit of ours. Null when the driver gives no addresses.
  static std::unique_ptr<PageHeap> Create(VmmDriver& driver, Bytes limit_bytes);
  // Takes everything back, live blocks too. The device must be done with them.
  virtual ~PageHeap() = default;

  // Null when live bytes + request do not fit.
  virtual void* Allocate(Bytes requested, StreamHandle stream) noexcept = 0;
  // Returns the rounded bytes of the block that starts there; 0 if none does, or its free has begun already. Its bytes
  // are nobody else's before Free.
  virtual Bytes BeginFree(void* pointer) noexcept = 0;
  // Returns the rounded bytes of the block; 0 if `pointer` is none of ours.
  virtual Bytes Free(void* pointer) noexcept = 0;
  // The block was used on another stream too: it is not reused before the device was waited for, and all others where
  // the stream was one of theirs.
  virtual void RecordStream(void* pointer, StreamHandle stream) noexcept = 0;
  // Takes no lock.
  virtual bool Contains(const void* pointer) const noexcept = 0;
  // Synchronises the device and gives cached mappings and free pages back to it; bytes returned.
  virtual Bytes ReleaseCached() noexcept = 0;
  // Gives cached memory above the new limit back at once; live blocks stay, whatever the limit.
  virtual void SetLimit(Bytes limit_bytes) noexcept = 0;
  // Repeats SetAccess on everything mapped, whatever fails in between: after a peer device was enabled in the driver.
  // The first failure.
  virtual DriverStatus RefreshAccess() noexcept = 0;

  struct Stats {
    Bytes live_bytes = 0;  // rounded to 512
    Bytes peak_live_bytes = 0;
    Bytes physical_bytes = 0;  // held on the device now
    Bytes peak_physical_bytes = 0;
    Bytes cached_bytes = 0;      // freed blocks that are still mapped
    Bytes shared_gap_bytes = 0;  // free parts of shared pages
    std::uint64_t live_blocks = 0;
    std::uint64_t cache_hits = 0;        // large requests served without a driver call
    std::uint64_t builds = 0;            // blocks that were assembled and mapped
    std::uint64_t takedowns = 0;         // times that cached mappings had to be taken apart
    std::uint64_t synchronizations = 0;  // of the device
  };
  [[nodiscard]] virtual Stats GetStats() const noexcept = 0;
  // Empty: fine.
  [[nodiscard]] virtual std::string CheckInvariants() const = 0;
};

}  // namespace stalloc
