#include "allocator/backing/idle_chunks.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "allocator/backing/chunk_bytes.h"
#include "allocator/base/clock.h"

namespace stalloc {
namespace {

// Adds the time of its life.
class Stopwatch {
 public:
  explicit Stopwatch(std::int64_t* nanoseconds) noexcept : sum_(nanoseconds), begin_(MonotonicNanoseconds()) {}
  ~Stopwatch() { *sum_ += MonotonicNanoseconds() - begin_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::int64_t* sum_;
  std::int64_t begin_;
};

// For what the device need not be known to be done with, since it is waited for.
constexpr std::uint64_t kAny = ~std::uint64_t{0};

constexpr Bytes kSteps = 8192;  // of growth, to the plan's height

// Of the cycle's length: who needs a chunk within it needs it soon.
constexpr std::uint64_t kSoon = 8;

Bytes Sum(std::span<const Arena::Range> ranges) {
  return std::accumulate(ranges.begin(), ranges.end(), Bytes{0},
                         [](Bytes sum, const Arena::Range& range) { return sum + range.bytes; });
}

bool Touch(const Arena::Range& a, const Arena::Range& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

std::uint64_t RequestsAnIteration(const SlotUses& uses, const DevicePlan& plan) {
  return plan.cycle.empty() ? 0 : uses.cycle_length() / plan.cycle.size();
}

}  // namespace

IdleChunks::IdleChunks(VmmDriver& driver, StreamFence* fence, Arena& arena, PlanEngine& engine, const DevicePlan& plan,
                       const Rules& rules)
    : driver_(driver),
      arena_(arena),
      engine_(engine),
      rules_(rules),
      clock_(fence, engine),
      step_(std::max(driver.Granularity(), std::bit_floor(arena.mapped_end() / kSteps))),
      moves_(engine.VariesMostly()),
      plan_end_(arena.mapped_end()),
      uses_(plan, arena.chunk_bytes()),
      end_(arena.mapped_end()),
      most_(arena.mapped_bytes()),
      pace_(RequestsAnIteration(uses_, plan)) {
  engine_.SetBacking(this);
}

void IdleChunks::TryAgain() noexcept { too_much_.store(kNothingFailed, std::memory_order_relaxed); }

Bytes IdleChunks::GiveBack() noexcept {
  const std::lock_guard lock(mutex_);
  const std::vector<Arena::Range> chunks = WithdrawIdle();
  if (chunks.empty()) return 0;
  const Bytes released = driver_.Synchronize().ok() ? Unmap(chunks) : 0;
  RestoreBacked(chunks);
  counts_.lent_bytes += released;
  if (released > 0) ++counts_.times_given_back;
  return released;
}

// REQUIRES: mutex_ is held.
Bytes IdleChunks::Unmap(std::span<const Arena::Range> idle) noexcept {
  ArenaListener* const listener = listener_.load(std::memory_order_acquire);
  if (listener != nullptr) listener->BeforeArenaChange();
  const Bytes released = arena_.ReleaseIdle(idle);
  if (listener != nullptr) listener->AfterArenaChange();
  return released;
}

bool IdleChunks::Back(Offset offset, Bytes bytes, std::uint64_t now, MayTake may_take) noexcept {
  const std::lock_guard lock(mutex_);
  const Offset end = offset + bytes;
  const Arena::Range missing = Missing(offset, end);
  if (missing.bytes == 0) return true;  // another thread has just brought it back
  // What went back to the device may come again: as long as no more is held than before, mapping is the cheaper way.
  if (missing.bytes <= Spare() && BackByMapping(offset, end)) return true;
  if (may_take == MayTake::kSpare) return false;
  if (pace_.MayMove(engine_.Stats().requests)) MoveInto(offset, end, now, IsWorthWaiting(offset, end));
  if (may_take == MayTake::kNoMore) return Missing(offset, end).bytes == 0;
  if (BackByMapping(offset, end)) return true;
  MoveInto(offset, end, now, true);  // the device is full
  return BackByMapping(offset, end);
}

// REQUIRES: mutex_ is held.
bool IdleChunks::BackByMapping(Offset offset, Offset end) noexcept {
  const Arena::Range missing = Missing(offset, end);
  if (missing.bytes == 0) return true;
  if (missing.bytes >= too_much_.load(std::memory_order_relaxed)) return false;
  const Stopwatch mapping(&counts_.map_nanoseconds);
  const bool grows = end > end_;
  bool backed = grows && Map({missing.offset, RoundUp(end, step_) - missing.offset});
  backed = backed || Map(missing);
  if (!backed) {
    ++counts_.times_not_mapped;
    too_much_.store(missing.bytes, std::memory_order_relaxed);
    return false;
  }
  ++(grows ? counts_.times_grown : counts_.times_mapped_again);
  return true;
}

// REQUIRES: mutex_ is held, as for what follows. Lent chunks come back in any case: mapping them would cost memory.
bool IdleChunks::IsWorthWaiting(Offset offset, Offset end) const noexcept {
  const bool lent = offset < end_ && !Lacking(offset, std::min(end, end_)).empty();
  return lent || (end > end_ && end - end_ >= plan_end_ / kLeastWorth);
}

// Idle chunks back what the range lacks, as far as there are any. Those that the device is done with, where there are
// enough of them; else one wait for it does for all. See Note [Behind the device].
void IdleChunks::MoveInto(Offset offset, Offset end, std::uint64_t now, bool may_wait) noexcept {
  moves_.store(true, std::memory_order_relaxed);
  const Stopwatch moving(&counts_.move_nanoseconds);
  const Arena::Range range{offset, end - offset};
  Moves moves = WithdrawFor(range, now, clock_.Done());
  if (Sum(moves.from) < Sum(Lacking(offset, end))) {
    RestoreBacked(moves.from);
    if (!may_wait) return;
    moves = WithdrawFor(range, now, kAny);
    if (moves.from.empty()) return;
    const Stopwatch waiting(&counts_.wait_nanoseconds);
    if (!driver_.Synchronize().ok()) return RestoreBacked(moves.from);
    ++counts_.times_waited;
  }
  if (moves.from.empty()) return;
  Move(moves);
  const bool moves_much = pace_.Add(engine_.Stats().requests, moves.from.size());
  if (moves_much && rules_.Have(Rule::kLargerChunks)) MoveLargerChunks();
}

// REQUIRES: what moves is withdrawn, and the device is done with it.
void IdleChunks::Move(const Moves& moves) noexcept {
  ArenaListener* const listener = listener_.load(std::memory_order_acquire);
  if (listener != nullptr) listener->BeforeArenaChange();
  arena_.Move(moves.from, moves.to);
  if (listener != nullptr) listener->AfterArenaChange();
  RestoreBacked(moves.from);
  RestoreBacked(moves.to);
  ++counts_.times_moved;
  counts_.moved_bytes += std::min(Sum(moves.from), Sum(moves.to));
}

void IdleChunks::OnMark() noexcept {
  if (moves_.load(std::memory_order_relaxed)) clock_.Tick();
  if (moves_at_marks_) MoveSome();
}

// Any chunks that may move, into any holes; now by what events say, now behind a wait.
void IdleChunks::MoveSome() noexcept {
  constexpr std::size_t kMost = 16;  // chunks
  const std::lock_guard lock(mutex_);
  const bool waits = random_() % 2 == 0;
  const std::uint64_t done = waits ? kAny : clock_.Done();
  std::vector<Arena::Range> chunks = arena_.Chunks();
  std::shuffle(chunks.begin(), chunks.end(), random_);
  Moves moves;
  for (const Arena::Range& chunk : chunks) {
    if (moves.from.size() < kMost && WithdrawChunk(chunk, done)) moves.from.push_back(chunk);
  }
  if (moves.from.empty()) return;
  if (waits && !driver_.Synchronize().ok()) return RestoreBacked(moves.from);
  counts_.times_waited += waits ? 1 : 0;
  const Bytes bytes = Sum(moves.from);
  moves.to = arena_.HolesIn(0, end_);
  std::shuffle(moves.to.begin(), moves.to.end(), random_);
  if (const Bytes holes = Sum(moves.to); holes < bytes && end_ + bytes <= arena_.reserved_bytes()) {
    moves.to.push_back({end_, bytes - holes});
  }
  Move(moves);
}

// See Note [Moves in every iteration].
void IdleChunks::MoveLargerChunks() noexcept {
  const Bytes bytes = 2 * arena_.moved_chunk_bytes();
  if (bytes <= arena_.mapped_bytes() / kMovedParts) arena_.SetMovedBytes(bytes);
}

// Which chunks go where; they are withdrawn. What the range lacks comes first, then what is due soon.
IdleChunks::Moves IdleChunks::WithdrawFor(const Arena::Range& range, std::uint64_t now, std::uint64_t done) noexcept {
  std::vector<Part> movable = Movable(range, now);
  const auto is_due_later = [](const Part& a, const Part& b) {
    return a.until_due != b.until_due ? a.until_due < b.until_due : a.range.offset < b.range.offset;
  };
  std::make_heap(movable.begin(), movable.end(), is_due_later);
  Moves moves;
  Bytes taken = 0;
  Bytes wanted = 0;
  // As much as is wanted now, of chunks that are due behind this.
  const auto withdraw = [&](std::uint64_t due) {
    while (taken < wanted && !movable.empty() && (due == 0 || movable.front().until_due > due)) {
      const Arena::Range chunk = movable.front().range;
      std::pop_heap(movable.begin(), movable.end(), is_due_later);
      movable.pop_back();
      if (!WithdrawChunk(chunk, done)) continue;
      moves.from.push_back(chunk);
      taken += chunk.bytes;
    }
    return taken >= wanted;
  };
  moves.to = Lacking(range.offset, range.offset + range.bytes);
  wanted = Sum(moves.to);
  if (!withdraw(0) || !rules_.Have(Rule::kDueSoon)) return moves;
  for (const Part& lent : DueSoon(now)) {
    if (Touch(lent.range, range)) continue;
    const Bytes before = wanted;
    wanted += lent.range.bytes;
    const bool enough = withdraw(lent.until_due);
    if (taken > before) moves.to.push_back({lent.range.offset, std::min(taken - before, lent.range.bytes)});
    if (!enough) break;
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

// What is not backed of [offset, end), ascending: holes, in steps of a chunk, and what lies above all.
std::vector<Arena::Range> IdleChunks::Lacking(Offset offset, Offset end) const noexcept {
  const Bytes chunk = arena_.chunk_bytes();
  const Offset begin = offset / chunk * chunk;
  const Offset below = std::min(RoundUp(end, chunk), end_);
  std::vector<Arena::Range> lacking;
  if (begin < below) lacking = arena_.HolesIn(begin, below - begin);
  std::erase_if(lacking, [&](const Arena::Range& hole) { return !Touch(hole, {offset, end - offset}); });
  if (end > end_) lacking.push_back({end_, RoundUp(end, driver_.Granularity()) - end_});
  return lacking;
}

// Requests until a slot in the range is due.
std::uint64_t IdleChunks::UntilDue(const Arena::Range& range, std::uint64_t now) const noexcept {
  const Bytes part = arena_.chunk_bytes();
  std::uint64_t until = SlotUses::kNever;
  for (Offset at = range.offset / part; at * part < range.offset + range.bytes; ++at) {
    until = std::min(until, uses_.UntilDue(at, now));
  }
  return until;
}

// Parts of holes, that which is due first in front.
std::vector<IdleChunks::Part> IdleChunks::DueSoon(std::uint64_t now) const noexcept {
  const Bytes chunk = arena_.chunk_bytes();
  std::vector<Part> due;
  for (const Arena::Range& hole : arena_.HolesIn(0, end_)) {
    for (Offset at = hole.offset; at < hole.offset + hole.bytes;) {
      const Offset next = std::min(hole.offset + hole.bytes, at / chunk * chunk + chunk);
      const std::uint64_t until = UntilDue({at, next - at}, now);
      if (until <= uses_.cycle_length() / kSoon) due.push_back({{at, next - at}, until});
      at = next;
    }
  }
  std::sort(due.begin(), due.end(), [](const Part& a, const Part& b) { return a.until_due < b.until_due; });
  return due;
}

// Chunks outside a range; blocks may live in them. Those of slots that the cycle never needs again are last of all:
// what lies there stays.
std::vector<IdleChunks::Part> IdleChunks::Movable(const Arena::Range& but, std::uint64_t now) const noexcept {
  std::vector<Part> movable;
  for (const Arena::Range& chunk : arena_.Chunks()) {
    if (Touch(chunk, but)) continue;
    const std::uint64_t until = UntilDue(chunk, now);
    movable.push_back({chunk, until == SlotUses::kNever && chunk.offset < plan_end_ ? 0 : until});
  }
  return movable;
}

// Of what was withdrawn, or lies above all: what is backed may be used. REQUIRES: mutex_ is held.
void IdleChunks::RestoreBacked(std::span<const Arena::Range> ranges) noexcept {
  for (const Arena::Range& range : ranges) {
    Offset at = range.offset;
    const auto restore = [&](Offset until) {
      if (until <= at) return;
      if (at < end_) engine_.Restore(at, std::min(until, end_) - at);
      if (at <= end_ && until > end_) {
        end_ = until;
        engine_.Extend(end_);
      }
    };
    for (const Arena::Range& hole : arena_.HolesIn(range.offset, range.bytes)) {
      restore(hole.offset);
      at = hole.offset + hole.bytes;
    }
    restore(range.offset + range.bytes);
  }
}

// From the first to the last byte that is not backed of [offset, end). REQUIRES: mutex_ is held.
Arena::Range IdleChunks::Missing(Offset offset, Offset end) const noexcept {
  const std::vector<Arena::Range> lacking = Lacking(offset, end);
  if (lacking.empty()) return {};
  return {lacking.front().offset, lacking.back().offset + lacking.back().bytes - lacking.front().offset};
}

// All of the range, or nothing. REQUIRES: mutex_ is held.
bool IdleChunks::Map(const Arena::Range& range) noexcept {
  const Offset end = range.offset + range.bytes;
  ArenaListener* const listener = listener_.load(std::memory_order_acquire);
  if (end > arena_.reserved_bytes()) return false;
  if (listener != nullptr) {
    if (!listener->MayHold(arena_.mapped_bytes() + Sum(arena_.HolesIn(range.offset, range.bytes)))) return false;
    listener->BeforeArenaChange();
  }
  const Bytes before = arena_.mapped_bytes();
  const bool mapped = arena_.EnsureMapped(range.offset, range.bytes).ok();
  const Bytes grown = end > end_ ? end - end_ : 0;
  if (mapped) counts_.lent_bytes -= std::min(counts_.lent_bytes, arena_.mapped_bytes() - before - grown);
  if (listener != nullptr) listener->AfterArenaChange();
  if (!mapped) return false;
  most_.store(std::max(most_.load(std::memory_order_relaxed), arena_.mapped_bytes()), std::memory_order_relaxed);
  RestoreBacked({&range, 1});
  return true;
}

IdleChunks::Counts IdleChunks::GetCounts() const noexcept {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::vector<Arena::Range> IdleChunks::WithdrawIdle() noexcept {
  std::vector<Arena::Range> chunks = arena_.Chunks();
  std::erase_if(chunks, [this](const Arena::Range& chunk) { return !engine_.Withdraw(chunk.offset, chunk.bytes); });
  return chunks;
}

}  // namespace stalloc
