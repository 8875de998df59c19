// Occupancy: which bytes of the arena are in use, exactly, whatever the plan says (details.md, What is in use).
//
// Blocks never overlap; hence the last block that starts before hi decides alone whether [lo, hi) is free. Freed blocks
// stay, where it matters which streams used them last (freed_blocks.h), until their bytes are requested.
//
// Granules; up to 2 TiB. Not thread-safe; no errors; memory from mmap, of which untouched parts cost nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "allocator/base/bit_tree.h"
#include "allocator/base/open_table.h"
#include "allocator/engine/bytes/plan_reading.h"
#include "proto/model/units.h"

namespace stalloc {

// What is known of one block that is in use, or was and must be remembered. 24 bytes: with its key two to a cache line.
struct LiveRecord {
  static constexpr std::uint16_t kFreed = 1;         // by the program; the next owner must run after its streams
  static constexpr std::uint16_t kRetained = 2;      // never to be reused: not all of its streams could be noted
  static constexpr std::uint16_t kPrivate = 4;       // on the home stream of a plan that has but one
  static constexpr std::uint16_t kHandedOver = 8;    // the plan hands its bytes to another stream
  static constexpr std::uint16_t kWithoutSlot = 16;  // in no slot of its own (dynamic_space.h)
  static constexpr std::uint16_t kWatched = 32;      // reports at its free what the plan did not know (observations.h)
  static constexpr std::uint16_t kFreedElsewhere = 64;  // by a thread that ran on another stream
  static constexpr std::uint16_t kAsleep = 128;         // its bytes are kept elsewhere, or nowhere (allocator/sleep)
  static constexpr std::uint16_t kShared = 256;         // another process knows of it
  static constexpr unsigned kTagShift = 9;              // what is above is the program's word for it; 0: none
  static constexpr unsigned kMostTags = 127;
  static constexpr std::uint16_t kTags = kMostTags << kTagShift;
  // For live blocks alone: what they leave live is decided by the others.
  static constexpr std::uint16_t kOfLive = kWithoutSlot | kWatched | kAsleep | kShared | kTags;
  static constexpr std::uint16_t kOfLaunch = 0xffff;  // as slack: no block, but what a graph's launch needs
  static constexpr std::uint16_t kEnding = 0x8000;    // bit of slack: its free has begun, and is one thread's

  std::uint32_t granule = 0;   // where it starts
  std::uint32_t granules = 0;  // how long it is
  std::uint16_t slack = 0;     // bytes that were not requested, and kEnding; or kOfLaunch
  std::uint16_t flags = 0;
  std::uint8_t stream = 0;    // index in StreamClocks
  std::uint8_t freed_on = 0;  // kFreedElsewhere: likewise, of the thread that freed it
  std::uint16_t uses = 0;     // its set in ForeignUses; 0: no other stream
  std::uint64_t stamp = 0;    // while it lives, of its entry (Observations); then of its free (StreamClocks)

  [[nodiscard]] std::uint32_t end() const noexcept { return granule + granules; }
  [[nodiscard]] Bytes bytes() const noexcept { return Bytes{granules} * kBlockAlignment; }
  [[nodiscard]] Bytes requested() const noexcept { return bytes() - (slack & ~kEnding); }
  [[nodiscard]] bool IsOfLaunch() const noexcept { return slack == kOfLaunch; }
  // A block of the program that nobody has begun to free.
  [[nodiscard]] bool IsFreeable() const noexcept { return !Is(kFreed) && slack < kEnding; }
  [[nodiscard]] bool Is(std::uint16_t flag) const noexcept { return (flags & flag) != 0; }
  [[nodiscard]] unsigned tag() const noexcept { return flags >> kTagShift; }
};
static_assert(sizeof(LiveRecord) == 24);

class Occupancy {
 public:
  // For an arena [0, arena_granules). The table is sized for `max_blocks` live blocks, and grows beyond.
  Occupancy(std::uint32_t arena_granules, std::size_t max_blocks)
      : arena_granules_(arena_granules), starts_(arena_granules), table_(max_blocks) {}

  // Takes now what the first use of blocks below `end` would wait for.
  void Populate(std::uint32_t end) noexcept {
    starts_.Populate(end);
    table_.Populate();
  }

  // The last block that lies partly in [lo, hi), null if the range is free. REQUIRES: lo < hi.
  [[nodiscard]] const LiveRecord* LastIn(std::uint32_t lo, std::uint32_t hi) const noexcept;

  // The last one there of which matches(block) is true.
  template <typename Matches>
  [[nodiscard]] const LiveRecord* LastIn(std::uint32_t lo, std::uint32_t hi, Matches&& matches) const noexcept {
    while (lo < hi) {
      const LiveRecord* const block = LastIn(lo, hi);
      if (block == nullptr || matches(*block)) return block;
      hi = block->granule;
    }
    return nullptr;
  }

  // A block will soon be inserted or erased at `granule`, of which the caches know nothing. REQUIRES: inside the arena.
  void Prefetch(std::uint32_t granule) const noexcept {
    starts_.Prefetch(granule);
    table_.Prefetch(granule);
  }

  // REQUIRES: the range is free and inside the arena.
  void Insert(const LiveRecord& record) noexcept {
    starts_.Insert(record.granule);
    table_.Insert(record.granule, record);
  }
  // REQUIRES: it is the one that Find finds.
  void Erase(LiveRecord& record) noexcept {
    starts_.Erase(record.granule);
    table_.EraseFound(&record);
  }
  [[nodiscard]] std::size_t size() const noexcept { return table_.size(); }
  // The block that starts there, null if none does. Valid until the next Insert or Erase.
  [[nodiscard]] LiveRecord* Find(std::uint32_t granule) noexcept { return table_.Find(granule); }

  // Calls visit(const LiveRecord&) in descending order of offset; blocks must not come or go meanwhile.
  template <typename Visitor>
  void ForEachDownwards(Visitor&& visit) const {
    for (std::uint64_t start = starts_.LastBefore(arena_granules_); start != BitTree::kNone;
         start = starts_.LastBefore(start)) {
      visit(*table_.Find(start));
    }
  }

  // Empty, or the first rule that does not hold: summary bits true, bits and table agree, no two blocks overlap, all
  // inside.
  [[nodiscard]] std::string CheckInvariants() const;

 private:
  std::uint32_t arena_granules_;
  BitTree starts_;  // of blocks
  OpenTable<LiveRecord> table_;
};

}  // namespace stalloc
