// IdleChunks: what a served arena holds of the device (README): grows it where its plan leaves no space, and lends its
// idle parts to the rest of the process when the device is out of memory or the program empties its caches.
//
// Thread-safe; noexcept, though it takes heap memory (out of that the process ends); takes no lock of the engine over a
// driver call. Sizes are bytes.
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
#include "allocator/backing/free_memory.h"
#include "allocator/backing/tuning.h"
#include "allocator/base/mutex.h"
#include "allocator/engine/place/idle_gaps.h"
#include "allocator/engine/plan_engine.h"

namespace stalloc {

// Notified around changes of what the arena holds. Called with no lock of the engine held, one change at a time.
class ArenaListener {
 public:
  virtual ~ArenaListener() = default;
  virtual void BeforeArenaChange() noexcept = 0;
  virtual void AfterArenaChange() noexcept = 0;
  // Whether the arena may hold this much more: called before it is mapped.
  [[nodiscard]] virtual bool MayHold(Bytes /*more*/) noexcept { return true; }
};

class IdleChunks final : public ArenaBacking {
 public:
  static constexpr std::uint64_t kNow = ~std::uint64_t{0};

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

    void Add(const Counts& other) noexcept;
  };

  // All of them outlive this. `fence` may be null: then chunks never move without a wait. What is not mapped of the
  // plan's height is withdrawn already, and counts as given back.
  // `keep_free`: bytes of the device that stay free for others (free_memory.h).
  IdleChunks(VmmDriver& driver, StreamFence* fence, Arena& arena, PlanEngine& engine, const DevicePlan& plan,
             Bytes keep_free = FreeMemory::kDefaultKeep);

  // Returns every chunk to the device in which no block lives, nor was freed at the stamp `since` or later; bytes.
  // Nothing while it cannot be waited for.
  Bytes GiveBack(std::uint64_t since = kNow) noexcept;
  // The same, where nobody maps, moves or gives back here meanwhile: from another arena's backing.
  Bytes TryGiveBack() noexcept;
  bool EnsureBacked(Offset offset, Bytes bytes, std::uint64_t now, Growth growth) noexcept override;
  [[nodiscard]] Bytes Spare() const noexcept override {
    const Bytes most = most_.load(std::memory_order_relaxed);
    return most - std::min(most, arena_.mapped_bytes());
  }
  [[nodiscard]] bool MayGrow(Bytes more, Bytes peak_live) const noexcept override {
    return free_.is_free() && arena_.mapped_bytes() + more <= GrowsUpTo(peak_live);
  }
  // The device has memory that nobody lacks, as far as is known.
  [[nodiscard]] bool is_card_free() const noexcept { return free_.is_free(); }
  // The device was full at some time.
  [[nodiscard]] bool was_card_full() const noexcept {
    return was_full_.load(std::memory_order_relaxed) || !is_card_free();
  }
  // The card was full a few iterations ago: its memory is not yet where the plan has it, and what that took goes back
  // only when it has been idle for long.
  [[nodiscard]] bool settles() const noexcept { return is_card_free() && settles_.load(std::memory_order_relaxed) > 0; }
  // What the arena may have grown to by itself on a free card, for what has lived in it; 0: nothing.
  [[nodiscard]] Bytes MayHaveGrownTo() const noexcept {
    if (!is_card_free()) return 0;
    const Bytes peak_live = engine_.Stats().peak_live_bytes;
    return std::min(GrowsUpTo(peak_live), Times(peak_live, growth_));
  }
  // What an arena may hold on a free card, over what lives.
  [[nodiscard]] double growth() const noexcept { return growth_; }
  // Others took so much of the device: what went back for that is not to come again for want of a better place.
  void TakenByOthers(Bytes bytes) noexcept;
  // What could not be mapped may be tried again: a cache was emptied, a limit is another.
  void TryAgain() noexcept;
  // The same; on a full card chunks become small; of what is mapped beyond the bound of MayGrow a few go back, which
  // iterations left idle and the device is done with.
  void BeginIteration() noexcept;
  // Nothing of the plan's height is mapped yet. On a free card all of it is now; what is not comes with the requests.
  void MapAhead() noexcept;
  // A mark of the run. Where chunks move, moves will want to know what the device was done with.
  void OnMark() noexcept;
  // For tests: from now on some of the memory that may move does so at every mark, wherever to. Call before others.
  void MoveAtMarks() noexcept { moves_ = moves_at_marks_ = true; }

  // For allocator/sleep. As long as the lock is held nobody else maps, moves or gives back; the others REQUIRE it.
  [[nodiscard]] std::unique_lock<Mutex> Hold() noexcept STALLOC_NO_THREAD_SAFETY_ANALYSIS {
    return std::unique_lock(mutex_);
  }
  // The device was given copies, also into blocks that were freed before that: it is not done with any chunk before it
  // is done with what it was given until now.
  void NoteCopies() noexcept;
  // Unmaps whole chunks, which stay withdrawn; bytes. REQUIRES: they are, and the device is done with them. What the
  // driver refuses stays mapped.
  Bytes Release(std::span<const Arena::Range> chunks) noexcept;
  // Maps them anew, each as one chunk, still withdrawn; or changes nothing.
  DriverStatus MapAgain(std::span<const Arena::Range> chunks) noexcept;
  // What is mapped of withdrawn ranges may be used.
  void RestoreBacked(std::span<const Arena::Range> ranges) noexcept;

  // arena.h, Note [Borrowed memory]: what is borrowed there becomes own memory; or own memory there goes back, which no
  // block uses any more. REQUIRE: as Arena's.
  DriverStatus OwnBorrowed(std::span<const Arena::Range> ranges) noexcept;
  void ReleaseOwned(const Arena::Range& range) noexcept;
  // For own memory that is never borrowed there: what is not mapped of it is withdrawn from now on, and EnsureBacked
  // maps it. False where that cannot be. REQUIRES: no request is served there meanwhile.
  bool WithdrawOwned(const Arena::Range& range) noexcept;

  void SetListener(ArenaListener* listener) noexcept { listener_.store(listener, std::memory_order_release); }
  [[nodiscard]] Counts GetCounts() const noexcept;

 private:
  // May move.
  struct Part {
    Arena::Range range;
    std::uint64_t until_due = 0;  // requests until a slot in it is
  };
  // What backs what.
  struct Moves {
    std::vector<Arena::Range> from;  // withdrawn
    std::vector<Arena::Range> to;
  };

  // All of them REQUIRE: mutex_ is held.
  Bytes GiveBackIdle(std::vector<Arena::Range> chunks, std::uint64_t since) noexcept STALLOC_REQUIRES(mutex_);
  template <typename Change>
  auto ChangeArena(Change&& change) noexcept STALLOC_REQUIRES(mutex_);  // the listener is notified of it
  [[nodiscard]] std::vector<Arena::Range> Lacking(const Arena::Range& range) const noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] Arena::Range Missing(const Arena::Range& range) const noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] bool Map(const Arena::Range& range) noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] bool MapOwned(Arena::Range range, std::uint64_t now) noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] bool MapHoles(const Arena::Range& range) noexcept STALLOC_REQUIRES(mutex_);
  void GiveBackUnused(std::uint64_t now) noexcept STALLOC_REQUIRES(mutex_);
  // What PyTorch would hold of the traced run; where more lives than there, not as much more as was lost there.
  [[nodiscard]] Bytes GrowsUpTo(Bytes peak_live) const noexcept {
    return std::max(Times(std::max(peak_live, traced_peak_), std::min(growth_, tuning::kLeastGrowth)), others_);
  }
  // Up to there what the device has is spent before the time of the driver's calls, unless it is for others, or all
  // that is left for the driver, without which kernels cannot be loaded.
  [[nodiscard]] bool MayGrowOnFullCard(Bytes more) const noexcept;
  [[nodiscard]] static Bytes Times(Bytes bytes, double factor) noexcept {
    return static_cast<Bytes>(static_cast<double>(bytes) * factor);
  }
  [[nodiscard]] bool Grow(const Arena::Range& range, Bytes missing) noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] bool MayMove() const noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] bool MayHaveToMove() const noexcept;      // no lock is needed
  [[nodiscard]] bool MayHold(Bytes more) const noexcept;  // no lock is needed
  void ReleaseSurplus() noexcept STALLOC_REQUIRES(mutex_);
  // README, Chunks of a plan's arena: the card is full. True when memory went back for that.
  bool UseSmallChunks() noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] bool BackBySpare(const Arena::Range& range) noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] bool BackByMapping(const Arena::Range& range) noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] std::uint64_t Done() noexcept
      STALLOC_REQUIRES(mutex_);  // stamp: what the device is known to be done with
  void MoveInto(const Arena::Range& range, std::uint64_t now, bool may_wait) noexcept STALLOC_REQUIRES(mutex_);
  void Move(const Moves& moves) noexcept STALLOC_REQUIRES(mutex_);
  void MoveSome() noexcept;
  [[nodiscard]] std::uint64_t UntilDue(const Arena::Range& range, std::uint64_t now) const noexcept
      STALLOC_REQUIRES(mutex_);
  [[nodiscard]] std::vector<Part> Movable(const Arena::Range& but, std::uint64_t now) const noexcept
      STALLOC_REQUIRES(mutex_);
  // Chunks that were last used before the stamp `done`.
  [[nodiscard]] Moves WithdrawFor(const Arena::Range& range, std::uint64_t now, std::uint64_t done) noexcept
      STALLOC_REQUIRES(mutex_);
  [[nodiscard]] bool WithdrawChunk(const Arena::Range& chunk, std::uint64_t done) noexcept STALLOC_REQUIRES(mutex_);

  VmmDriver& driver_;
  Arena& arena_;
  PlanEngine& engine_;
  DeviceClock clock_;
  std::uint64_t waited_ STALLOC_GUARDED_BY(mutex_) =
      0;  // stamp: when the device was last waited for; guarded by mutex_
  std::uint64_t copied_ STALLOC_GUARDED_BY(mutex_) = 0;  // stamp: of NoteCopies
  const std::int64_t begin_;                             // nanoseconds
  std::int64_t moved_while_full_ STALLOC_GUARDED_BY(mutex_) =
      0;                     // nanoseconds in moves, up to the last iteration on a full card
  const Bytes traced_peak_;  // live
  const double growth_;      // of the live peak, up to which the arena grows before it reuses what it has
  const Bytes others_;       // what PyTorch would hold of the traced run; 0: not known
  const Offset plan_end_;    // above it there are no slots
  std::atomic<ArenaListener*> listener_{nullptr};
  static constexpr Bytes kNothingFailed = ~Bytes{0};
  std::atomic<bool> moves_;                      // a chunk has moved, or will
  const Bytes small_;                            // a chunk, on a full card
  bool has_large_ STALLOC_GUARDED_BY(mutex_);    // chunks, since the card was free
  const SlotUses uses_;                          // of small chunks
  std::atomic<Bytes> too_much_{kNothingFailed};  // so much could not be mapped in this iteration; the driver is dear
  mutable Mutex mutex_;
  FreeMemory free_;  // guarded by mutex_, but for is_free()
  std::array<std::uint64_t, tuning::kIdleIterations> begins_
      STALLOC_GUARDED_BY(mutex_){};                        // stamps of the latest iterations; guarded by mutex_
  std::size_t iterations_ STALLOC_GUARDED_BY(mutex_) = 0;  // guarded by mutex_
  std::atomic<std::size_t> settles_{0};                    // for so many iterations; written under mutex_
  std::atomic<bool> was_full_{false};                      // set under mutex_
  Offset end_
      STALLOC_GUARDED_BY(mutex_);  // of what was mapped at any time: holes below are withdrawn; guarded by mutex_
  std::atomic<Bytes> most_;        // that was mapped at a time; written under mutex_
  Counts counts_ STALLOC_GUARDED_BY(mutex_);
  bool moves_at_marks_ = false;                         // set before others call
  std::minstd_rand random_ STALLOC_GUARDED_BY(mutex_);  // what moves then
};

}  // namespace stalloc
