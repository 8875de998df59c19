#include "allocator/runtime/graph_lending.h"

#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include "allocator/base/log.h"
#include "allocator/runtime/human_bytes.h"
#include "allocator/runtime/pool_places.h"

namespace stalloc {
namespace {

// The piece that begins at this offset of the pool's place is not borrowed, or not all of it.
bool HasOwn(const std::optional<LentPool>& of_plan, Offset piece) {
  return of_plan.has_value() && std::ranges::any_of(of_plan->own, [piece](const Slot& own) {
           return own.offset < piece + PoolLayout::kExtentUnit && piece < own.offset + own.capacity;
         });
}

// What is carried in bytes that are not borrowed is filled, too, and nobody would follow it.
void RemoveOwnInLayout(LentPool* pool) {
  for (Slot& own : pool->own) {
    const Bytes inside = std::min(own.capacity, pool->bytes - own.offset);
    own = {own.offset + inside, own.capacity - inside};
  }
  std::erase_if(pool->own, [](const Slot& own) { return own.capacity == 0; });
}

}  // namespace

GraphLending::GraphLending(Parts parts, const std::vector<LentPool>& pools) : parts_(std::move(parts)) {
  Offset begin = parts_.arena->borrow_begin();
  for (const LentPool& of_plan : pools) {
    auto pool = std::make_unique<Pool>();
    pool->number = of_plan.number;
    pool->of_plan = of_plan;
    pool->index = pools_.size();
    pool->place = {begin, of_plan.extent()};
    begin += of_plan.extent();
    pool->may_have_launched = parts_.pools->Find(of_plan.number) != nullptr;
    if (parts_.poison != nullptr) RemoveOwnInLayout(&*pool->of_plan);
    pools_.push_back(std::move(pool));
  }
}

GraphLending::Pool* GraphLending::Find(std::uint32_t number) const noexcept {
  const std::lock_guard lock(table_mutex_);
  const auto found = std::ranges::find_if(pools_, [number](const auto& pool) { return pool->number == number; });
  return found != pools_.end() ? found->get() : nullptr;
}

GraphLending::Pool* GraphLending::Get(std::uint32_t number) noexcept {
  if (Pool* const known = Find(number); known != nullptr) return known;
  try {
    auto pool = std::make_unique<Pool>();
    pool->number = number;
    const std::lock_guard lock(table_mutex_);
    return pools_.emplace_back(std::move(pool)).get();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

std::vector<GraphLending::Pool*> GraphLending::All() const {
  const std::lock_guard lock(table_mutex_);
  std::vector<Pool*> all;
  for (const auto& pool : pools_) all.push_back(pool.get());
  return all;
}

// Lending -------------------------------------------------------------------------------------------------------------

GraphLending::Answer GraphLending::BeforeLaunch(std::uint32_t number, GraphId graph, StreamHandle stream) noexcept {
  Pool* const pool = Get(number);
  if (pool == nullptr) return {};
  const std::lock_guard lock(pool->mutex);
  pool->may_have_launched = true;
  const std::uint64_t iteration = iterations_.load(std::memory_order_relaxed);
  if (std::exchange(pool->tried_in, iteration) != iteration) TryToLend(*pool, stream);
  // Before it was lent nobody was in the pool. Of a graph that was captured later nothing is known here: its capture
  // has taken back what was lent.
  if (pool->times_lent == 0 || graph == 0 || graph > pool->graphs.size()) return {};
  return MakeWay(*pool, pool->graphs[graph - 1], stream);
}

void GraphLending::PoolCloses(std::uint32_t number) noexcept {
  Pool* const pool = Find(number);
  const GraphPool* const found = parts_.pools->Find(number);
  if (pool == nullptr || found == nullptr || parts_.poison != nullptr) return;
  const std::lock_guard lock(pool->mutex);
  if (pool->may_have_launched || !pool->of_plan.has_value()) return;
  if (found->catalog().request_count() == pool->of_plan->requests) TryToLend(*pool, /*stream=*/0);
  if (pool->state != State::kLent) return;
  pool->early = std::this_thread::get_id();
  parts_.engine->ServeAsLauncher(pool->index);
}

// Before the first launch the pool serves the thread that captured. Its kernels may come to its blocks at any time, so
// that another thread cannot move them: it waits until they have gone, as the plan has it.
bool GraphLending::EndEarly(Pool& pool) noexcept {
  if (!pool.early.has_value()) return true;
  if (pool.early != std::this_thread::get_id() && !AwaitEarlyBlocks(pool)) return false;
  pool.early.reset();
  return true;
}

bool GraphLending::AwaitEarlyBlocks(const Pool& pool) noexcept {
  parts_.engine->ForgetLaunchers(pool.index);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (parts_.engine->HasLentBlocks(pool.index)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

GraphLending::Answer GraphLending::MakeWay(Pool& pool, const GraphRanges& graph, StreamHandle stream) noexcept {
  using Launch = PlanEngine::Launch;
  if (!EndEarly(pool)) return {.verdict = Verdict::kNotOrdered};
  if (pool.state != State::kLent) return NoteLaunch(graph);
  const Launch launch = parts_.engine->BeginLaunch(pool.index, graph, stream);
  if (launch == Launch::kReady) return {};
  if (launch == Launch::kCarriedGone) return CarriedGone(graph);
  // Where the stream cannot be made to wait the host waits, and nobody is in the pool any more.
  const bool is_surprise = launch == Launch::kBlocksInTheWay;
  if (is_surprise) ++pool.surprises;
  const bool is_last = pool.surprises >= kMostSurprises;
  const DriverStatus status = TakeBack(pool, is_last ? State::kOver : State::kTakenBack);
  if (!status.ok()) {
    return {.verdict = status.code == DriverCode::kOutOfMemory ? Verdict::kOutOfMemory : Verdict::kNotOrdered};
  }
  if (is_surprise) {
    pool.tried_in = 0;  // the next launch lends it again, without what was in the way
    TellSurprise(pool, is_last);
  }
  return NoteLaunch(graph);
}

GraphLending::Answer GraphLending::NoteLaunch(const GraphRanges& graph) noexcept {
  return parts_.engine->NoteLaunch(graph) ? Answer() : CarriedGone(graph);
}

GraphLending::Answer GraphLending::CarriedGone(const GraphRanges& graph) const noexcept {
  return {.verdict = Verdict::kCarriedGone, .giver = parts_.engine->GiverOfUsed(graph)};
}

void GraphLending::TellSurprise(const Pool& pool, bool is_last) const noexcept {
  Log(is_last ? LogSeverity::kWarning : LogSeverity::kDebug,
      "device %d: a graph was launched while blocks of the program lay in its pool: they have memory of their own now "
      "(time %llu)%s",
      parts_.device, static_cast<unsigned long long>(pool.surprises),
      is_last ? "; the pool's memory serves no others any more" : "");
}

void GraphLending::AfterLaunch(std::uint32_t number, GraphId graph) noexcept {
  Pool* const pool = Find(number);
  if (pool == nullptr) return;
  const std::lock_guard lock(pool->mutex);
  if (pool->state == State::kLent && graph > 0 && graph <= pool->graphs.size()) {
    parts_.engine->EndLaunch(pool->graphs[graph - 1]);
  }
}

// Captures may free in another order than when they were traced, as threads and collectors please, so that some blocks
// lie elsewhere. Slots are tried all the same, where the bytes are open, until a block was in a launch's way.
bool GraphLending::IsPlanned(const Pool& pool, const PoolCatalog& catalog, const PoolLayout& layout) const {
  if (!pool.of_plan.has_value() || catalog.request_count() != pool.of_plan->requests) return false;
  return layout.bytes() == pool.of_plan->bytes && (layout.hash() == pool.of_plan->layout || pool.surprises == 0);
}

void GraphLending::NotePoisoned(std::uint32_t number, GraphId graph) noexcept {
  Pool* const pool = Find(number);
  if (pool == nullptr) return;
  const std::lock_guard lock(pool->mutex);
  if (graph > 0 && graph <= pool->graphs.size()) parts_.engine->NoteOverwritten(pool->graphs[graph - 1]);
}

// A catalog that has changed since the iteration before may change further.
void GraphLending::TryToLend(Pool& pool, StreamHandle stream) noexcept {
  const GraphPool* const found = parts_.pools->Find(pool.number);
  if (found == nullptr || (pool.state != State::kWaits && pool.state != State::kTakenBack)) return;
  if (pool.times_lent == kMostTimes) pool.state = State::kOver;
  const PoolCatalog& catalog = found->catalog();
  const std::uint64_t version = catalog.version();
  const bool is_settled = std::exchange(pool.version, version) == version;
  if (!catalog.followable() || catalog.capturing() || version == pool.hopeless) return;
  try {
    const PoolLayout layout(catalog.Requests());
    const bool is_planned = IsPlanned(pool, catalog, layout);
    if (!is_planned && !is_settled) return;
    if (layout.empty() || !CanLendAroundBlocks(pool, catalog)) return;
    if (catalog.Lendable().empty()) pool.hopeless = version;
    const bool may_lend = pool.hopeless != version && pool.state != State::kOver;
    if (may_lend && (is_planned || FindPlace(pool, layout))) Lend(pool, *found, layout, stream);
  } catch (const std::bad_alloc&) {  // in another iteration, maybe
  }
}

// Blocks that a launch found in its way lie at their addresses, in memory of their own. What they overwrote before may
// be carried to a launch; that is followed for open bytes alone, so all of it has to be written anew by then.
bool GraphLending::CanLendAroundBlocks(const Pool& pool, const PoolCatalog& catalog) const {
  if (pool.place.bytes == 0 || BlocksIn(pool).empty()) return true;
  if (parts_.poison != nullptr) return false;  // what is carried in closed bytes is overwritten, too
  const auto is_whole = [this](const GraphRanges& graph) { return parts_.engine->GiverOfUsed(graph) == 0; };
  return pool.graphs.size() == catalog.graph_count() && std::ranges::all_of(pool.graphs, is_whole);
}

// For a pool that is not as the plan has it; slots there serve nobody. While blocks lie in its place it gets no other.
bool GraphLending::FindPlace(Pool& pool, const PoolLayout& layout) {
  if (!pool.of_plan.has_value() && layout.bytes() <= pool.place.bytes) return true;
  if (pool.place.bytes > 0 && !BlocksIn(pool).empty()) return false;
  const std::optional<PlanEngine::LentPlace> place = parts_.engine->AddLentPool(layout.bytes());
  if (!place.has_value()) {
    pool.state = State::kOver;
    return false;
  }
  pool.of_plan.reset();
  pool.index = place->pool;
  pool.place = {place->begin, layout.bytes()};
  return true;
}

// The device is waited for: it is done with launches that came before, and no other one is under way, since the caller
// holds the pool's launch mutex. What graphs may have given before may be needed yet.
void GraphLending::Lend(Pool& pool, const GraphPool& found, const PoolLayout& layout, StreamHandle stream) {
  const std::vector<Arena::Range> blocks = BlocksIn(pool);
  if (!parts_.driver->Synchronize().ok()) return;
  const PoolCatalog& catalog = found.catalog();
  if (parts_.poison != nullptr && !parts_.poison->BeforeLending(found, stream)) {
    pool.state = State::kOver;
    return;
  }
  const std::vector<ByteRange> lendable = catalog.Lendable();
  const std::vector<std::uint32_t> first =
      pool.of_plan.has_value() ? pool.of_plan->first_pieces : PiecesIn(layout, lendable);
  const PoolPlaces places(layout, pool.place.offset, first);
  parts_.arena->EndBorrowing(pool.place);
  ReleaseOwned(pool, blocks);
  GranuleRanges mapped = Borrow(pool, places);
  if (mapped.empty()) {
    pool.state = State::kOver;
    return;
  }
  mapped = MergedGranules(std::move(mapped));
  GranuleRanges lent;
  for (const ByteRange& range : lendable) places.Append(range, &lent);
  GranuleRanges open;
  for (const GranuleRange& range : lent) AppendCommon(range, mapped, &open);
  open = MergedGranules(std::move(open));
  GranuleRanges given;
  pool.graphs.clear();
  for (GraphId graph = 1; graph <= catalog.graph_count(); ++graph) {
    pool.graphs.push_back(RangesOf(catalog.UseOf(graph), places, open));
    if (!pool.may_have_launched) continue;
    const GranuleRanges before = MergedGranules(given);
    for (const GranuleRange& range : pool.graphs.back().gives) AppendOutside(range, before, &given);
  }
  Bytes bytes = 0;
  for (const GranuleRange& range : open) bytes += Bytes{range.hi - range.lo} * kBlockAlignment;
  FindOwn(pool, blocks);
  for (const Arena::Range& own : pool.own) {
    open.push_back({WholeGranules(own.offset), WholeGranules(own.offset + own.bytes)});
  }
  if (!parts_.engine->OpenLent(pool.index, MergedGranules(open), given, pool.graphs.size())) return;
  pool.state = State::kLent;
  ++pool.times_lent;
  pool.lent_bytes = bytes;
  pool.most_bytes = std::max<Bytes>(pool.most_bytes, bytes);
  Log(LogSeverity::kDebug, "device %d: pool %u of graphs serves requests between their launches: %s of it",
      parts_.device, pool.number, HumanBytes(bytes).text);
}

// What is mapped of the pool's pieces. Where blocks live, which have memory of their own there, nothing is.
std::vector<GranuleRange> GraphLending::Borrow(const Pool& pool, const PoolPlaces& places) {
  GranuleRanges mapped;
  for (const PoolPlaces::Piece& piece : places.pieces()) {
    if (HasOwn(pool.of_plan, piece.offset - pool.place.offset)) continue;
    for (const Arena::Range& hole : parts_.arena->HolesIn(piece.offset, PoolLayout::kExtentUnit)) {
      Bytes bytes = 0;
      const Address from = piece.address + (hole.offset - piece.offset);
      const DriverStatus status = parts_.arena->Borrow(hole.offset, from, hole.bytes, &bytes);
      if (bytes > 0) mapped.push_back({WholeGranules(hole.offset), WholeGranules(hole.offset + bytes)});
      parts_.engine->Restore(hole.offset, bytes);  // own memory may have gone back from there
      if (status.ok() || !mapped.empty()) continue;
      Log(LogSeverity::kDebug, "device %d: pool %u of graphs is not lent: %s gave %d", parts_.device, pool.number,
          status.call, status.native);
      return {};
    }
  }
  return mapped;
}

// Without what blocks lie in that were in a launch's way.
void GraphLending::FindOwn(Pool& pool, const std::vector<Arena::Range>& blocks) {
  pool.own.clear();
  if (!pool.of_plan.has_value()) return;
  for (const Slot& slot : pool.of_plan->own) {
    const Arena::Range own{pool.place.offset + slot.offset, slot.capacity};
    const auto is_in = [&](const Arena::Range& block) {
      return block.offset < own.offset + own.bytes && own.offset < block.offset + block.bytes;
    };
    if (std::ranges::none_of(blocks, is_in) && parts_.chunks->WithdrawOwned(own)) pool.own.push_back(own);
  }
}

void GraphLending::ReleaseOwned(const Pool& pool, const std::vector<Arena::Range>& blocks) {
  Offset begin = pool.place.offset;
  for (const Arena::Range& block : blocks) {
    if (block.offset > begin) parts_.chunks->ReleaseOwned({begin, block.offset - begin});
    begin = block.offset + block.bytes;
  }
  if (const Offset end = pool.place.offset + pool.place.bytes; end > begin) {
    parts_.chunks->ReleaseOwned({begin, end - begin});
  }
}

std::vector<Arena::Range> GraphLending::BlocksIn(const Pool& pool) const {
  std::vector<Arena::Range> ranges;
  for (const LiveBlock& block : parts_.engine->LentBlocks(pool.index)) ranges.push_back({block.offset, block.bytes});
  std::ranges::sort(ranges, {}, &Arena::Range::offset);
  return ranges;
}

// Taking back ---------------------------------------------------------------------------------------------------------

DriverStatus GraphLending::OwnBlocks(const std::vector<Arena::Range>& blocks) noexcept {
  if (blocks.empty()) return {};
  DriverStatus status = parts_.chunks->OwnBorrowed(blocks);
  if (status.code == DriverCode::kOutOfMemory && parts_.chunks->GiveBack() > 0) {
    status = parts_.chunks->OwnBorrowed(blocks);
  }
  return status;
}

// On failure the pool is closed, and what lives there stays.
DriverStatus GraphLending::TakeBack(Pool& pool, State then) noexcept {
  if (pool.state == State::kLent) {
    parts_.engine->CloseLent(pool.index);
    const std::vector<Arena::Range> blocks = BlocksIn(pool);
    DriverStatus status = parts_.driver->Synchronize();
    if (status.ok()) status = OwnBlocks(blocks);
    if (!status.ok()) return status;
    parts_.arena->EndBorrowing(pool.place);
    ReleaseOwned(pool, blocks);
    for (const Arena::Range& own : std::exchange(pool.own, {})) parts_.engine->Restore(own.offset, own.bytes);
    pool.lent_bytes = 0;
    pool.early.reset();
    pool.state = State::kTakenBack;
  }
  if (then == State::kOver) pool.state = then;
  return {};
}

bool GraphLending::TakeBack(std::uint32_t number, bool for_good) noexcept {
  Pool* const pool = for_good ? Get(number) : Find(number);
  if (pool == nullptr) return true;
  const std::lock_guard lock(pool->mutex);
  return EndEarly(*pool) && TakeBack(*pool, for_good ? State::kOver : State::kTakenBack).ok();
}

// Not before the next iteration are they lent again.
bool GraphLending::TakeBackAll() {
  return std::ranges::all_of(All(), [this](Pool* pool) {
    const std::lock_guard lock(pool->mutex);
    pool->tried_in = iterations_.load(std::memory_order_relaxed);
    return TakeBack(*pool, State::kTakenBack).ok();
  });
}

GraphLending::Counts GraphLending::GetCounts() const {
  Counts counts;
  for (const Pool* const pool : All()) {
    counts.times_lent += pool->times_lent;
    counts.surprises += pool->surprises;
    counts.lent_bytes += pool->lent_bytes;
    counts.most_bytes += pool->most_bytes;
  }
  return counts;
}

}  // namespace stalloc
