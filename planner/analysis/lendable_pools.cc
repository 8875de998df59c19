#include "planner/analysis/lendable_pools.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace stalloc::planner {
namespace {

class LendableFinder {
 public:
  LendableFinder(const DeviceTrace& device, GraphCaptures captures)
      : device_(device), captures_(std::move(captures)), launched_(captures_.captures.size()) {
    for (const GraphLaunch& launch : captures_.launches) launched_[launch.capture] = true;
  }

  LendablePools Run() {
    PlacePools();
    if (found_.pools.empty()) return {};
    found_.graphs.resize(captures_.captures.size());
    for (std::uint32_t i = 0; i < captures_.captures.size(); ++i) TakeCapture(i);
    for (std::uint32_t i = 0; i < captures_.kinds.size(); ++i) {
      if (captures_.kinds[i] == CapturedKind::kKept) AddTo(&kept_, i);
    }
    found_.kept = Merged(kept_);
    const ByteRanges carried = Merged(carried_);
    const ByteRanges dead = Without(Merged(dead_), found_.kept);
    found_.dead = Without(dead, carried);
    std::vector<ByteRange> all = dead;
    all.insert(all.end(), carried.begin(), carried.end());
    found_.lendable = Without(Merged(std::move(all)), found_.kept);
    found_.launches = std::move(captures_.launches);
    found_.filled = FilledAt();
    return std::move(found_);
  }

 private:
  struct Placed {
    PoolLayout layout;
    Offset begin = 0;
  };

  // For those that are known and in which a launched graph has something.
  void PlacePools() {
    std::map<std::uint32_t, TracedPool> pools = FindTracedPools(device_);
    Offset begin = 0;
    for (std::size_t i = 0; i < launched_.size(); ++i) {
      if (!launched_[i]) continue;
      for (const std::uint32_t index : captures_.captures[i].requested) {
        const std::uint32_t number = device_.PoolOf(index);
        const auto pool = pools.find(number);
        if (pool == pools.end() || pool->second.layout.empty() || placed_.contains(number)) continue;
        const PoolLayout& layout = pool->second.layout;
        found_.pools.push_back({number, pool->second.requests, layout.hash(), layout.bytes(), {}});
        placed_[number] = {layout, begin};
        begin += layout.bytes();
      }
    }
  }

  [[nodiscard]] std::uint64_t FilledAt() const {
    std::uint64_t last = 0;
    for (const GraphCapture& capture : captures_.captures) last = std::max(last, capture.end);
    for (std::uint32_t index = 0; index < device_.allocations.size(); ++index) {
      if (placed_.contains(device_.PoolOf(index)))
        last = std::max<std::uint64_t>(last, device_.allocations[index].event);
    }
    return last;
  }

  void TakeCapture(std::uint32_t number) {
    std::vector<ByteRange> needs;
    std::map<std::uint32_t, std::vector<ByteRange>> gifts;
    for (const std::uint32_t index : captures_.captures[number].requested) {
      if (captures_.kinds[index] == CapturedKind::kKept) continue;
      if (!launched_[number]) {
        AddTo(&kept_, index);
        continue;
      }
      const bool is_dead = captures_.kinds[index] == CapturedKind::kDead;
      AddTo(is_dead ? &dead_ : &carried_, index);
      AddTo(&needs, index);
      if (!is_dead) AddTo(&gifts[TakerOf(index)], index);
    }
    for (const std::uint32_t index : captures_.captures[number].freed) AddTo(&needs, index);
    LendablePools::Graph& graph = found_.graphs[number];
    graph.needs = Merged(std::move(needs));
    for (auto& [taker, bytes] : gifts) graph.gifts.push_back({taker, Merged(std::move(bytes))});
  }

  [[nodiscard]] std::uint32_t TakerOf(std::uint32_t index) {
    if (takers_.empty()) {
      for (std::uint32_t i = 0; i < captures_.captures.size(); ++i) {
        for (const std::uint32_t freed : captures_.captures[i].freed) takers_[freed] = i;
      }
    }
    return takers_.at(index);
  }

  // A block's bytes, if its pool is known.
  void AddTo(std::vector<ByteRange>* ranges, std::uint32_t index) const {
    const auto pool = placed_.find(device_.PoolOf(index));
    if (pool == placed_.end()) return;
    const Offset begin = pool->second.begin + *pool->second.layout.OffsetOf(device_.AddressOf(index));
    ranges->push_back({begin, begin + device_.allocations[index].bytes});
  }

  const DeviceTrace& device_;
  GraphCaptures captures_;
  std::vector<bool> launched_;                     // by capture
  std::map<std::uint32_t, Placed> placed_;         // by PoolPlusOne
  std::map<std::uint32_t, std::uint32_t> takers_;  // captures, by the allocation that they free
  std::vector<ByteRange> dead_;
  std::vector<ByteRange> carried_;
  std::vector<ByteRange> kept_;
  LendablePools found_;
};

// Puts pieces that are lendable as a whole before the others of their pool.
class Gatherer {
 public:
  explicit Gatherer(LendablePools* found) : found_(*found) {}

  void Run() {
    Offset begin = 0;
    for (LentPool& pool : found_.pools) {
      TakePool(begin, &pool);
      begin += pool.bytes;
    }
    for (ByteRanges* const ranges : {&found_.dead, &found_.lendable, &found_.kept}) *ranges = Moved(*ranges);
    for (LendablePools::Graph& graph : found_.graphs) {
      graph.needs = Moved(graph.needs);
      for (LendablePools::Gift& gift : graph.gifts) gift.bytes = Moved(gift.bytes);
    }
  }

 private:
  static constexpr Bytes kPiece = PoolLayout::kExtentUnit;

  void TakePool(Offset begin, LentPool* pool) {
    const auto pieces = static_cast<std::uint32_t>(pool->bytes / kPiece);
    for (std::uint32_t piece = 0; piece < pieces; ++piece) {
      if (IsLendable({begin + piece * kPiece, begin + (piece + 1) * kPiece})) pool->first_pieces.push_back(piece);
    }
    for (const Offset offset : PieceOffsets(pieces, pool->first_pieces)) offsets_.push_back(begin + offset);
  }

  [[nodiscard]] bool IsLendable(const ByteRange& piece) const {
    return std::ranges::any_of(
        found_.lendable, [&](const ByteRange& range) { return range.begin <= piece.begin && piece.end <= range.end; });
  }

  [[nodiscard]] ByteRanges Moved(const ByteRanges& ranges) const {
    std::vector<ByteRange> moved;
    for (const ByteRange& range : ranges) {
      for (Offset begin = range.begin; begin < range.end;) {
        const Offset end = std::min(range.end, (begin / kPiece + 1) * kPiece);
        const Offset to = offsets_[begin / kPiece] + begin % kPiece;
        moved.push_back({to, to + (end - begin)});
        begin = end;
      }
    }
    return Merged(std::move(moved));
  }

  LendablePools& found_;
  std::vector<Offset> offsets_;  // by piece of all pools
};

}  // namespace

std::map<std::uint32_t, TracedPool> FindTracedPools(const DeviceTrace& device) {
  std::map<std::uint32_t, TracedPool> pools;
  if (device.addresses.empty()) return pools;
  std::map<std::uint32_t, std::vector<PoolBlock>> blocks;
  auto address = device.addresses.begin();
  for (std::uint32_t i = 0; i < device.pools.size(); ++i) {
    if (device.pools[i] == 0) continue;
    while (address != device.addresses.end() && address->allocation < i) ++address;
    const bool known = address != device.addresses.end() && address->allocation == i;
    blocks[device.pools[i]].push_back({known ? address->address : 0, device.allocations[i].bytes});
  }
  for (const auto& [number, requests] : blocks) {
    pools[number] = {static_cast<std::uint32_t>(requests.size()), PoolLayout(requests)};
  }
  return pools;
}

std::uint64_t LendablePools::EndOfGift(std::size_t launch, const Gift& gift) const {
  std::optional<std::uint64_t> taken;
  for (std::size_t next = launch + 1; next < launches.size(); ++next) {
    if (launches[next].capture == launches[launch].capture) return taken.value_or(launches[next].event);
    if (launches[next].capture == gift.taker) taken = launches[next].event;
  }
  return taken.value_or(kForGood);
}

LendablePools FindLendablePools(const TracedRank& traced, const DeviceTrace& device, bool gathered) {
  if (traced.head.live_before > 0 || device.addresses.empty()) return {};
  GraphCaptures captures = FindGraphCaptures(traced, device);
  if (captures.captures.empty()) return {};
  LendablePools found = LendableFinder(device, std::move(captures)).Run();
  if (gathered) Gatherer(&found).Run();
  return found;
}

}  // namespace stalloc::planner
