#include "planner/analysis/launch_watch.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace stalloc::planner {
namespace {

// Bytes of a traced pool, and how far they lie from there in the plan.
struct MovedPool {
  ByteRange from;
  Offset to = 0;
};

ByteRanges Moved(const ByteRanges& bytes, const std::vector<MovedPool>& pools) {
  std::vector<ByteRange> moved;
  for (const MovedPool& pool : pools) {
    for (const ByteRange& range : bytes) {
      const Offset begin = std::max(range.begin, pool.from.begin);
      const Offset end = std::min(range.end, pool.from.end);
      if (begin < end) moved.push_back({begin - pool.from.begin + pool.to, end - pool.from.begin + pool.to});
    }
  }
  return Merged(std::move(moved));
}

std::string PoolText(const LentPool& pool) {
  return absl::StrCat(pool.requests, " requests, layout ", absl::Hex(pool.layout), " of ", pool.bytes, " bytes");
}

// What of the pool's place has the pool's memory.
ByteRanges BorrowedOf(const LentPool& pool) {
  std::vector<ByteRange> own;
  for (const Slot& range : pool.own) own.push_back({range.offset, range.offset + range.capacity});
  return Without({{0, pool.bytes}}, Merged(std::move(own)));
}

absl::StatusOr<std::vector<MovedPool>> FindPools(const LendablePools& pools, const DevicePlan& plan) {
  std::vector<MovedPool> found;
  Offset to = 0;
  for (const LentPool& lent : plan.lent_pools) {
    Offset begin = 0;
    bool is_traced = false;
    for (const LentPool& pool : pools.pools) {
      if (pool.number == lent.number) {
        if (pool.requests != lent.requests || pool.layout != lent.layout || pool.bytes != lent.bytes ||
            pool.first_pieces != lent.first_pieces) {
          return absl::InvalidArgumentError(absl::StrCat("the plan lends another pool ", lent.number,
                                                         " than the trace's: plan ", PoolText(lent), ", trace ",
                                                         PoolText(pool)));
        }
        is_traced = true;
        for (const ByteRange& range : BorrowedOf(lent)) {
          found.push_back({{begin + range.begin, begin + range.end}, to + range.begin});
        }
      }
      begin += pool.bytes;
    }
    if (!is_traced) {
      return absl::InvalidArgumentError(
          absl::StrCat("the plan lends pool ", lent.number, ", ", PoolText(lent),
                       "; the trace has no such pool whose bytes and launches are known"));
    }
    to += lent.extent();
  }
  return found;
}

}  // namespace

absl::StatusOr<LaunchWatch> LaunchWatch::Create(const LendablePools& pools, const DevicePlan& plan) {
  if (plan.lent_pools.empty()) return LaunchWatch();
  const absl::StatusOr<std::vector<MovedPool>> moved = FindPools(pools, plan);
  if (!moved.ok()) return moved.status();
  LaunchWatch watch;
  watch.filled_ = pools.filled;
  for (const LendablePools::Graph& graph : pools.graphs) {
    watch.needs_.push_back(Moved(graph.needs, *moved));
    std::vector<ByteRanges>& gifts = watch.gifts_.emplace_back();
    for (const LendablePools::Gift& gift : graph.gifts) gifts.push_back(Moved(gift.bytes, *moved));
  }
  for (std::size_t i = 0; i < pools.launches.size(); ++i) {
    const std::uint32_t capture = pools.launches[i].capture;
    Launch& launch = watch.launches_.emplace_back();
    launch.event = pools.launches[i].event;
    launch.capture = capture;
    const std::vector<LendablePools::Gift>& gifts = pools.graphs[capture].gifts;
    for (std::size_t g = 0; g < gifts.size(); ++g) {
      launch.gifts.push_back({&watch.gifts_[capture][g], pools.EndOfGift(i, gifts[g])});
    }
  }
  return watch;
}

bool LaunchWatch::Waits(const ByteRange& bytes) const {
  return std::ranges::any_of(waiting_, [&](const Gift& gift) {
    return gift.end_event > now_ &&
           std::ranges::any_of(*gift.bytes, [&](const ByteRange& range) { return range.Overlaps(bytes); });
  });
}

}  // namespace stalloc::planner
