#include "allocator/backing/idle_chunks.h"

#include <algorithm>
#include <bit>
#include <iterator>

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

constexpr Bytes kSteps = 8192;  // of growth, to the plan's height

// Of the cycle's length: who needs a chunk within it needs it soon.
constexpr std::uint64_t kSoon = 8;

std::uint64_t RequestsAnIteration(const SlotUses& uses, const DevicePlan& plan) {
  return plan.cycle.empty() ? 0 : uses.cycle_length() / plan.cycle.size();
}

}  // namespace

IdleChunks::IdleChunks(VmmDriver& driver, Arena& arena, PlanEngine& engine, const DevicePlan& plan)
    : driver_(driver),
      arena_(arena),
      engine_(engine),
      step_(std::max(driver.Granularity(), std::bit_floor(arena.mapped_end() / kSteps))),
      plan_end_(arena.mapped_end()),
      uses_(plan, arena.chunk_bytes()),
      requests_a_move_(std::max<std::uint64_t>(1, RequestsAnIteration(uses_, plan) / kMovesAnIteration)),
      end_(arena.mapped_end()),
      most_(arena.mapped_bytes()) {
  engine_.SetBacking(this);
}

void IdleChunks::TryAgain() noexcept {
  too_much_.store(kNothingFailed, std::memory_order_relaxed);
  std::uint64_t paid = requests_paid_.load(std::memory_order_relaxed);
  const std::uint64_t moves = (std::max(engine_.Stats().requests, paid) - paid) / requests_a_move_;
  if (!requests_paid_.compare_exchange_strong(paid, paid + moves * requests_a_move_)) return;  // another thread pays
  const auto more = static_cast<int>(std::min<std::uint64_t>(moves, kMostSaved));
  const int left = std::max(moves_left_.load(std::memory_order_relaxed), 0);
  moves_left_.store(std::min(left + more, kMostSaved), std::memory_order_relaxed);
}

Bytes IdleChunks::GiveBack() noexcept {
  const std::lock_guard lock(mutex_);
  // Freed blocks that another stream may still use hold their chunks: wait for those streams, once.
  if (engine_.Stats().pending_blocks > 0 && driver_.Synchronize().ok()) engine_.ReclaimPending();
  const std::vector<Arena::Range> chunks = WithdrawIdle();
  if (chunks.empty()) return 0;
  if (!driver_.Synchronize().ok()) {
    RestoreAll(chunks);
    return 0;
  }
  const Bytes released = Unmap(chunks);
  // A chunk that the driver would not unmap is still mapped, and stays lent: EnsureMapped then finds it there.
  lent_.insert(lent_.end(), chunks.begin(), chunks.end());
  counts_.lent_bytes += released;
  if (released > 0) ++counts_.times_given_back;
  return released;
}

Bytes IdleChunks::Release(std::span<const Arena::Range> idle) noexcept {
  const std::lock_guard lock(mutex_);
  return Unmap(idle);
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
  const bool rather_grows = may_take == MayTake::kMoreBeforeMoving && IsBetterGrown(missing.bytes);
  const bool may_move = !rather_grows && moves_left_.load(std::memory_order_relaxed) > 0;
  if (may_move && IsWorthMoving(offset, end)) MoveInto(offset, end, now);
  if (may_take == MayTake::kNoMore) return Missing(offset, end).bytes == 0;
  if (BackByMapping(offset, end)) return true;
  MoveInto(offset, end, now);  // the device is full
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
bool IdleChunks::IsWorthMoving(Offset offset, Offset end) const noexcept {
  const bool lent = offset < end_ && !Lacking(offset, std::min(end, end_)).empty();
  return lent || end - end_ >= plan_end_ / kLeastWorth;
}

// For a block that finds its slot still taken.
bool IdleChunks::IsBetterGrown(Bytes missing) const noexcept {
  const Bytes mapped = arena_.mapped_bytes();
  const Bytes idle = mapped - std::min(mapped, engine_.Stats().live_bytes);
  return std::max(missing, idle) < plan_end_ / kMuch;
}

// Idle chunks back what the range lacks, as far as there are any. Those that the device is done with, where there are
// enough of them; else one synchronisation does for all.
void IdleChunks::MoveInto(Offset offset, Offset end, std::uint64_t now) noexcept {
  ArenaListener* const listener = listener_.load(std::memory_order_acquire);
  if (listener != nullptr && !listener->MaySynchronize()) return;
  const Stopwatch moving(&counts_.move_nanoseconds);
  const Arena::Range range{offset, end - offset};
  engine_.ReclaimPending();
  std::vector<Arena::Move> moves = WithdrawFor(range, now, Take::kQuiet);
  if (moves.size() < Lacking(offset, end).size()) {
    Unmoved(moves);
    moves = WithdrawFor(range, now, Take::kIdle);
    if (moves.empty()) return;
    const Stopwatch waiting(&counts_.wait_nanoseconds);
    if (!driver_.Synchronize().ok()) return Unmoved(moves);
    ++counts_.times_waited;
  }
  if (moves.empty()) return;
  // Places that touch, one behind the other: one call makes them usable.
  std::sort(moves.begin(), moves.end(), [](const Arena::Move& a, const Arena::Move& b) { return a.to < b.to; });
  if (listener != nullptr) listener->BeforeArenaChange();
  const std::size_t moved = arena_.MoveChunks(moves);
  if (listener != nullptr) listener->AfterArenaChange();
  const Offset before = end_;
  for (std::size_t i = 0; i < moved; ++i) Moved(moves[i]);
  Unmoved(std::span(moves).subspan(moved));
  if (end_ > before) engine_.Extend(end_);
  moves_left_.fetch_sub(1, std::memory_order_relaxed);
  ++counts_.times_moved;
  counts_.moved_bytes += moved * arena_.chunk_bytes();
}

// Which chunks go where; they are withdrawn. What the range lacks comes first, then what is due soon.
std::vector<Arena::Move> IdleChunks::WithdrawFor(const Arena::Range& range, std::uint64_t now, Take take) noexcept {
  const std::vector<Chunk> movable = Movable(range, now);
  auto next = movable.begin();
  std::vector<Arena::Move> moves;
  const auto withdraw = [&](Offset to, std::uint64_t due) {
    for (; next != movable.end() && (moves.empty() || due == 0 || next->until_due > due); ++next) {
      if (!WithdrawChunk(next->offset, take)) continue;
      moves.push_back({(next++)->offset, to});
      return true;
    }
    return false;
  };
  const std::vector<Offset> lacking = Lacking(range.offset, range.offset + range.bytes);
  for (const Offset to : lacking) {
    if (!withdraw(to, 0)) return moves;
  }
  for (const Chunk& lent : DueSoon(now)) {
    if (std::find(lacking.begin(), lacking.end(), lent.offset) != lacking.end()) continue;
    if (!withdraw(lent.offset, lent.until_due)) return moves;
  }
  return moves;
}

bool IdleChunks::WithdrawChunk(Offset offset, Take take) noexcept {
  const Bytes chunk = arena_.chunk_bytes();
  if (!engine_.Withdraw(offset, chunk)) return false;
  // Only now: what is withdrawn is asked for by nobody any more, so that it stays quiet.
  if (take == Take::kIdle || engine_.IsQuiet(offset, chunk)) return true;
  engine_.Restore(offset, chunk);
  return false;
}

// Where chunks would go: lent ones in the range, and those that it lacks above all.
std::vector<Offset> IdleChunks::Lacking(Offset offset, Offset end) const noexcept {
  const Bytes chunk = arena_.chunk_bytes();
  std::vector<Offset> targets;
  for (const Arena::Range& lent : lent_) {
    if (lent.bytes == chunk && lent.offset < end && offset < lent.offset + lent.bytes) targets.push_back(lent.offset);
  }
  for (Offset at = end_; at < end && at + chunk <= arena_.reserved_bytes(); at += chunk) targets.push_back(at);
  return targets;
}

// Lent chunks, that which is due first in front.
std::vector<IdleChunks::Chunk> IdleChunks::DueSoon(std::uint64_t now) const noexcept {
  std::vector<Chunk> due;
  for (const Arena::Range& lent : lent_) {
    const std::uint64_t until = uses_.UntilDue(lent.offset / arena_.chunk_bytes(), now);
    if (lent.bytes == arena_.chunk_bytes() && until <= uses_.cycle_length() / kSoon)
      due.push_back({lent.offset, until});
  }
  std::sort(due.begin(), due.end(), [](const Chunk& a, const Chunk& b) { return a.until_due < b.until_due; });
  return due;
}

// Chunks outside a range, that which is due last in front; blocks may live in them.
std::vector<IdleChunks::Chunk> IdleChunks::Movable(const Arena::Range& but, std::uint64_t now) const noexcept {
  const Bytes bytes = arena_.chunk_bytes();
  std::vector<Chunk> movable;
  for (const Arena::Range& chunk : arena_.Chunks()) {
    const bool outside = chunk.offset >= but.offset + but.bytes || chunk.offset + chunk.bytes <= but.offset;
    if (chunk.bytes == bytes && outside) movable.push_back({chunk.offset, uses_.UntilDue(chunk.offset / bytes, now)});
  }
  std::sort(movable.begin(), movable.end(), [](const Chunk& a, const Chunk& b) {
    return a.until_due != b.until_due ? a.until_due > b.until_due : a.offset > b.offset;
  });
  return movable;
}

void IdleChunks::Moved(const Arena::Move& move) noexcept {
  const Bytes chunk = arena_.chunk_bytes();
  lent_.push_back({move.from, chunk});
  if (move.to == end_) {
    end_ += chunk;
    return;
  }
  std::erase_if(lent_, [&move](const Arena::Range& lent) { return lent.offset == move.to; });
  engine_.Restore(move.to, chunk);
}

// Their chunks are as before; one that the driver lost on the way is lent.
void IdleChunks::Unmoved(std::span<const Arena::Move> moves) noexcept {
  if (moves.empty()) return;
  const Bytes bytes = arena_.chunk_bytes();
  const std::vector<Arena::Range> mapped = arena_.Chunks();
  for (const Arena::Move& move : moves) {
    const bool there = std::any_of(mapped.begin(), mapped.end(),
                                   [&move](const Arena::Range& chunk) { return chunk.offset == move.from; });
    if (there) {
      engine_.Restore(move.from, bytes);
    } else {
      lent_.push_back({move.from, bytes});
      counts_.lent_bytes += bytes;
    }
  }
}

// What is not mapped of the chunks that lie in [offset, end), and of the room up to there. REQUIRES: mutex_ is held.
Arena::Range IdleChunks::Missing(Offset offset, Offset end) const noexcept {
  Arena::Range missing = end > end_ ? Arena::Range{end_, RoundUp(end, driver_.Granularity()) - end_} : Arena::Range{};
  for (const Arena::Range& chunk : lent_) {
    if (chunk.offset >= end || offset >= chunk.offset + chunk.bytes) continue;
    const Offset hi = std::max(missing.offset + missing.bytes, chunk.offset + chunk.bytes);
    missing.offset = missing.bytes == 0 ? chunk.offset : std::min(missing.offset, chunk.offset);
    missing.bytes = hi - missing.offset;
  }
  return missing;
}

// Chunks that were lent, and what lies above all. REQUIRES: mutex_ is held; the range cuts no chunk.
Bytes IdleChunks::UnmappedIn(const Arena::Range& range) const noexcept {
  const Offset end = range.offset + range.bytes;
  Bytes unmapped = end > end_ ? end - std::max(end_, range.offset) : 0;
  for (const Arena::Range& chunk : lent_) {
    if (range.offset <= chunk.offset && chunk.offset < end) unmapped += chunk.bytes;
  }
  return unmapped;
}

// All of the range, or nothing. REQUIRES: mutex_ is held.
bool IdleChunks::Map(const Arena::Range& range) noexcept {
  const Offset end = range.offset + range.bytes;
  ArenaListener* const listener = listener_.load(std::memory_order_acquire);
  if (end > arena_.reserved_bytes()) return false;
  if (listener != nullptr) {
    if (!listener->MayHold(arena_.mapped_bytes() + UnmappedIn(range))) return false;
    listener->BeforeArenaChange();
  }
  const Bytes before = arena_.mapped_bytes();
  const bool mapped = arena_.EnsureMapped(range.offset, range.bytes).ok();
  const Bytes grown = end > end_ ? end - end_ : 0;
  if (mapped) counts_.lent_bytes -= std::min(counts_.lent_bytes, arena_.mapped_bytes() - before - grown);
  if (listener != nullptr) listener->AfterArenaChange();
  if (!mapped) return false;
  most_.store(std::max(most_.load(std::memory_order_relaxed), arena_.mapped_bytes()), std::memory_order_relaxed);
  std::erase_if(lent_, [&](const Arena::Range& chunk) {
    if (chunk.offset >= end || range.offset >= chunk.offset + chunk.bytes) return false;
    engine_.Restore(chunk.offset, chunk.bytes);
    return true;
  });
  if (end <= end_) return true;
  end_ = end;
  engine_.Extend(end_);
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

void IdleChunks::RestoreAll(const std::vector<Arena::Range>& chunks) noexcept {
  for (const Arena::Range& chunk : chunks) engine_.Restore(chunk.offset, chunk.bytes);
}

}  // namespace stalloc
