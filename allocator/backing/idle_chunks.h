// IdleChunks: what a served arena holds of the device: grows it where its plan leaves no room, and lends its idle parts
// to the rest of the process when the device is out of memory or the program empties its caches.
//
//   GiveBack:  withdraw every chunk without a block from the engine -> wait for the device -> unmap
//   Back:      a request needs such a chunk -> map it again, move idle ones there, or map more above all chunks;
//              else the request is served elsewhere (never an error)
//
// Note [Behind the device]
// A chunk leaves its address only once the engine places nothing there any more and the whole device, not some of its
// streams, is done with all that it was given until then, or until the last block there was freed.
// The first is Withdraw; the second a wait for the device that begins afterwards, or an event of the whole device that
// was recorded after that free (device_clock.h). Neither asks which threads and streams there are. Both are errors
// while a stream is captured: then the chunk stays, or only what such an event showed before may go.
//
// Note [Moving chunks]
//       |##|  idle 1 |####|  2 |##|  3 |    end          |##|         |####|    |##|      | 1 | 2 | 3 | end
//                                                  =>           lent        lent    lent  ( the block )
//
// Idle chunks move before more is taken from the device; a slot that needs a lent one gets another the same way. Those
// go that a slot needs last (Belady's rule: the plan is known), and one wait does for all lent chunks that are due
// soon. Below what was held before (Spare) chunks are mapped and not moved: that costs no memory.
//
// The host runs ahead of the device, so waiting for it is what costs most. Chunks that have long been idle need no
// wait. For less than a kLeastWorth-th of the arena nobody waits, unless the device is full. An iteration makes
// kMostMoves moves at most (move_pace.h), and grows for the rest.
//
// Growth goes in steps of an 8192nd of the plan's height or a page of the device: at most that much is held for
// nothing. After a chunk could not be mapped no larger one is tried before the next iteration.
//
// Note [Moves in every iteration]
// A move costs by the chunk, whatever its size. Where much moves in every iteration (MovePace tells), chunks that move
// are twice as large from then on, up to a kMovedParts-th of what is mapped: fewer calls for memory that is lost in
// parts of chunks.
//
// Thread-safe; takes no lock of the engine over a driver call. Sizes are bytes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <random>
#include <span>
#include <vector>

#include "allocator/arena/arena.h"
#include "allocator/backing/device_clock.h"
#include "allocator/backing/move_pace.h"
#include "allocator/engine/plan_engine.h"
#include "allocator/engine/slot_uses.h"

namespace stalloc {

// Told around changes of what the arena holds. Called with no lock of the engine held, one change at a time.
class ArenaListener {
 public:
  virtual ~ArenaListener() = default;
  virtual void BeforeArenaChange() noexcept = 0;
  virtual void AfterArenaChange() noexcept = 0;
  // The arena may hold so much: asked before more of it is mapped.
  [[nodiscard]] virtual bool MayHold(Bytes /*arena_bytes*/) noexcept { return true; }
};

class IdleChunks final : public ArenaBacking {
 public:
  struct Counts {
    Bytes lent_bytes = 0;                // given back to the device and not mapped again, now
    std::uint64_t times_given_back = 0;  // calls of GiveBack that freed something
    std::uint64_t times_mapped_again = 0;
    std::uint64_t times_not_mapped = 0;  // a request was not served, since its chunk could not be mapped
    std::uint64_t times_grown = 0;
    std::uint64_t times_moved = 0;   // requests that chunks were moved for
    std::uint64_t times_waited = 0;  // of these, the device was waited for
    Bytes moved_bytes = 0;
    std::int64_t map_nanoseconds = 0;   // of the host, for what is counted as grown or mapped again
    std::int64_t wait_nanoseconds = 0;  // of the host, for the device
    std::int64_t move_nanoseconds = 0;  // of the host, in moves; waiting counts
  };

  // All of them outlive this. `fence` may be null: then chunks never move without a wait.
  IdleChunks(VmmDriver& driver, StreamFence* fence, Arena& arena, PlanEngine& engine, const DevicePlan& plan,
             const Rules& rules = {});

  // Returns every chunk in which no block lives to the device; bytes. Nothing while it cannot be waited for.
  Bytes GiveBack() noexcept;
  bool Back(Offset offset, Bytes bytes, std::uint64_t now, MayTake may_take) noexcept override;
  [[nodiscard]] Bytes Spare() const noexcept override {
    const Bytes most = most_.load(std::memory_order_relaxed);
    return most - std::min(most, arena_.mapped_bytes());
  }
  // What could not be mapped may be tried again: an iteration begins, a cache was emptied, a limit is another.
  void TryAgain() noexcept;
  // A mark of the run. Where chunks move, moves will want to know what the device was done with.
  void OnMark() noexcept;
  // For tests: from now on some of the memory that may move does so at every mark, wherever to. Call before others.
  void MoveAtMarks() noexcept { moves_ = moves_at_marks_ = true; }

  void SetListener(ArenaListener* listener) noexcept { listener_.store(listener, std::memory_order_release); }
  [[nodiscard]] Counts GetCounts() const noexcept;

 private:
  // May move, or the place of one that may.
  struct Part {
    Arena::Range range;
    std::uint64_t until_due = 0;  // requests until a slot in it is
  };
  // What backs what.
  struct Moves {
    std::vector<Arena::Range> from;  // withdrawn
    std::vector<Arena::Range> to;
  };

  [[nodiscard]] std::vector<Arena::Range> Lacking(Offset offset, Offset end) const noexcept;
  [[nodiscard]] Arena::Range Missing(Offset offset, Offset end) const noexcept;
  [[nodiscard]] bool Map(const Arena::Range& range) noexcept;
  [[nodiscard]] bool BackByMapping(Offset offset, Offset end) noexcept;
  [[nodiscard]] bool IsWorthWaiting(Offset offset, Offset end) const noexcept;
  void MoveInto(Offset offset, Offset end, std::uint64_t now, bool may_wait) noexcept;
  void Move(const Moves& moves) noexcept;
  void MoveSome() noexcept;
  void MoveLargerChunks() noexcept;
  [[nodiscard]] std::uint64_t UntilDue(const Arena::Range& range, std::uint64_t now) const noexcept;
  [[nodiscard]] std::vector<Part> DueSoon(std::uint64_t now) const noexcept;
  [[nodiscard]] std::vector<Part> Movable(const Arena::Range& but, std::uint64_t now) const noexcept;
  // Chunks that were last used before the stamp `done`.
  [[nodiscard]] Moves WithdrawFor(const Arena::Range& range, std::uint64_t now, std::uint64_t done) noexcept;
  [[nodiscard]] bool WithdrawChunk(const Arena::Range& chunk, std::uint64_t done) noexcept;
  void RestoreBacked(std::span<const Arena::Range> ranges) noexcept;
  // REQUIRES: the device is done with it.
  Bytes Unmap(std::span<const Arena::Range> idle) noexcept;
  [[nodiscard]] std::vector<Arena::Range> WithdrawIdle() noexcept;

  VmmDriver& driver_;
  Arena& arena_;
  PlanEngine& engine_;
  const Rules rules_;
  DeviceClock clock_;
  const Bytes step_;  // of growth
  std::atomic<ArenaListener*> listener_{nullptr};
  static constexpr Bytes kNothingFailed = ~Bytes{0};
  static constexpr Bytes kLeastWorth = 512;      // a part of the arena
  std::atomic<bool> moves_;                      // a chunk has moved, or will
  const Offset plan_end_;                        // above it there are no slots
  const SlotUses uses_;                          // of chunks
  std::atomic<Bytes> too_much_{kNothingFailed};  // so much could not be mapped in this iteration; the driver is dear
  mutable std::mutex mutex_;
  Offset end_;               // of what was mapped at any time: holes below are withdrawn; guarded by mutex_
  std::atomic<Bytes> most_;  // that was mapped at a time; written under mutex_
  MovePace pace_;            // guarded by mutex_
  Counts counts_;
  bool moves_at_marks_ = false;
  std::minstd_rand random_;  // what moves then
};

}  // namespace stalloc
