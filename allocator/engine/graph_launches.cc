// Launches of captured graphs, whose pools' idle bytes serve slots meanwhile (details.md, Graphs). What a launch needs
// is occupied as if it were blocks, by the launch's stream: so requests find it taken, and order is kept as ever.
#include <algorithm>

#include "allocator/engine/plan_engine.h"

namespace stalloc {

bool PlanEngine::OpenLent(std::size_t pool, std::span<const GranuleRange> ranges, std::span<const GranuleRange> given,
                          std::size_t graphs) {
  const Lock lock(mutex_);
  const GranuleRange all = lent_.RangeOf(pool);
  LetGoOfLaunches(all);
  const auto is_done = [this](const GranuleRange& range) {
    mutex_.AssertHeld();
    return freed_.OnlyThisDevicesIn(range.lo, range.hi);
  };
  if (!std::ranges::all_of(ranges, is_done)) return false;
  for (const GranuleRange& range : ranges) freed_.Take(range.lo, range.hi, kNoStream);
  lent_.Open(pool, ranges, graphs);
  for (const GranuleRange& range : given) OccupyForLaunch(range, 0);
  return true;
}

std::optional<PlanEngine::LentPlace> PlanEngine::AddLentPool(Bytes bytes) noexcept {
  const Lock lock(mutex_);
  const std::optional<std::size_t> pool = lent_.Add(WholeGranules(bytes));
  if (!pool.has_value()) return std::nullopt;
  return LentPlace{*pool, Offset{lent_.RangeOf(*pool).lo} * kBlockAlignment};
}

void PlanEngine::CloseLent(std::size_t pool) noexcept {
  const Lock lock(mutex_);
  lent_.Close(pool);
}

// The entry's slot in a pool, where the plan has given it one. Off the plan's track nobody knows when the block goes.
bool PlanEngine::TakeLentSlot(const Request& request, Place& place, Lock& lock) noexcept {
  if (lent_.pools() == 0 || request.entry < 0 || !matcher_.in_sync()) return false;
  place = cursor_.script()->LentPlaceOf(request.entry);
  const Granules end = place.granule + request.granules;
  if (request.granules == 0 || place.granules < request.granules || !lent_.IsLaunchers(place.granule, end) ||
      !lent_.WasInNobodysWay(request.granules)) {
    return false;
  }
  if (!withdrawn_.empty() && !BackOwned(place.granule, end, lock)) return false;
  const StreamIndex stream = clocks_.IndexOf(request.stream);
  return stream != kNoStream && OccupyLent(place.granule, request, stream, stats_.planned_hits, lock);
}

// Of what is open own memory alone is ever withdrawn. The lock is open meanwhile.
bool PlanEngine::BackOwned(Granules lo, Granules hi, Lock& lock) noexcept {
  if (!lent_.IsOpen(lo, hi) || !freed_.OnlyFreedIn(lo, hi)) return false;
  while (lo < hi && withdrawn_.Touches(lo, hi)) {
    const IndexRange last = *withdrawn_.LastIn(lo, hi);
    const Granules from = std::max(lo, last.lo);
    const Granules granules = std::min(hi, last.hi) - from;
    if (backing_ == nullptr || !RequestBacking(from, granules, Growth::kAllowed, lock)) return false;
    hi = from;
  }
  return true;
}

// The slot's memory is not there: before it is had from elsewhere, space in a pool serves as well. In the cycle alone:
// before it most slots have no memory yet, and the plan has put into pools what may lie there.
bool PlanEngine::TakeLentInstead(const Request& request, Place& place, Lock& lock) noexcept {
  if (lent_.pools() == 0 || cursor_.in_prologue()) return false;
  if (!withdrawn_.Touches(place.granule, place.granule + request.granules)) return false;
  const StreamIndex stream = clocks_.IndexOf(request.stream);
  if (stream == kNoStream) return false;
  const Granules lent = TakeLentSpace(request, stream, stats_.planned_hits, lock);
  if (lent == kNone) return false;
  place.granule = lent;
  return true;
}

// The next launch would move it away, such as an optimizer's state.
bool PlanEngine::OutlivesScript(std::int32_t entry) const noexcept {
  if (entry < 0 || cursor_.script() == nullptr || cursor_.script()->index().size() == 0) return false;
  const std::uint64_t left = cursor_.script()->index().size() - static_cast<std::uint64_t>(entry);
  return space_.gaps().LifeOf(cursor_.script_number(), entry) > left;
}

// The tightest space in pools, for a request without a slot; else it is watched, where it goes instead.
Granules PlanEngine::TakeLentSpace(const Request& request, StreamIndex stream, std::uint64_t& hits,
                                   Lock& lock) noexcept {
  if (request.granules < tuning::kLeastLent || !lent_.MayGoBeforeLaunch(request.granules)) return kNone;
  if (OutlivesScript(StillThere(request.entry))) return kNone;
  const auto is_obstacle = [](const LiveRecord& record) { return !FreedBlocks::IsReusable(record); };
  GranuleRange best;
  lent_.ForEachOpen([&](GranuleRange open) {
    mutex_.AssertHeld();
    while (open.lo < open.hi) {
      const LiveRecord* const obstacle = occupancy_.LastIn(open.lo, open.hi, is_obstacle);
      const GranuleRange range{obstacle != nullptr ? std::max(obstacle->end(), open.lo) : open.lo, open.hi};
      const bool fits = range.lo < range.hi && range.hi - range.lo >= request.granules;
      if (fits && (best.hi == 0 || range.hi - range.lo < best.hi - best.lo)) best = range;
      if (obstacle == nullptr) break;
      open.hi = std::max(obstacle->granule, open.lo);
    }
  });
  return best.hi > 0 && OccupyLent(best.lo, request, stream, hits, lock) ? best.lo : kNone;
}

// Blocks there leave a trace at their frees: graphs are launched on any stream.
bool PlanEngine::OccupyLent(Granules granule, const Request& request, StreamIndex stream, std::uint64_t& hits,
                            Lock& lock) noexcept {
  const Granules end = granule + request.granules;
  if (!MayPlace(granule, end) || !lent_.CanNoteBlock()) return false;
  StreamNeeds needs;
  if (!freed_.Gather(granule, end, stream, needs) || (!needs.empty() && !clocks_.can_order())) return false;
  freed_.Take(granule, end, stream);
  Occupy(granule, request, stream, 0);
  lent_.NoteBlock(granule, end);
  ++hits;
  if (!needs.empty() && !OrderOrPutBack(granule, stream, needs, hits, lock)) return false;
  ++stats_.lent_hits;
  return true;
}

std::vector<LiveBlock> PlanEngine::LentBlocks(std::size_t pool) const {
  GranuleRange range;
  {
    const Lock lock(mutex_);
    range = lent_.RangeOf(pool);
  }
  std::vector<LiveBlock> blocks = LiveBlocks();
  std::erase_if(blocks, [&](const LiveBlock& block) {
    const Granules at = WholeGranules(block.offset);
    return at < range.lo || at >= range.hi;
  });
  return blocks;
}

bool PlanEngine::HasLentBlocks(std::size_t pool) const noexcept {
  const Lock lock(mutex_);
  const GranuleRange range = lent_.RangeOf(pool);
  return occupancy_.LastIn(range.lo, range.hi, &PlanEngine::IsProgramsBlock) != nullptr;
}

void PlanEngine::ServeAsLauncher(std::size_t pool) noexcept {
  const Lock lock(mutex_);
  lent_.NoteLauncher(pool);
}

void PlanEngine::ForgetLaunchers(std::size_t pool) noexcept {
  const Lock lock(mutex_);
  lent_.ForgetLaunchers(pool);
}

PlanEngine::Launch PlanEngine::BeginLaunch(std::size_t pool, const GraphRanges& graph, StreamHandle handle) noexcept {
  Lock lock(mutex_);
  lent_.NoteLauncher(pool);
  if (lent_.FirstUsed(graph) != nullptr) return Launch::kCarriedGone;
  const auto in_the_way = [this](const GranuleRange& range) {
    mutex_.AssertHeld();
    return occupancy_.LastIn(range.lo, range.hi, &PlanEngine::IsProgramsBlock) != nullptr;
  };
  lent_.OnLaunch(pool, [this](const GranuleRange& range) {
    mutex_.AssertHeld();
    const LiveRecord* const record = occupancy_.Find(range.lo);
    return record != nullptr && IsProgramsBlock(*record) && record->end() == range.hi;
  });
  if (std::ranges::any_of(graph.own, in_the_way) || std::ranges::any_of(graph.gives, in_the_way)) {
    NoteBlocksInTheWay(graph);
    return Launch::kBlocksInTheWay;
  }
  const StreamIndex stream = clocks_.IndexOf(handle);
  return stream != kNoStream && MakeOrdered(graph, stream, lock) ? Launch::kReady : Launch::kNotOrdered;
}

void PlanEngine::NoteBlocksInTheWay(const GraphRanges& graph) noexcept {
  const auto note = [this](const GranuleRange& range) {
    mutex_.AssertHeld();
    (void)occupancy_.LastIn(range.lo, range.hi, [this](const LiveRecord& record) {
      mutex_.AssertHeld();
      if (IsProgramsBlock(record)) lent_.NoteInTheWay(record.granules);
      return false;
    });
  };
  std::ranges::for_each(graph.own, note);
  std::ranges::for_each(graph.gives, note);
}

bool PlanEngine::MakeOrdered(const GraphRanges& graph, StreamIndex stream, Lock& lock) noexcept {
  StreamNeeds needs;
  const auto gather = [&](const GranuleRange& range) {
    mutex_.AssertHeld();
    LetGoOfLaunches(range);
    return freed_.Gather(range.lo, range.hi, stream, needs);
  };
  if (!std::ranges::all_of(graph.own, gather) || !std::ranges::all_of(graph.gives, gather)) return false;
  if (!needs.empty() && !clocks_.can_order()) return false;
  const auto occupy = [&](const GranuleRange& range) {
    mutex_.AssertHeld();
    freed_.Take(range.lo, range.hi, stream);
    OccupyForLaunch(range, stream);
    lent_.NoteWritten(range);
  };
  std::ranges::for_each(graph.own, occupy);
  std::ranges::for_each(graph.gives, occupy);
  if (needs.empty() || clocks_.Order(stream, needs, lock)) return true;
  const auto put_back = [&](const GranuleRange& range) {
    mutex_.AssertHeld();
    freed_.PutBack(range.lo, needs);
  };
  std::ranges::for_each(graph.own, put_back);
  std::ranges::for_each(graph.gives, put_back);
  return false;
}

void PlanEngine::EndLaunch(const GraphRanges& graph) noexcept {
  const Lock lock(mutex_);
  for (const GranuleRange& range : graph.own) LetGoOfLaunches(range);
}

bool PlanEngine::NoteLaunch(const GraphRanges& graph) noexcept {
  const Lock lock(mutex_);
  if (lent_.FirstUsed(graph) != nullptr) return false;
  for (const GranuleRange& range : graph.own) lent_.NoteWritten(range);
  for (const GranuleRange& range : graph.gives) lent_.NoteWritten(range);
  return true;
}

void PlanEngine::NoteOverwritten(const GraphRanges& graph) noexcept {
  const Lock lock(mutex_);
  for (const TakenRange& taken : graph.takes) {
    if (lent_.CanNoteBlock()) lent_.NoteBlock(taken.range.lo, taken.range.hi);
  }
}

GraphId PlanEngine::GiverOfUsed(const GraphRanges& graph) const noexcept {
  const Lock lock(mutex_);
  const TakenRange* const used = lent_.FirstUsed(graph);
  return used != nullptr ? used->from : 0;
}

// Kernels of the launch may still run: the next owner of the bytes runs after its stream.
void PlanEngine::LetGoOfLaunches(const GranuleRange& range) noexcept {
  const auto is_launch = [](const LiveRecord& record) { return record.IsOfLaunch() && !record.Is(LiveRecord::kFreed); };
  for (const LiveRecord* found = occupancy_.LastIn(range.lo, range.hi, is_launch); found != nullptr;
       found = occupancy_.LastIn(range.lo, range.hi, is_launch)) {
    LiveRecord& launch = *occupancy_.Find(found->granule);
    launch.flags |= LiveRecord::kFreed;
    launch.stamp = clocks_.NewStamp();
    freed_at_.Set(launch.granule, launch.end(), launch.stamp);
  }
}

void PlanEngine::OccupyForLaunch(const GranuleRange& range, StreamIndex stream) noexcept {
  LiveRecord record;
  record.granule = range.lo;
  record.granules = range.hi - range.lo;
  record.slack = LiveRecord::kOfLaunch;
  record.stream = static_cast<std::uint8_t>(stream);
  occupancy_.Insert(record);
}

}  // namespace stalloc
