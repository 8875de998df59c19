// Places for blocks in graphs' pools, in the time of the schedule's needs: bytes that no launch needs meanwhile and no
// other block has, and where these do not suffice own memory after a pool's bytes or instead of them.
//
//   pool's place   |= lent =|kept|== lent ==|           a block of the sum of both lent ranges and more
//   its memory     | pool   |own | pool     | own |
//
// Instead of the pool's bytes there is own memory in units of PoolLayout::kExtentUnit, in which a pool is borrowed;
// after them in units of LentPool::kOwnUnit. Pure; deterministic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/analysis/byte_ranges.h"
#include "planner/analysis/pool_schedule.h"

namespace stalloc::planner {

class LendingSpace {
 public:
  struct Wanted {
    Bytes bytes = 0;
    Lifetime life;   // in that time
    Tick reach = 0;  // so far launches find it: its end, or one less if it is freed before those that come then
  };
  struct Place {
    std::size_t pool = 0;
    Offset offset = 0;  // in its place
    ByteRanges own;     // of the pool's place: own memory that was none before

    [[nodiscard]] Bytes own_bytes() const {
      Bytes sum = 0;
      for (const ByteRange& range : own) sum += range.end - range.begin;
      return sum;
    }
  };

  // `schedule` outlives this.
  explicit LendingSpace(const PoolSchedule& schedule);

  // The lowest one of the first pool that has any, without more own memory.
  [[nodiscard]] std::optional<Place> Find(const Wanted& wanted) const;
  // That which needs least more of it; of several likewise.
  [[nodiscard]] std::optional<Place> FindWithOwn(const Wanted& wanted) const;
  void Take(const Wanted& wanted, const Place& place);

 private:
  struct Taken {
    Lifetime life;
    ByteRange bytes;
  };
  // One pool. All ranges are of its place.
  struct Strip {
    Offset begin = 0;  // of its layout among all of the schedule
    Bytes bytes = 0;   // of its layout
    ByteRanges lendable;
    ByteRanges own;
    std::vector<Taken> taken;

    [[nodiscard]] ByteRanges Inside(const ByteRanges& ranges) const;
    [[nodiscard]] ByteRanges OccupiedIn(const Lifetime& life) const;
    [[nodiscard]] ByteRanges UsableBut(const ByteRanges& needed) const;
    [[nodiscard]] ByteRanges OwnFor(const ByteRanges& lacking) const;
    [[nodiscard]] std::vector<Offset> Tries(Bytes wanted, const ByteRanges& usable, const ByteRanges& occupied) const;
  };

  [[nodiscard]] ByteRanges NeededIn(const Wanted& wanted) const;
  void NoteLargest(const Strip& strip);

  const PoolSchedule& schedule_;
  std::vector<Strip> strips_;
  Bytes largest_ = 0;  // nothing larger fits without more own memory
};

}  // namespace stalloc::planner
