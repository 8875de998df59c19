// Bytes that are held while no operation needs them: blocks allocated long before their first use, freed long after
// their last one, or idle for long between two; and what the run's peak would be if they were not there then. Each is
// played over the whole run, so that a peak which moves elsewhere counts. Pure.
//
//   events   a...........F====U========U====U...............L.......f      a: allocation, f: free
//            | early     |                  | idle if long  | late  |      F: first use, L: last use, U: uses
//
// Long is counted in events: an allocation or a free that moves costs nothing, so a hundredth of an iteration (and 16)
// is enough; bytes that go elsewhere in between cost time, so idle begins at a tenth. Blocks without any use that was
// seen have no verdict, nor have those of graph captures and parallel regions; a block that is never freed is not late.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/facts/block_facts.h"
#include "planner/report/block_uses.h"

namespace stalloc::planner {

enum class UnusedKind : std::uint8_t { kEarly, kLate, kIdle };
inline constexpr std::size_t kUnusedKinds = 3;
[[nodiscard]] const char* UnusedKindName(UnusedKind kind);  // "early"

// The block is not needed after events [begin, end): from after `begin` on it could be away, and `end` is the first
// event after which it is needed, or its free.
struct UnusedSpan {
  std::uint32_t block = 0;  // index into DeviceTrace::allocations
  UnusedKind kind = UnusedKind::kEarly;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint32_t before =
      kNone;  // the operation that used it last before the span, index into Trace::texts; early: kNone
  std::uint32_t after = kNone;  // the one that uses it next; late: kNone
};

// What is long, in events: of kEarly and kLate; and of kIdle.
struct LongSpans {
  std::uint32_t moved = 0;
  std::uint32_t idle = 0;
};
[[nodiscard]] LongSpans WhatIsLong(const DeviceFacts& facts);

// Those that are long, ascending by block.
[[nodiscard]] std::vector<UnusedSpan> FindUnusedSpans(const DeviceFacts& facts, const BlockUses& uses,
                                                      const LongSpans& least);

// Spans that are alike: of one kind, and of blocks of one size, class, role (phase without its iteration) and stack, in
// layers that are called alike ("blocks.*.mlp"). Everything else is of the longest of them.
struct UnusedGroup {
  UnusedKind kind = UnusedKind::kEarly;
  std::uint32_t block = 0;
  std::uint32_t before = kNone;
  std::uint32_t after = kNone;
  std::uint32_t events = 0;
  std::int64_t ns = 0;
  std::uint64_t count = 0;   // spans
  std::uint64_t layers = 0;  // in so many layers
  double byte_seconds = 0;   // size x unused time, of all together
  Bytes at_peak = 0;         // of these blocks, without need at the run's peak
  Bytes peak = 0;            // of the whole run, if all of these spans were avoided
};

struct UnusedView {
  LongSpans least;
  std::uint64_t unseen_blocks = 0;  // without any use that was seen
  Bytes unseen_at_peak = 0;         // bytes of them
  Bytes early_peak = 0;             // of the run, with every block allocated at its first use
  Bytes late_peak = 0;              // freed at its last
  Bytes early_and_late_peak = 0;    // both
  Bytes idle_peak = 0;              // away while it is idle for long
  Bytes idle_moved = 0;             // by that, out of the device in the peak's iteration (and back)
  std::vector<UnusedGroup> groups;  // by what avoiding them saves, at_peak, byte_seconds; falling
};

// `most`: groups at most, of those with the most bytes at the peak, and of those with the most byte_seconds.
[[nodiscard]] UnusedView ViewUnused(const DeviceFacts& facts, const BlockUses& uses, std::size_t most);

}  // namespace stalloc::planner
