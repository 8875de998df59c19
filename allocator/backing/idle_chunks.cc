#include "allocator/backing/idle_chunks.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "allocator/backing/chunk_bytes.h"
#include "allocator/base/clock.h"
#include "allocator/base/mutex.h"

namespace stalloc {
namespace {

// For what the device need not be known to be done with, since it is waited for.
constexpr std::uint64_t kAny = ~std::uint64_t{0};

Bytes Sum(std::span<const Arena::Range> ranges) {
  return std::accumulate(ranges.begin(), ranges.end(), Bytes{0},
                         [](Bytes sum, const Arena::Range& range) { return sum + range.bytes; });
}

Offset EndOf(const Arena::Range& range) { return range.offset + range.bytes; }

// README, A free card and a full one: about as much as PyTorch's allocator would hold of the traced run.
double GrowthOf(const Predicted& traced) {
  if (traced.peak_live_bytes == 0 || traced.expandable_bytes == 0) return tuning::kLeastGrowth;
  const double others = static_cast<double>(traced.expandable_bytes) / static_cast<double>(traced.peak_live_bytes);
  return std::min(std::max(tuning::kLeastGrowth, others), tuning::kMostOverOthers * others);
}

bool Touch(const Arena::Range& a, const Arena::Range& b) { return a.offset < EndOf(b) && b.offset < EndOf(a); }

}  // namespace

IdleChunks::IdleChunks(VmmDriver& driver, StreamFence* fence, Arena& arena, PlanEngine& engine, const DevicePlan& plan,
                       Bytes keep_free)
    : driver_(driver),
      arena_(arena),
      engine_(engine),
      clock_(fence, engine),
      begin_(MonotonicNanoseconds()),
      traced_peak_(plan.predicted.peak_live_bytes),
      growth_(GrowthOf(plan.predicted)),
      others_(plan.predicted.expandable_bytes),
      plan_end_(std::max(RoundUp(plan.arena_bytes, driver.Granularity()), arena.mapped_end())),
      moves_(engine.VariesMostly()),
      small_(SmallChunkBytes(plan, arena)),
      has_large_(arena.chunk_bytes() > small_),
      uses_(plan, small_),
      free_(driver, keep_free),
      end_(plan_end_),
      most_(plan_end_) {
  engine_.SetBacking(this);
}

template <typename Change>
auto IdleChunks::ChangeArena(Change&& change) noexcept {
  ArenaListener* const listener = listener_.load(std::memory_order_acquire);
  if (listener != nullptr) listener->BeforeArenaChange();
  const auto result = change();
  if (listener != nullptr) listener->AfterArenaChange();
  return result;
}

Bytes IdleChunks::GiveBack(std::uint64_t since) noexcept {
  const LockGuard lock(mutex_);
  return GiveBackIdle(arena_.Chunks(), since);
}

Bytes IdleChunks::TryGiveBack() noexcept {
  if (!mutex_.try_lock()) return 0;
  const Bytes released = GiveBackIdle(arena_.Chunks(), kNow);
  mutex_.unlock();
  return released;
}

Bytes IdleChunks::GiveBackIdle(std::vector<Arena::Range> chunks, std::uint64_t since) noexcept {
  if (chunks.empty()) return 0;
  engine_.AwaitOtherDevices();
  std::erase_if(chunks, [&](const Arena::Range& chunk) {
    mutex_.AssertHeld();
    return !WithdrawChunk(chunk, since);
  });
  if (chunks.empty()) return 0;
  const Bytes released = driver_.Synchronize().ok() ? Release(chunks) : 0;
  RestoreBacked(chunks);
  if (released > 0) ++counts_.times_given_back;
  return released;
}

Bytes IdleChunks::Release(std::span<const Arena::Range> chunks) noexcept {
  mutex_.AssertHeld();
  if (chunks.empty()) return 0;
  const Bytes released = ChangeArena([&] { return arena_.ReleaseIdle(chunks); });
  counts_.lent_bytes += released;
  return released;
}

DriverStatus IdleChunks::OwnBorrowed(std::span<const Arena::Range> ranges) noexcept {
  const LockGuard lock(mutex_);
  return ChangeArena([&] { return arena_.OwnBorrowed(ranges); });
}

void IdleChunks::ReleaseOwned(const Arena::Range& range) noexcept {
  const LockGuard lock(mutex_);
  if (Sum(arena_.HolesIn(range.offset, range.bytes)) == range.bytes) return;
  ChangeArena([&] { return arena_.ReleaseIdle({&range, 1}); });
}

void IdleChunks::NoteCopies() noexcept {
  mutex_.AssertHeld();
  copied_ = engine_.NewStamp();
}

bool IdleChunks::WithdrawOwned(const Arena::Range& range) noexcept {
  const LockGuard lock(mutex_);
  engine_.Restore(range.offset, range.bytes);
  return std::ranges::all_of(arena_.HolesIn(range.offset, range.bytes),
                             [this](const Arena::Range& hole) { return engine_.Withdraw(hole.offset, hole.bytes); });
}

// The plan counts on it as on the arena's height. On a full card what the cycle has no use for goes back first.
bool IdleChunks::MapOwned(Arena::Range range, std::uint64_t now) noexcept {
  const Bytes unit = driver_.Granularity();
  range = {range.offset / unit * unit, RoundUp(EndOf(range), unit) - range.offset / unit * unit};
  const bool is_full = !free_.is_free();
  if (is_full && !Lacking(range).empty()) GiveBackUnused(now);
  const Stopwatch mapping(&counts_.map_nanoseconds);
  bool mapped = MapHoles(range);
  if (!mapped && is_full && MayMove()) {
    if (const Moves moves = WithdrawFor(range, now, Done()); !moves.from.empty()) Move(moves);
    mapped = MapHoles(range);
  }
  ++(mapped ? counts_.times_mapped_again : counts_.times_not_mapped);
  most_.store(std::max(most_.load(std::memory_order_relaxed), arena_.mapped_bytes()), std::memory_order_relaxed);
  RestoreBacked({&range, 1});
  return mapped;
}

bool IdleChunks::MapHoles(const Arena::Range& range) noexcept {
  const std::vector<Arena::Range> holes = Lacking(range);
  return holes.empty() || (MayHold(Sum(holes)) && MapAgain(holes).ok());
}

// Warm-up has left it, or requests without a slot.
void IdleChunks::GiveBackUnused(std::uint64_t now) noexcept {
  std::vector<Arena::Range> unused = arena_.Chunks();
  std::erase_if(unused, [&](const Arena::Range& chunk) {
    mutex_.AssertHeld();
    return chunk.offset >= arena_.borrow_begin() || UntilDue(chunk, now) != SlotUses::kNever;
  });
  (void)GiveBackIdle(std::move(unused), kNow);
}

DriverStatus IdleChunks::MapAgain(std::span<const Arena::Range> chunks) noexcept {
  mutex_.AssertHeld();
  if (chunks.empty()) return {};
  const DriverStatus status = ChangeArena([&] { return arena_.MapAsChunks(chunks); });
  if (status.ok()) counts_.lent_bytes -= std::min(counts_.lent_bytes, Sum(chunks));
  return status;
}

bool IdleChunks::EnsureBacked(Offset offset, Bytes bytes, std::uint64_t now, Growth growth) noexcept {
  const LockGuard lock(mutex_);
  const Arena::Range range{offset, bytes};
  if (offset >= arena_.borrow_begin()) return MapOwned(range, now);
  const Bytes missing = Missing(range).bytes;
  if (missing == 0) return true;  // another thread has just brought it back
  if (BackBySpare(range)) return true;
  if (growth == Growth::kSpare) return false;
  const bool may_grow = growth == Growth::kAllowed;
  if (may_grow && MayGrow(missing, engine_.Stats().peak_live_bytes) && Grow(range, missing)) return true;
  if (may_grow && !free_.is_free() && UseSmallChunks() && BackBySpare(range)) return true;
  if (may_grow && MayGrowOnFullCard(missing) && BackByMapping(range)) return true;
  if (MayMove()) MoveInto(range, now, false);
  const Bytes still_missing = Missing(range).bytes;
  if (!may_grow || still_missing == 0) return still_missing == 0;
  if (Grow(range, still_missing) || BackByMapping(range)) return true;
  MoveInto(range, now, true);  // no more is to be had
  return BackByMapping(range);
}

// Without a plan there is no peak yet that idle parts would add to. On a free card moves take next to no time.
bool IdleChunks::MayMove() const noexcept {
  if (plan_end_ == 0) return false;
  return !free_.is_free() ||
         counts_.move_nanoseconds - moved_while_full_ < (MonotonicNanoseconds() - begin_) / tuning::kMovingParts;
}

// README, A free card and a full one.
bool IdleChunks::Grow(const Arena::Range& range, Bytes missing) noexcept {
  if (!free_.Take(missing, [this](Bytes bytes) { return MayHold(bytes); })) return false;
  if (BackByMapping(range)) return true;
  free_.Refused();
  return false;
}

bool IdleChunks::MayHold(Bytes more) const noexcept {
  ArenaListener* const listener = listener_.load(std::memory_order_acquire);
  return listener == nullptr || listener->MayHold(more);
}

void IdleChunks::TakenByOthers(Bytes bytes) noexcept {
  const LockGuard lock(mutex_);
  const Bytes most = most_.load(std::memory_order_relaxed);
  most_.store(std::max(arena_.mapped_bytes(), most - std::min(most, bytes)), std::memory_order_relaxed);
}

void IdleChunks::TryAgain() noexcept {
  const LockGuard lock(mutex_);
  too_much_.store(kNothingFailed, std::memory_order_relaxed);
  free_.QueryAgain();
  if (has_large_ && !MayHold(plan_end_ / tuning::kPlentyParts)) (void)UseSmallChunks();
}

void IdleChunks::BeginIteration() noexcept {
  const LockGuard lock(mutex_);
  too_much_.store(kNothingFailed, std::memory_order_relaxed);
  if (!free_.is_free()) {
    (void)UseSmallChunks();
    moved_while_full_ = counts_.move_nanoseconds;
    was_full_.store(true, std::memory_order_relaxed);
    settles_.store(tuning::kSettlingIterations, std::memory_order_relaxed);
  } else if (const std::size_t left = settles_.load(std::memory_order_relaxed); left > 0) {
    settles_.store(left - 1, std::memory_order_relaxed);
  }
  free_.AskNow([this](Bytes bytes) { return MayHold(bytes); });
  begins_[iterations_++ % begins_.size()] = engine_.NewStamp();
  if (plan_end_ > 0 && iterations_ > begins_.size()) ReleaseSurplus();
}

// What the cycle uses and nobody has now goes back, and comes again in small chunks.
bool IdleChunks::UseSmallChunks() noexcept {
  if (!has_large_) return false;
  arena_.SetChunkBytes(small_);
  std::vector<Arena::Range> large = arena_.Chunks();
  std::erase_if(large, [&](const Arena::Range& chunk) {
    mutex_.AssertHeld();
    const bool stays = chunk.offset < plan_end_ && UntilDue(chunk, uses_.cycle_begin()) == SlotUses::kNever;
    return chunk.bytes <= small_ || stays;
  });
  const Bytes bytes = Sum(large);
  const Bytes released = GiveBackIdle(std::move(large), kNow);
  has_large_ = released < bytes;
  if (released > 0) too_much_.store(kNothingFailed, std::memory_order_relaxed);
  return released > 0;
}

// The highest chunks first. Nothing waits.
void IdleChunks::ReleaseSurplus() noexcept {
  const Bytes bound = std::max(GrowsUpTo(engine_.Stats().peak_live_bytes), plan_end_);
  if (arena_.mapped_bytes() <= bound) return;
  clock_.Tick();
  const std::uint64_t idle_since = std::min(Done(), begins_[iterations_ % begins_.size()]);
  std::vector<Arena::Range> chunks = arena_.Chunks();
  std::vector<Arena::Range> surplus;
  Bytes left = arena_.mapped_bytes();
  for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk) {
    if (surplus.size() == tuning::kReleasedAtOnce) break;
    if (left - chunk->bytes < bound || !WithdrawChunk(*chunk, idle_since)) continue;
    surplus.push_back(*chunk);
    left -= chunk->bytes;
  }
  // It is not to come again for want of a better place.
  most_.fetch_sub(Release(surplus), std::memory_order_relaxed);
}

bool IdleChunks::MayGrowOnFullCard(Bytes more) const noexcept {
  if (free_.is_keep_given() || more >= too_much_.load(std::memory_order_relaxed)) return false;
  if (arena_.mapped_bytes() + more > GrowsUpTo(engine_.Stats().peak_live_bytes)) return false;
  MemoryInfo info;
  if (!driver_.GetMemoryInfo(&info).ok()) return false;
  return info.free >= more + std::min(tuning::kDriversBytes, info.total / tuning::kDriversParts);
}

// What went back to the device may come again: as long as no more is held than before, mapping is the cheaper way.
bool IdleChunks::BackBySpare(const Arena::Range& range) noexcept {
  return Missing(range).bytes <= Spare() && BackByMapping(range);
}

bool IdleChunks::BackByMapping(const Arena::Range& range) noexcept {
  const Arena::Range missing = Missing(range);
  if (missing.bytes == 0) return true;
  if (missing.bytes >= too_much_.load(std::memory_order_relaxed)) return false;
  const Stopwatch mapping(&counts_.map_nanoseconds);
  const bool grows = EndOf(range) > end_;
  if (!Map(missing)) {
    ++counts_.times_not_mapped;
    too_much_.store(missing.bytes, std::memory_order_relaxed);
    return false;
  }
  ++(grows ? counts_.times_grown : counts_.times_mapped_again);
  return true;
}

std::uint64_t IdleChunks::Done() noexcept {
  const std::uint64_t done = std::max(clock_.Done(), waited_);
  return done > copied_ ? done : 0;
}

// Idle chunks back what the range lacks, as far as there are any. Those that the device is done with, where there are
// enough of them; else one wait for it does for all. See README, After the device's work.
void IdleChunks::MoveInto(const Arena::Range& range, std::uint64_t now, bool may_wait) noexcept {
  moves_.store(true, std::memory_order_relaxed);
  const Stopwatch moving(&counts_.move_nanoseconds);
  Moves moves = WithdrawFor(range, now, Done());
  if (Sum(moves.from) < Sum(Lacking(range))) {
    RestoreBacked(moves.from);
    if (!may_wait) return;
    moves = WithdrawFor(range, now, kAny);
    if (moves.from.empty()) return;
    const Stopwatch waiting(&counts_.wait_nanoseconds);
    const std::uint64_t stamp = engine_.NewStamp();
    if (!driver_.Synchronize().ok()) return RestoreBacked(moves.from);
    waited_ = stamp;
    ++counts_.times_waited;
  }
  if (moves.from.empty()) return;
  Move(moves);
}

// REQUIRES: what moves is withdrawn, and the device is done with it.
void IdleChunks::Move(const Moves& moves) noexcept {
  ChangeArena([&] {
    arena_.Move(moves.from, moves.to);
    return true;
  });
  RestoreBacked(moves.from);
  RestoreBacked(moves.to);
  ++counts_.times_moved;
  counts_.moved_bytes += std::min(Sum(moves.from), Sum(moves.to));
}

void IdleChunks::MapAhead() noexcept {
  const LockGuard lock(mutex_);
  if (!free_.Take(plan_end_, [](Bytes) { return true; })) return;
  (void)Map({0, plan_end_});
}

// The card is full, or the arena about as large as it may grow.
bool IdleChunks::MayHaveToMove() const noexcept {
  const Bytes peak_live = engine_.Stats().peak_live_bytes;
  return !MayGrow(peak_live / tuning::kNearParts, peak_live);
}

void IdleChunks::OnMark() noexcept {
  if (moves_.load(std::memory_order_relaxed) && MayHaveToMove()) clock_.Tick();
  if (moves_at_marks_) MoveSome();
}

// Into any hole, or above all; now by what events say, now after a wait.
void IdleChunks::MoveSome() noexcept {
  const LockGuard lock(mutex_);
  std::vector<Arena::Range> places = arena_.HolesIn(0, end_);
  const Bytes above = tuning::kMovedAtMarks * arena_.chunk_bytes();
  if (end_ + above <= arena_.borrow_begin()) places.push_back({end_, above});
  const std::uint64_t now = random_() % (uses_.cycle_begin() + uses_.cycle_length() + 1);
  if (!places.empty()) MoveInto(places[random_() % places.size()], now, random_() % 2 == 0);
}

// Which chunks go where; they are withdrawn. That which is due last goes first.
IdleChunks::Moves IdleChunks::WithdrawFor(const Arena::Range& range, std::uint64_t now, std::uint64_t done) noexcept {
  Moves moves{.from = {}, .to = Lacking(range)};
  Bytes wanted = Sum(moves.to);
  for (const Part& part : Movable(range, now)) {
    if (wanted == 0) break;
    if (!WithdrawChunk(part.range, done)) continue;
    moves.from.push_back(part.range);
    wanted -= std::min(wanted, part.range.bytes);
  }
  return moves;
}

bool IdleChunks::WithdrawChunk(const Arena::Range& chunk, std::uint64_t done) noexcept {
  if (!engine_.Withdraw(chunk.offset, chunk.bytes)) return false;
  // Only now: nothing is placed there any more, so that no later free comes.
  if (engine_.LastFreeIn(chunk.offset, chunk.bytes) < done) return true;
  engine_.Restore(chunk.offset, chunk.bytes);
  return false;
}

// What is not backed of the range, ascending: holes, in steps of a small chunk, and what lies above all.
std::vector<Arena::Range> IdleChunks::Lacking(const Arena::Range& range) const noexcept {
  if (range.offset >= arena_.borrow_begin()) return arena_.HolesIn(range.offset, range.bytes);
  const Bytes chunk = small_;
  const Offset begin = range.offset / chunk * chunk;
  const Offset below = std::min(RoundUp(EndOf(range), chunk), end_);
  std::vector<Arena::Range> lacking;
  if (begin < below) lacking = arena_.HolesIn(begin, below - begin);
  std::erase_if(lacking, [&](const Arena::Range& hole) { return !Touch(hole, range); });
  if (EndOf(range) > end_) lacking.push_back({end_, RoundUp(EndOf(range), driver_.Granularity()) - end_});
  return lacking;
}

// From the first to the last byte of that.
Arena::Range IdleChunks::Missing(const Arena::Range& range) const noexcept {
  const std::vector<Arena::Range> lacking = Lacking(range);
  if (lacking.empty()) return {};
  return {lacking.front().offset, EndOf(lacking.back()) - lacking.front().offset};
}

// Requests until a slot in the range is due.
std::uint64_t IdleChunks::UntilDue(const Arena::Range& range, std::uint64_t now) const noexcept {
  const Bytes part = small_;
  std::uint64_t until = SlotUses::kNever;
  for (Offset at = range.offset / part; at * part < EndOf(range); ++at) {
    until = std::min(until, uses_.UntilDue(at, now));
  }
  return until;
}

// Chunks outside a range, that which is due last in front; blocks may live in them. Larger ones that the cycle never
// needs again are last of all, since what lies there stays, with own memory amid graphs' pools, which is due soon.
std::vector<IdleChunks::Part> IdleChunks::Movable(const Arena::Range& but, std::uint64_t now) const noexcept {
  std::vector<Part> movable;
  for (const Arena::Range& chunk : arena_.Chunks()) {
    if (Touch(chunk, but)) continue;
    const std::uint64_t until = chunk.offset < arena_.borrow_begin() ? UntilDue(chunk, now) : 0;
    movable.push_back({chunk, until == SlotUses::kNever && chunk.bytes > small_ ? 0 : until});
  }
  std::ranges::sort(movable, std::ranges::greater{},
                    [](const Part& part) { return std::pair(part.until_due, part.range.offset); });
  return movable;
}

// For what was withdrawn, or lies above all: what is backed may be used.
void IdleChunks::RestoreBacked(std::span<const Arena::Range> ranges) noexcept {
  for (const Arena::Range& range : ranges) {
    Offset at = range.offset;
    const auto restore = [&](Offset until) {
      mutex_.AssertHeld();
      if (until <= at) return;
      if (at >= arena_.borrow_begin()) return engine_.Restore(at, until - at);
      if (at < end_) engine_.Restore(at, std::min(until, end_) - at);
      if (at <= end_ && until > end_) {
        end_ = until;
        engine_.Extend(end_);
      }
    };
    for (const Arena::Range& hole : arena_.HolesIn(range.offset, range.bytes)) {
      restore(hole.offset);
      at = EndOf(hole);
    }
    restore(EndOf(range));
  }
}

// What could be mapped where not all could is there for others.
bool IdleChunks::Map(const Arena::Range& range) noexcept {
  const Bytes before = arena_.mapped_bytes();
  if (EndOf(range) > arena_.borrow_begin() || !MayHold(Sum(arena_.HolesIn(range.offset, range.bytes)))) return false;
  const bool all = ChangeArena([&] { return arena_.EnsureMapped(range.offset, range.bytes).ok(); });
  const Bytes mapped = arena_.mapped_bytes() - before;
  const Bytes grown = EndOf(range) > end_ ? EndOf(range) - end_ : 0;
  counts_.lent_bytes -= std::min(counts_.lent_bytes, mapped - std::min(mapped, grown));
  most_.store(std::max(most_.load(std::memory_order_relaxed), before + mapped), std::memory_order_relaxed);
  RestoreBacked({&range, 1});
  return all;
}

void IdleChunks::Counts::Add(const Counts& other) noexcept {
  lent_bytes += other.lent_bytes;
  times_given_back += other.times_given_back;
  times_mapped_again += other.times_mapped_again;
  times_not_mapped += other.times_not_mapped;
  times_grown += other.times_grown;
  times_moved += other.times_moved;
  times_waited += other.times_waited;
  moved_bytes += other.moved_bytes;
  map_nanoseconds += other.map_nanoseconds;
  wait_nanoseconds += other.wait_nanoseconds;
  move_nanoseconds += other.move_nanoseconds;
}

IdleChunks::Counts IdleChunks::GetCounts() const noexcept {
  const LockGuard lock(mutex_);
  return counts_;
}

}  // namespace stalloc
