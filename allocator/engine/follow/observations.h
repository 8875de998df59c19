// Observations: what a run shows of its plan's entries that the trace did not: sizes, lives, misses. For the next plan
// (proto/codec/observed_text.h).
//
// What is kept is of blocks whose size is not their entry's, that are in no slot, or that are found in a slot when its
// next owner comes: they are *watched*, and report at their free. Out of sync an entry is a guess and shows nothing (a
// stamp of 0), nor does a life longer than a round of the cycle, which a plan could not hold. Nothing is kept where no
// entry of the plan varies. Not thread-safe (the engine's lock); noexcept; memory from mmap.
#pragma once

#include <cstdint>
#include <vector>

#include "allocator/base/mapped_array.h"
#include "allocator/engine/bytes/occupancy.h"
#include "proto/model/observed.h"
#include "proto/model/plan.h"

namespace stalloc {

class Observations {
 public:
  using Stamp = std::uint64_t;  // an entry, by its number in the plan and 1, and its position below; 0: none

  explicit Observations(const DevicePlan& plan);

  // Where the run is now: in this script, counted through prologue and cycle, after so many iteration marks.
  void Follow(std::uint32_t script, std::uint64_t iterations) noexcept;
  // For an entry of that script.
  [[nodiscard]] Stamp StampOf(std::int32_t entry) const noexcept {
    const auto number = static_cast<std::uint32_t>(entry);
    return Stamp{first_ + number + 1} << 32 | std::uint32_t{passed_ + number};
  }

  // Flag of a block that is watched; 0 where nothing is kept.
  [[nodiscard]] std::uint16_t watched() const noexcept { return seen_.size() != 0 ? LiveRecord::kWatched : 0; }
  void Watch(LiveRecord& block, Stamp stamp) const noexcept;
  // The last block in [lo, hi) is late, if the program has it still. REQUIRES: some block lies there.
  void WatchLast(Occupancy& occupancy, std::uint32_t lo, std::uint32_t hi) const noexcept;

  // The arena did not serve this request.
  void Missed(Stamp stamp, Bytes bytes) noexcept;
  // A watched block is freed, with `cursor` the entry of the present script that is expected next.
  void Freed(const LiveRecord& block, std::int32_t cursor, bool in_sync) noexcept;

  // One entry's, by its number in the plan; none has been seen where requests == 0.
  [[nodiscard]] std::size_t size() const noexcept { return seen_.size(); }
  [[nodiscard]] ObservedEntry Of(std::size_t entry) const noexcept;
  // Without entries yet.
  [[nodiscard]] const ObservedDevice& device() const noexcept { return device_; }

 private:
  ObservedEntry& Add(Stamp stamp, Bytes bytes) noexcept;

  ObservedDevice device_;
  const std::vector<std::uint32_t> script_begins_;
  std::uint32_t longest_ = 0;        // entries of a round of the cycle
  MappedArray<ObservedEntry> seen_;  // by number in the plan, except the part that Of computes; empty: nothing is kept

  std::uint32_t script_ = 0;
  std::uint64_t iterations_ = 0;
  std::uint32_t first_ = 0;   // of the present script
  std::uint32_t passed_ = 0;  // positions before it; wraps
};

}  // namespace stalloc
