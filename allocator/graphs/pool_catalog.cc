#include "allocator/graphs/pool_catalog.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

namespace stalloc {
namespace {

constexpr const char* kNoHostMemory = "the host has no memory for the list of its requests";

// Ascending, disjoint, merged where they touch.
std::vector<ByteRange> Merged(std::vector<ByteRange> ranges) {
  std::ranges::sort(ranges, {}, &ByteRange::begin);
  std::vector<ByteRange> merged;
  for (const ByteRange& range : ranges) {
    if (range.begin == range.end) continue;
    if (!merged.empty() && range.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, range.end);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

// Calls visit(part) for the parts of the range that lie in none of `kept`, which are merged.
template <typename Visit>
void ForEachPartOutside(ByteRange range, const std::vector<ByteRange>& kept, Visit&& visit) {
  auto next = std::ranges::upper_bound(kept, range.begin, {}, &ByteRange::end);
  for (; next != kept.end() && next->begin < range.end; ++next) {
    if (next->begin > range.begin) visit(ByteRange{range.begin, next->begin});
    range.begin = std::min(next->end, range.end);
  }
  if (range.begin < range.end) visit(range);
}

// What of `ranges` lies in none of `others`, which are merged.
std::vector<ByteRange> Outside(const std::vector<ByteRange>& ranges, const std::vector<ByteRange>& others) {
  std::vector<ByteRange> outside;
  for (const ByteRange& range : ranges) {
    ForEachPartOutside(range, others, [&](const ByteRange& part) { outside.push_back(part); });
  }
  return outside;
}

std::vector<ByteRange> RangesOfCarried(const std::vector<GraphUse::Carried>& carried) {
  std::vector<ByteRange> ranges;
  for (const GraphUse::Carried& each : carried) ranges.push_back(each.range);
  return Merged(std::move(ranges));
}

}  // namespace

// Captures ------------------------------------------------------------------------------------------------------------

void PoolCatalog::SetUnfollowable(const char* why) noexcept {
  const char* none = nullptr;
  if (why_not_.compare_exchange_strong(none, why, std::memory_order_acq_rel)) Changed();
}

void PoolCatalog::SetRestorable() noexcept {
  if (!restorable_.exchange(true, std::memory_order_acq_rel)) Changed();
}

PoolCatalog::Graph* PoolCatalog::Find(GraphId graph) noexcept {
  return graph == 0 || graph > graphs_.size() ? nullptr : &graphs_[graph - 1];
}

void PoolCatalog::CaptureBegins(GraphId graph) noexcept {
  const std::lock_guard lock(mutex_);
  if (capturing()) SetUnfollowable("two captures of it were open at once");
  try {
    if (graph > graphs_.size()) graphs_.resize(graph);
  } catch (const std::bad_alloc&) {
    SetUnfollowable(kNoHostMemory);
  }
  open_.store(Find(graph) != nullptr ? graph : 0, std::memory_order_release);
  Changed();
}

void PoolCatalog::CaptureEnds(GraphId graph, bool made) noexcept {
  const std::lock_guard lock(mutex_);
  if (Graph* const found = Find(graph); found != nullptr) found->made = made;
  if (open_.load(std::memory_order_relaxed) == graph) open_.store(0, std::memory_order_release);
  Changed();
}

void PoolCatalog::Destroyed(GraphId graph) noexcept {
  const std::lock_guard lock(mutex_);
  if (Graph* const found = Find(graph); found != nullptr) found->destroyed = true;
  Changed();
}

// Blocks --------------------------------------------------------------------------------------------------------------

// Where the address is live already, a free of it was not seen: the block before stays as it is, and kept.
void PoolCatalog::Allocated(std::uint64_t address, Bytes bytes, bool captured) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    const GraphId open = open_.load(std::memory_order_relaxed);
    // Amid a capture that is not its own a block counts as seen by it.
    const auto begun = static_cast<GraphId>(graphs_.size()) - (open != 0 ? 1 : 0);
    blocks_.push_back({address, BlockBytes(bytes), captured ? open : 0, 0, begun});
    live_.Insert(address, static_cast<std::uint32_t>(blocks_.size() - 1));
  } catch (const std::bad_alloc&) {
    SetUnfollowable(kNoHostMemory);
  }
  Changed();
}

void PoolCatalog::Freed(std::uint64_t address) noexcept {
  const std::lock_guard lock(mutex_);
  const std::optional<std::uint32_t> index = live_.Erase(address);
  if (!index.has_value()) return;
  const GraphId open = open_.load(std::memory_order_relaxed);
  Block& block = blocks_[*index];
  const bool unseen = block.requested_by == 0 && block.before == graphs_.size();
  block.freed = open != 0 ? open : unseen ? kUnseen : kNobody;
  Changed();
}

std::vector<PoolBlock> PoolCatalog::Requests() const {
  const std::lock_guard lock(mutex_);
  std::vector<PoolBlock> requests;
  requests.reserve(blocks_.size());
  for (const Block& block : blocks_) requests.push_back({block.address, block.bytes});
  return requests;
}

std::uint32_t PoolCatalog::request_count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::uint32_t>(blocks_.size());
}

GraphId PoolCatalog::graph_count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<GraphId>(graphs_.size());
}

// Classes -------------------------------------------------------------------------------------------------------------

PoolCatalog::Class PoolCatalog::ClassOf(const Block& block) const {
  if (block.freed == kUnseen) return Class::kGone;
  if (block.requested_by == 0 || block.freed == 0 || block.freed == kNobody || block.freed < block.requested_by)
    return Class::kKept;
  if (block.freed == block.requested_by) return Class::kDead;
  const Graph& to = graphs_[block.freed - 1];
  if (!to.made || !graphs_[block.requested_by - 1].made) return Class::kKept;
  if (to.destroyed) return MayBeReadBetween(block) ? Class::kKept : Class::kDead;
  return restorable() ? Class::kKept : Class::kCarried;
}

// A graph that was captured while the block lived can still be launched.
bool PoolCatalog::MayBeReadBetween(const Block& block) const {
  const auto first = graphs_.begin() + static_cast<std::ptrdiff_t>(block.requested_by);
  const auto last = graphs_.begin() + static_cast<std::ptrdiff_t>(block.freed - 1);
  return std::any_of(first, last, [](const Graph& graph) { return graph.made && !graph.destroyed; });
}

void PoolCatalog::CountUses() const {
  const std::uint64_t now = version();
  if (uses_.version == now) return;
  std::vector<ByteRange> kept;
  for (const Block& block : blocks_) {
    if (ClassOf(block) == Class::kKept) kept.push_back({block.address, block.address + block.bytes});
  }
  kept = Merged(std::move(kept));
  Uses uses;
  uses.of_graphs.resize(graphs_.size());
  for (const Block& block : blocks_) {
    const Class of = ClassOf(block);
    if (of == Class::kKept || of == Class::kGone) continue;
    ForEachPartOutside({block.address, block.address + block.bytes}, kept, [&](const ByteRange& part) {
      uses.lendable.push_back(part);
      if (of == Class::kDead) {
        uses.of_graphs[block.requested_by - 1].dead.push_back(part);
      } else {
        uses.of_graphs[block.requested_by - 1].gives.push_back({part, block.requested_by, block.freed});
        uses.of_graphs[block.freed - 1].takes.push_back({part, block.requested_by, block.freed});
      }
    });
  }
  uses.lendable = Merged(std::move(uses.lendable));
  for (GraphUse& use : uses.of_graphs) {
    use.dead = Merged(std::move(use.dead));
    const auto by_begin = [](const GraphUse::Carried& a, const GraphUse::Carried& b) {
      return a.range.begin < b.range.begin;
    };
    std::ranges::stable_sort(use.gives, by_begin);
    std::ranges::stable_sort(use.takes, by_begin);
  }
  uses.version = now;
  uses_ = std::move(uses);
}

std::vector<ByteRange> PoolCatalog::Lendable() const {
  const std::lock_guard lock(mutex_);
  if (!followable()) return {};
  CountUses();
  return uses_.lendable;
}

std::vector<ByteRange> PoolCatalog::IdleAfter(GraphId graph) const {
  if (!followable()) return {};
  const GraphUse use = UseOf(graph);
  std::vector<ByteRange> needed = use.dead;
  for (const GraphUse::Carried& taken : use.takes) needed.push_back(taken.range);
  return Outside(Merged(std::move(needed)), RangesOfCarried(use.gives));
}

std::vector<ByteRange> PoolCatalog::NeverGiven() const {
  std::vector<ByteRange> given;
  for (GraphId graph = 1; graph <= graph_count(); ++graph) {
    const std::vector<ByteRange> more = RangesOfCarried(UseOf(graph).gives);
    given.insert(given.end(), more.begin(), more.end());
  }
  return Outside(Lendable(), Merged(std::move(given)));
}

GraphUse PoolCatalog::UseOf(GraphId graph) const {
  const std::lock_guard lock(mutex_);
  CountUses();
  return graph == 0 || graph > uses_.of_graphs.size() ? GraphUse{} : uses_.of_graphs[graph - 1];
}

}  // namespace stalloc
