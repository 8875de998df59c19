// BlockWatch: finds writes beyond the end of blocks and into freed ones (STALLOC_WATCH=1).
//
//   | requested bytes        | tail |        the tail, up to the next multiple of 512, has the pattern from the
//                                            allocation on, and is looked at when the block is freed
//   | freed block of the arena      |        all of it has the pattern, and is looked at where a request gets the bytes
//
// The pattern is NaN as floats (watch_memory.h), so that readers beyond the end, after the free, or of what was never
// written see it, too. Requests keep their sizes: a plan sees no difference, and a block whose size is a multiple of
// 512 has no tail. What runs over its end lands in its neighbour then, and is found if that is free.
//
// Left alone, and counted as unchecked: freed blocks that other streams use or that are freed on another stream than
// their own (these may still be read, rightly), anything on a stream that is being captured, and questions while
// 8192 answers are outstanding. Freed bytes are forgotten where chunks of the arena move or go back to the device. A
// finding is one line and a count, never an error of the run.
//
// Thread-safe. Calls the driver under its own lock, and never under another: this is the slow, exact mode. noexcept; no
// heap memory after the constructor.
#pragma once

#include <cstdint>
#include <optional>

#include "allocator/base/log.h"
#include "allocator/base/mapped_array.h"
#include "allocator/base/mutex.h"
#include "allocator/base/open_table.h"
#include "allocator/driver/unmap_notice.h"
#include "allocator/driver/watch_memory.h"
#include "proto/model/trace.h"
#include "proto/model/units.h"

namespace stalloc {

struct WatchCounts {
  bool on = false;
  std::uint64_t tails = 0;      // checked
  std::uint64_t freed = 0;      // ranges of freed bytes, likewise
  std::uint64_t unchecked = 0;  // tails, freed blocks and ranges that could not be filled or checked
  std::uint64_t open = 0;       // checks that are not answered yet
  std::uint64_t findings = 0;
};

class BlockWatch final : public UnmapListener {
 public:
  // Where a block lies, as far as it decides what may be filled.
  enum class Place : std::uint8_t {
    kArena,
    kPadded,  // its bytes up to the next multiple of 512 are its own
    kExact    // it has none beyond its end
  };

  // `memory` outlives the watch.
  BlockWatch(DeviceIndex device, WatchMemory* memory) : device_(device), memory_(*memory) {}
  // The addresses that the arena has reserved. Before its first block; without, no block may be kArena.
  void SetArena(Address base, Bytes bytes);

  // The block was just given out: its bytes are the caller's on `stream`.
  void Allocated(const void* block, Bytes requested, StreamHandle stream, Place place) noexcept;
  // The block is about to be freed. `current`: the stream on which the calling thread runs, where it is known.
  void Freeing(const void* block, std::optional<StreamHandle> current) noexcept;
  // The block is about to be freed, and has no bytes at present.
  void Forget(const void* block) noexcept;
  // Another stream uses the block, too.
  void StreamRecorded(const void* block) noexcept;
  // These bytes will have other memory, or none.
  void BeforeUnmap(Address address, Bytes bytes) noexcept override;
  void OnMark(const Mark& mark) noexcept;

  // With the answers that are there by now; marks take them, too.
  [[nodiscard]] WatchCounts Counts() noexcept;

 private:
  // Where the run is, by its marks.
  struct Moment {
    std::int32_t iteration = -1;  // -1: set-up
    std::int32_t index = 0;       // of the micro-batch
    MarkKind kind = MarkKind::kInit;
    Pass pass = Pass::kNone;
  };
  struct MomentText {
    char text[64];
  };
  struct Block {
    Bytes requested;
    StreamHandle stream;
    Moment moment;
    bool in_arena;
    bool has_tail;  // which has the pattern
    bool shared;    // another stream uses it
  };
  // What a question is about.
  struct Question {
    Address block;  // whose tail it is, or who got the bytes
    Bytes requested;
    StreamHandle stream;
    Moment moment;        // of that block's allocation
    Address begin;        // of the bytes that are looked at
    std::uint64_t frees;  // so many before it
    bool tail;
  };
  struct Freed {
    Address block;
    Bytes requested;
    Moment moment;  // of its free
  };

  // With the lock held.
  void AskAbout(const Question& question, Bytes bytes) noexcept STALLOC_REQUIRES(mutex_);
  void AskAboutFreed(const Question& question, Bytes bytes) noexcept STALLOC_REQUIRES(mutex_);
  void TakeAnswers() noexcept STALLOC_REQUIRES(mutex_);
  void Report(const Question& question, const WatchMemory::Answer& answer) noexcept STALLOC_REQUIRES(mutex_);
  void ReportTail(const Question& question, const WatchMemory::Answer& answer) noexcept STALLOC_REQUIRES(mutex_);
  void ReportFreed(const Question& question, const WatchMemory::Answer& answer) noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] const Freed* LastOwner(Address address, std::uint64_t frees) const noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] static MomentText Text(const Moment& moment) noexcept;
  // After the granules from `granule` on that are filled, or that are not.
  [[nodiscard]] std::uint64_t EndOfRun(std::uint64_t granule, std::uint64_t end, bool filled) const noexcept
      STALLOC_REQUIRES(mutex_);
  void SetFilled(Address begin, Bytes bytes, bool filled) noexcept STALLOC_REQUIRES(mutex_);

  const DeviceIndex device_;
  WatchMemory& memory_;
  Address arena_base_ = 0;  // set before the first block
  Bytes arena_bytes_ = 0;   // the same

  Mutex mutex_;  // guards the rest
  Moment now_ STALLOC_GUARDED_BY(mutex_);
  OpenTable<Block> blocks_ STALLOC_GUARDED_BY(mutex_){1u << 14};  // by address
  MappedArray<std::uint64_t> filled_
      STALLOC_GUARDED_BY(mutex_);  // a bit for each 512 bytes of the arena that have the pattern
  MappedArray<Question> questions_ STALLOC_GUARDED_BY(mutex_){WatchMemory::kMostTickets};  // by ticket
  std::uint64_t queried_ STALLOC_GUARDED_BY(mutex_) = 0;   // the ticket is its remainder
  std::uint64_t answered_ STALLOC_GUARDED_BY(mutex_) = 0;  // in the order of the queries
  MappedArray<Freed> freed_ STALLOC_GUARDED_BY(mutex_){
      kLastFreed};  // of the arena, the last ones; by number of the free
  std::uint64_t frees_ STALLOC_GUARDED_BY(mutex_) = 0;
  WatchCounts counts_ STALLOC_GUARDED_BY(mutex_){.on = true};
  LogThrottle lines_ STALLOC_GUARDED_BY(mutex_){kFirstLines};

  static constexpr std::uint64_t kFirstLines = 16;
  static constexpr std::uint64_t kLastFreed = 4096;
};

}  // namespace stalloc
