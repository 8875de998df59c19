// Arena: one contiguous address range of a device, backed by physical handles (chunks) from its base upward.
//
//   base                                          mapped_end      reserved_bytes
//    |== chunk 0 ==|== chunk 1 ==|.. hole ..|== chunk 2 ==|...........|   addresses never move: a plan's offset is
//                                                                         valid for life
//
// Chunks are cut at multiples of chunk_bytes(), so that most are of that size and fit in each other's places. Holes
// appear only when idle chunks are released or go elsewhere. Thread-safe; the accessors take no lock. Does no
// bookkeeping of blocks: which bytes are in use is the engine's business (allocator/engine/bytes/occupancy.h). Bytes.
//
// Note [Descriptors]
// A chunk that other processes map has a file descriptor, made at its first Export. It belongs to the chunk's memory,
// not to its place: it moves with the chunk, and is closed right before that memory is released, since it would hold
// it. So a descriptor never stands for other memory than the chunk's that it is found at, and as long as a chunk lives
// no other one gets its number. Receivers of torch know what they have mapped by these numbers.
//
// Note [Borrowed memory]
// The last addresses are for memory of another allocator's, which is mapped there a second time, chunk by chunk as it
// has it. It is that one's: among Chunks() and what is held it is not. A caller that needs its bytes alone gets
// own memory at the same address, which is a chunk like others from then on; so is own memory next to what is borrowed,
// for blocks that lie in both. CUDA allows two addresses as long as the kernels that use one of them are ordered after
// those that used the other (Programming Guide, Virtual Aliasing Support).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "allocator/driver/vmm_driver.h"
#include "proto/model/result.h"
#include "proto/model/units.h"

namespace stalloc {

class Arena {
 public:
  struct Range {
    Offset offset = 0;
    Bytes bytes = 0;
  };
  static constexpr Bytes kMostChunkBytes = Bytes{1} << 30;

  // Reserves addresses only: `reserve_bytes` for its own memory, and `borrow_bytes` above them. All sizes are rounded
  // up to the driver's granularity. Null on failure, `status` says why.
  static std::unique_ptr<Arena> Create(VmmDriver& driver, Bytes reserve_bytes, DriverStatus* status,
                                       Bytes chunk_bytes = kMostChunkBytes, Bytes borrow_bytes = 0);
  // Unmaps and releases everything. The device must be done with it; failures at driver shutdown are ignored.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Backs [mapped_end(), bytes) and makes it usable; nothing to do if bytes <= mapped_end(). Leaves holes alone.
  // `chunk_bytes`: of its chunks; 0: chunk_bytes(). REQUIRES: bytes <= reserved_bytes(). On failure nothing changes
  // (a failed step rolls the earlier ones back).
  DriverStatus GrowTo(Bytes bytes, Bytes chunk_bytes = 0) noexcept;

  // Backs whatever part of [offset, offset + bytes) is not backed yet. REQUIRES: the range lies below borrow_begin().
  // On failure nothing changes.
  DriverStatus EnsureMapped(Offset offset, Bytes bytes) noexcept;

  // Backs each of the ranges by one chunk, as Chunks() reported them before they were released. REQUIRES: nothing in
  // them is backed. On failure nothing changes.
  DriverStatus MapAsChunks(std::span<const Range> chunks) noexcept;

  // Gives chunks back from the top while they lie wholly at or above `bytes`. REQUIRES: nobody uses those bytes; the
  // caller has synchronised the device. Returns what was given back, bytes.
  Bytes ShrinkTo(Bytes bytes) noexcept;

  // Gives back every chunk that lies wholly inside the union of `idle` (any order, may touch or overlap). REQUIRES: as
  // for ShrinkTo. Returns what was given back, bytes.
  Bytes ReleaseIdle(std::span<const Range> idle) noexcept;

  // Puts memory elsewhere: that of `from`, each a whole chunk, backs the holes `to` (disjoint), the lowest first, as
  // far as it goes; what is more stays where the last chunk began. Nothing more is held meanwhile. What the driver
  // refuses goes back to the device: HolesIn says what is backed. REQUIRES: as for ReleaseIdle, of `from`.
  void Move(std::span<const Range> from, std::span<const Range> to) noexcept;

  // Maps memory of another allocator, beginning with the mapping at the address `from`, at `offset`; as much of it as
  // touches, up to `bytes`. REQUIRES: the range lies in [borrow_begin(), reserved_bytes()) and nothing is mapped there.
  // On failure nothing changes. Returns what is mapped in `borrowed`, bytes.
  DriverStatus Borrow(Offset offset, Address from, Bytes bytes, Bytes* borrowed) noexcept;
  // Ends that wherever it touches the range. REQUIRES: the device is done with it. What the driver refuses stays.
  void EndBorrowing(const Range& range) noexcept;
  // What is borrowed and touches one of the ranges (any order) is replaced by own memory, into which the ranges' bytes
  // are copied. REQUIRES: nobody gives the device work on them meanwhile. On failure the bytes are where they were, in
  // borrowed memory or, where some was replaced already, in own memory.
  DriverStatus OwnBorrowed(std::span<const Range> ranges) noexcept;

  // Neighbours of one size, for another process to map one after the other.
  struct Exported {
    Offset offset = 0;             // of the first
    Bytes chunk_bytes = 0;         // of each
    std::vector<int> descriptors;  // of each, ascending; the arena's own
  };
  // The chunks that [offset, offset + bytes) lies in. REQUIRES: the range is in use as long as the descriptors are. The
  // error says what is in the way: a hole, chunks of several sizes, a driver that exports nothing.
  [[nodiscard]] Result<Exported> Export(Offset offset, Bytes bytes);
  // In a forked child: closes its copies of the descriptors, which would hold what the parent gives back. Nothing where
  // another thread was in here when the process forked.
  void DropDescriptors() noexcept;

  // Repeats SetAccess on everything mapped, whatever fails in between: after a peer device was enabled in the driver.
  // The first failure.
  DriverStatus RefreshAccess() noexcept;

  [[nodiscard]] Address base() const noexcept { return base_; }
  [[nodiscard]] Bytes reserved_bytes() const noexcept { return reserved_bytes_; }
  // Above it there is no memory but what is or was borrowed, or lies next to that; reserved_bytes() where none can be.
  [[nodiscard]] Offset borrow_begin() const noexcept { return borrow_begin_; }
  [[nodiscard]] Bytes granularity() const noexcept { return driver_.Granularity(); }
  [[nodiscard]] Bytes chunk_bytes() const noexcept { return chunk_bytes_.load(std::memory_order_relaxed); }
  // Of what is mapped from now on; rounded up to the driver's granularity.
  void SetChunkBytes(Bytes bytes) noexcept;
  // Physical bytes held. Equal to mapped_end() as long as there are no holes.
  [[nodiscard]] Bytes mapped_bytes() const noexcept { return mapped_bytes_.load(std::memory_order_acquire); }
  // End of the topmost chunk below borrow_begin().
  [[nodiscard]] Bytes mapped_end() const noexcept { return mapped_end_.load(std::memory_order_acquire); }
  [[nodiscard]] bool Contains(const void* pointer) const noexcept {
    const auto address = reinterpret_cast<Address>(pointer);
    return address - base_ < reserved_bytes_;
  }
  // The backed ranges, one per chunk, ascending.
  [[nodiscard]] std::vector<Range> Chunks() const;
  // What is not backed of [offset, offset + bytes), ascending.
  [[nodiscard]] std::vector<Range> HolesIn(Offset offset, Bytes bytes) const;

 private:
  struct Chunk {
    Offset offset;
    Bytes bytes;
    PhysicalHandle handle;
    int descriptor = -1;  // -1: not exported; see Note [Descriptors]
  };

  Arena(VmmDriver& driver, Address base, Bytes reserved_bytes, Bytes chunk_bytes, Offset borrow_begin);

  // Appends chunks of `chunk_bytes` that back [begin, end) to `added`; those made before a failure stay in it. One call
  // makes all usable: on an H200 a third cheaper from 32 MiB a chunk on, and no dearer below.
  DriverStatus MapRange(Offset begin, Offset end, Bytes chunk_bytes, std::vector<Chunk>* added) noexcept;
  // The same of chunks that are given, ascending.
  DriverStatus MapEach(std::span<const Range> chunks, std::vector<Chunk>* added) noexcept;
  // Not usable yet.
  DriverStatus MapChunk(Offset offset, Bytes bytes, Chunk* chunk) noexcept;
  // False when the driver refuses; the chunk is then as before. One call each: the driver promises no more than to
  // unmap what one cuMemMap mapped, and one call for many takes as long.
  bool UnmapChunk(const Chunk& chunk) noexcept;
  // Lets its memory go.
  void Release(const Chunk& chunk) noexcept;
  static void CloseDescriptor(const Chunk& chunk) noexcept;
  // The chunks that the range lies in; none if a part of it is in none.
  std::span<Chunk> ChunksUnder(Offset offset, Bytes bytes) noexcept;
  // Unmaps the chunks that are `from`; they are no longer in chunks_, their handles are the caller's.
  std::vector<Chunk> Take(std::span<const Range> from) noexcept;
  // `bytes` of chunks to be that fill the ranges, without handles.
  [[nodiscard]] std::vector<Chunk> Parts(std::span<const Range> ranges, Bytes bytes) const;
  // Gives each part a chunk's handle of its size, where there is one; what is left of `taken` goes to the device.
  void Reuse(std::vector<Chunk>* taken, std::vector<Chunk>* parts) noexcept;
  // Maps the parts, with new memory where they have none, and makes them usable: one call for those that touch.
  // Those that the driver refuses are no more.
  void MapParts(std::vector<Chunk>* parts) noexcept;
  void Insert(std::span<const Chunk> added);
  // Takes `added` over, or on a failed `status` rolls it back.
  DriverStatus Commit(DriverStatus status, const std::vector<Chunk>& added) noexcept;
  void UpdateTotals() noexcept;
  // arena_borrowed.cc
  struct Borrowed {
    Bytes bytes = 0;
    PhysicalHandle handle = 0;  // retained
  };
  DriverStatus MapBorrowed(Offset offset, const MappedMemory& memory) noexcept;
  bool UnmapBorrowed(Offset offset, const Borrowed& borrowed) noexcept;
  void UnmapBorrowedIn(const Range& range) noexcept;
  DriverStatus FillNew(const Chunk& chunk, std::span<const Range> ranges) noexcept;
  DriverStatus Own(Offset offset, const Borrowed& borrowed, std::span<const Range> ranges) noexcept;

  VmmDriver& driver_;
  const Address base_;
  const Bytes reserved_bytes_;
  std::atomic<Bytes> chunk_bytes_;  // written under mutex_
  const Offset borrow_begin_;
  mutable std::mutex mutex_;
  std::vector<Chunk> chunks_;            // ascending, disjoint; guarded by mutex_
  std::map<Offset, Borrowed> borrowed_;  // disjoint, above borrow_begin_; guarded by mutex_
  std::atomic<Bytes> mapped_bytes_{0};
  std::atomic<Bytes> mapped_end_{0};
};

}  // namespace stalloc
