// IdleChunks: what a served arena holds of the device: grows it where its plan leaves no room, and lends its idle parts
// to the rest of the process when the device is out of memory or the program empties its caches.
//
//   GiveBack:  withdraw every chunk without a block from the engine -> wait for the device -> unmap
//   Back:      a request needs such a chunk -> map it again, or room above all chunks -> map more;
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
// Before more is taken from the device for what fits into no gap, chunks without a block move: withdrawn, synchronised,
// unmapped, and mapped where they are needed. A block of 1000 MiB that finds its slot taken, while 7 GiB of chunks lie
// idle one here and two there, then costs no memory.
//
//       |##|  idle 1 |####|  2 |##|  3 |    end          |##|         |####|    |##|      | 1 | 2 | 3 | end
//                                                  =>           lent        lent    lent  ( the block )
//
// What an emptied cache took is mapped again chunk by chunk, as it is needed, for small slots too: a program that has
// emptied its caches finds no more held than what it asks for. As long as no more is held than before (Spare) it is
// room like any other: blocks that crowd where memory is mapped just then leave none for large ones later.
//
// Those go that a slot needs last (Belady's rule: the plan is known). A slot that needs a lent chunk after all gets one
// the same way, and one synchronisation does for all lent chunks that are needed soon, as long as others are needed
// later. Below what was held before, chunks are mapped and not moved: that costs no memory either. A move costs that
// synchronisation and, on an H200, 50 to 70 us for each chunk, whatever its size (bench/driver); what moves in one
// piece becomes larger chunks (arena.h, Note [Chunks of two sizes]). In as many requests as a planned iteration has a
// run makes no more than kMovesAnIteration on average, those of more than kChunksAMove chunks counting as several:
// iterations that are longer take longer, and may make more (a batch that grew from two micro-batches to six needs 30
// to 80). What iterations leave of these others may use, up to kMostSaved, and a run begins with so many: it is in its
// first iterations that blocks which the plan does not know find their places, and what the arena grows by then it
// keeps. megatron_moe_ep2_rank0 with 1 % of its requests inserted and dropped held 1.7 % more than was live when no
// iteration might make more than 24, and 0.3 % since. Frees that come late take up to 120 moves in the first iteration:
// where 96 had to do, megatron_vpp_rank0 with one in a hundred up to 512 requests late held 6.9 % more than was live at
// worst, and 2.2 % since.
//
// Where half of what is asked for lies idle, and a 128th of the arena (IsMuchIdle), an iteration may make kMostSaved
// moves more than it has: to grow would leave all of it for nothing. Recomputing runs of transformers' mixtral and
// deepseek, whose experts run one after the other and lose their tokens while they train, held 5.8 and 9.4 % more than
// was live when their moves were used up, 4 and 9 of it in one iteration; 2.1 and 0.8 % where a 128th had to lie idle
// beyond what is asked for (another run of mixtral grew 704 MiB for a slot, with 825 idle); and 0.4 and 0.8 % since.
//
// For less than kLeastWorth of the arena nobody waits, and kKeptForLarge moves are kept for more: a few small ones in
// each iteration spare a recomputing run with experts the gradients that come late, 0.2 % of the arena instead of 0.5
// %. Where the device is full a move is worth anything.
//
// In the middle of an iteration the host runs ahead of the device, and the synchronisation is what costs most: 19 ms a
// wait in a run with experts on an H200, against 2.8 ms a move. Most idle chunks have long been idle, and the events of
// earlier marks say so: where enough of these are found, nobody waits.
//
// Before the arena grows for a slot whose chunk is lent, the engine looks for mapped room beside the slots: towards an
// iteration's peak no chunk is idle, but gaps between blocks are (0.4 % of a recorded run with 16 experts).
//
// For a block that finds its slot still taken in a run that else keeps to its plan (kMoreBeforeMoving) the arena rather
// grows: what moves to it leaves holes that the next such block could have had. But kMuch of the arena is not grown for
// one such block: logits of 2 GiB whose slot another micro-batch's block still had made a run hold 5 % more than was
// live. And while kMuch of the arena lies idle, the holes are too small for what comes (blocks of 256 MiB in
// megatron_vpp_rank0, and 0.5 to 1.3 GiB of smaller holes at each growth): there chunks move, too.
// bench/replay/README.md has what late frees make that run hold. Half of kMuch took five times as many moves for one
// late free in a hundred. A run that hardly ever moves can afford it, though: as long as more than kKeptForLarge moves
// are left it is kMuchAtFirst (two pipeline ranks of Megatron on one H200: the arena of one grew by 256 MiB, 1 % of it,
// for a single block in thirty iterations).
//
// Growth goes in steps of an 8192nd of the plan's height (kSteps) or a page of the device: at most that much is held
// for nothing.
//
// After a chunk could not be mapped, no further one is tried before the next iteration: the device is full, and asking
// it costs more than the miss.
//
// Note [What comes again]
// No plan knows when a block above the plan's height is needed again. The best guess is: after as many requests as have
// passed since it was (a block of each layer, or of each step of a scan, comes again soon). What is due soon takes no
// chunks from there that would be missed before it is due. Where everything above the plan counted as never needed, a
// block of 16 MiB that found its chunk lent had 9 GiB moved back to slots, and the next logits of 2.2 GiB moved them
// again: transformers' bert, recomputing micro-batches of any length, used its moves up, and held 56 % more than was
// live, 19 % where it might move for longer; it holds 0.1 % since (bench/unseen).
//
// Note [Moves in every iteration]
// Where much has to move in every iteration, the number of chunks is what costs: sequences that became longer under a
// plan of the shorter ones need 2 GiB for their logits in one piece, of chunks that slots need before and after.
// MovePace sees that, and chunks that move are twice as large from then on, up to a kMovedParts-th of what is mapped
// (of the plan, which is less, where they begin), to a kMovedPartsAtPace-th at a pace of kPace. bench/unseen's
// var-curriculum-steps unmapped 4900 chunks an iteration, and 1500 since; over 117 replayed runs a quarter less, at
// 0.02 points of E. Larger ones, and where less moves, made some hold more than under expandable_segments: a 512th, or
// from 128 chunks an iteration on.
//
// Thread-safe; takes no lock of the engine over a driver call. Sizes are bytes.
#pragma once

#include <algorithm>
#include <array>
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
  IdleChunks(VmmDriver& driver, StreamFence* fence, Arena& arena, PlanEngine& engine, const DevicePlan& plan);

  // Returns every chunk in which no block lives to the device; bytes. Nothing while it cannot be waited for.
  Bytes GiveBack() noexcept;
  bool Back(Offset offset, Bytes bytes, std::uint64_t now, MayTake may_take) noexcept override;
  [[nodiscard]] Bytes Spare() const noexcept override {
    const Bytes most = most_.load(std::memory_order_relaxed);
    return most - std::min(most, arena_.mapped_bytes());
  }
  // What could not be mapped may be tried again: an iteration begins, a cache was emptied, a limit is another. The
  // requests since the last call earn moves.
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
  // A place that chunks moved to, at a request of the run.
  struct Wanted {
    Arena::Range range;
    std::uint64_t request = 0;
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
  [[nodiscard]] bool IsBetterGrown(Bytes missing, Bytes much) const noexcept;
  [[nodiscard]] bool IsMuchIdle(Bytes missing) const noexcept;
  [[nodiscard]] Bytes IdleBytes() const noexcept;  // mapped, and of no block
  [[nodiscard]] bool IsWorthMoving(Offset offset, Offset end) const noexcept;
  void MoveInto(Offset offset, Offset end, std::uint64_t now, bool may_wait) noexcept;
  void Move(const Moves& moves) noexcept;
  void MoveSome() noexcept;
  void MoveLargerChunks(std::size_t pace) noexcept;
  [[nodiscard]] std::uint64_t UntilDue(const Arena::Range& range, std::uint64_t now) const noexcept;
  [[nodiscard]] std::vector<Part> DueSoon(std::uint64_t now) const noexcept;
  [[nodiscard]] std::vector<Part> Movable(const Arena::Range& but, std::uint64_t now) const noexcept;
  // Chunks that were last used before the stamp `done`.
  [[nodiscard]] Moves WithdrawFor(const Arena::Range& range, std::uint64_t now, std::uint64_t done) noexcept;
  [[nodiscard]] std::uint64_t SinceWanted(const Arena::Range& chunk, std::uint64_t request) const noexcept;
  [[nodiscard]] bool WithdrawChunk(const Arena::Range& chunk, std::uint64_t done) noexcept;
  void RestoreBacked(std::span<const Arena::Range> ranges) noexcept;
  // REQUIRES: the device is done with it.
  Bytes Unmap(std::span<const Arena::Range> idle) noexcept;
  [[nodiscard]] std::vector<Arena::Range> WithdrawIdle() noexcept;

  VmmDriver& driver_;
  Arena& arena_;
  PlanEngine& engine_;
  DeviceClock clock_;
  const Bytes step_;  // of growth
  std::atomic<ArenaListener*> listener_{nullptr};
  static constexpr Bytes kNothingFailed = ~Bytes{0};
  static constexpr int kMovesAnIteration = 24;
  static constexpr int kMostSaved = 8 * kMovesAnIteration;
  static constexpr int kKeptForLarge = 6 * kMovesAnIteration;
  static constexpr std::size_t kChunksAMove = 128;  // one that moves more counts as several
  static constexpr Bytes kLeastWorth = 512;         // a part of the arena
  static constexpr Bytes kMuch = 64;                // likewise
  static constexpr Bytes kMuchAtFirst = 128;        // likewise, while many moves are left
  static constexpr std::size_t kPace = 1024;        // chunks moved in an iteration
  static constexpr Bytes kMovedPartsAtPace = 1024;  // instead of kMovedParts, where more are
  std::atomic<int> moves_left_{kMostSaved};
  std::atomic<bool> moves_;                      // a chunk has moved, or will
  const Offset plan_end_;                        // above it there are no slots
  const SlotUses uses_;                          // of chunks
  const std::uint64_t requests_a_move_;          // so many requests of the run earn one
  std::atomic<std::uint64_t> requests_paid_{0};  // for which moves have been added
  std::atomic<Bytes> too_much_{kNothingFailed};  // so much could not be mapped in this iteration; the driver is dear
  mutable std::mutex mutex_;
  Offset end_;               // of what was mapped at any time: holes below are withdrawn; guarded by mutex_
  std::atomic<Bytes> most_;  // that was mapped at a time; written under mutex_
  MovePace pace_;            // guarded by mutex_
  Counts counts_;
  std::array<Wanted, 64> wanted_{};  // of the latest moves
  bool moves_at_marks_ = false;
  std::minstd_rand random_;  // what moves then
};

}  // namespace stalloc
