// Hand-overs: bytes that pass from a block of one stream to a block of another. Work on a GPU is ordered within a
// stream only, so each needs a wait: an event after the last work of the old block, which the new block's stream waits
// for. Blocks of one stream need none, unless other streams were recorded on the old one (record_stream) and have
// hardly had the time to be done with it.
//
// A sweep over the beginnings of all lifetimes with the last holder of every byte: O(n log n). Pure; thread-safe.
// Bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/packing/problem/problem.h"

namespace stalloc::planner {

// One wait: `to` takes over bytes that `from` used last. Indices into Problem::blocks.
struct HandOver {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  Bytes bytes = 0;  // most that pass at once

  bool operator==(const HandOver&) const = default;
};

// What passes from one stream to another. Waits for recorded streams are not in it.
struct StreamPair {
  std::uint32_t from_stream = 0;  // ordinals
  std::uint32_t to_stream = 0;
  std::uint64_t hand_overs = 0;
  Bytes bytes = 0;  // sum over the hand-overs

  bool operator==(const StreamPair&) const = default;
};

// Ticks after which streams that were recorded on a block are taken to be done with it: some layers' requests. The run
// waits in any case; by then it is for nothing.
inline constexpr Tick kRecordedStreamsAreDone = 256;

// All hand-overs that need a wait, each pair of blocks once, ascending by (from, to). The cycle is played twice, so
// that blocks live at its end reach its beginning. REQUIRES: a valid packing.
[[nodiscard]] std::vector<HandOver> FindHandOvers(const Problem& problem, std::span<const Offset> offsets,
                                                  const CycleAxis& cycle);

// Ascending by (from_stream, to_stream).
[[nodiscard]] std::vector<StreamPair> CountByStreams(const Problem& problem, std::span<const HandOver> hand_overs);

// Several streams, or one that is not alone on all its blocks.
[[nodiscard]] bool MayNeedWaits(const Problem& problem);

}  // namespace stalloc::planner
