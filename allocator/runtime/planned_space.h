// PlannedSpace: an arena and the engine that serves it, from mapping to giving up; with a plan, or before there is one.
//
//   serving  --give up, or retire-->  idle chunks go back at each iteration  -->  nothing mapped
//
// Thread-safe. Sizes are bytes.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "allocator/arena/arena.h"
#include "allocator/backing/idle_chunks.h"
#include "allocator/base/mutex.h"
#include "allocator/engine/plan_engine.h"
#include "allocator/runtime/graph_lending.h"
#include "allocator/runtime/plan_fit.h"
#include "allocator/runtime/resemblance.h"
#include "allocator/runtime/varying_sizes.h"

namespace stalloc {

class PlannedSpace {
 public:
  struct Options {
    bool dynamic = false;         // what has no slot is served, too, and the arena grows for it
    bool moves_at_marks = false;  // for tests: IdleChunks::MoveAtMarks
    bool maps_late = false;       // memory comes as requests need it, not all of it at first
    bool exact = false;           // of no plan: what lives fits although the device has hardly more
    Rules rules = {};
    Bytes keep_free = FreeMemory::kDefaultKeep;  // of the device, for others
    DeviceIndex device = 0;
    const GraphPools* graphs = nullptr;  // not owned; null: graphs' pools are kept apart
    GraphPoison* poison = nullptr;       // not owned; null: what is lent of them is not filled
  };
  // Null when the arena cannot be mapped: `why` then has what was needed and what is free. `plan` is copied; an empty
  // one makes an arena whose requests find space by best fit, and of which nothing is mapped at first.
  static std::unique_ptr<PlannedSpace> Create(VmmDriver& driver, StreamFence* fence, const DevicePlan& plan,
                                              Options options, std::string* why);

  [[nodiscard]] PlanEngine& engine() noexcept { return *engine_; }
  [[nodiscard]] const PlanEngine& engine() const noexcept { return *engine_; }
  [[nodiscard]] const Arena& arena() const noexcept { return *arena_; }
  // Iterations after a plan was given up: what lived for one or two only is over then.
  static constexpr int kLeavesOverAfter = 2;
  // In the arena or, of a size too small for a place without a slot, by design elsewhere.
  [[nodiscard]] bool IsPlaced(Bytes requested, const PlanEngine::Allocation& allocation) const noexcept {
    return allocation.pointer != nullptr || requested < least_dynamic_;
  }
  // For a size that is no surprise.
  [[nodiscard]] bool IsKnownSize(Bytes requested, const PlanEngine::Allocation& allocation) const noexcept {
    return allocation.reason != MissReason::kUnknownSize || varying_.Contain(requested);
  }
  // Smaller requests without a slot are upstream's. 0: none are.
  [[nodiscard]] Bytes least_dynamic() const noexcept { return least_dynamic_; }
  DriverStatus RefreshAccess() noexcept { return arena_->RefreshAccess(); }
  [[nodiscard]] Result<Arena::Exported> Export(Offset offset, Bytes bytes) { return arena_->Export(offset, bytes); }
  void DropDescriptors() noexcept { arena_->DropDescriptors(); }

  // One iteration, as it is judged.
  struct Iteration {
    Resemblance::Totals totals;
    IterationPeaks peaks;      // without what no plan could change
    Bytes native = 0;          // what PyTorch's allocator would hold for the same; 0: not known
    Bytes other = 0;           // what would be held without the plan: that, or what lives; 0: not known
    Bytes lived = 0;           // the most, since caches were emptied; 0: not known
    bool replaceable = false;  // another plan can take its place
  };
  // At each iteration's begin. Gives the plan up when the run does not resemble it and fares no better with it, or has
  // long held more than without it; gives back what has long been idle where more is held than lives. One warning for
  // what is given up, or another where the plan is kept, or waits for another one. True when it gave up now.
  bool Judge(const Iteration& iteration) noexcept;
  [[nodiscard]] bool gave_up() const noexcept { return gave_up_.load(std::memory_order_relaxed); }
  // It did so in one of the last iterations.
  [[nodiscard]] bool drains() const noexcept {
    return gave_up() && given_up_for_.load(std::memory_order_relaxed) < kLeavesOverAfter;
  }
  // The run requests other sizes than the plan has, or has long needed less than it holds, whether it was given up for
  // that or not.
  [[nodiscard]] bool departed() const noexcept { return departed_.load(std::memory_order_relaxed); }
  // The run does not resemble the plan.
  [[nodiscard]] bool unlike() const noexcept { return unlike_.load(std::memory_order_relaxed); }
  // The last iteration held about what lived.
  [[nodiscard]] bool fits() const noexcept { return fits_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool has_plan() const noexcept { return has_plan_; }
  // The plan serves nobody from now on, and no other space does instead. What lives here stays where it is.
  void GiveUp() noexcept {
    engine_->DropPlan();
    live_blocks_.store(kUnknown, std::memory_order_relaxed);  // GiveBackEnded tries in any case
    gave_up_.store(true, std::memory_order_relaxed);
  }
  // Another space serves from now on. What lives here stays where it is.
  void Retire() noexcept { engine_->Deactivate(); }

  // Mapped, and no live block's.
  [[nodiscard]] Bytes IdleBytes() const noexcept;
  // Returns idle chunks, also while the plan is served (idle_chunks.h); bytes.
  Bytes GiveBackIdle() noexcept { return chunks_->GiveBack(); }
  // The same; nothing where as many blocks live as the last time.
  Bytes GiveBackEnded() noexcept;
  // The same for a space that serves no more, before another one maps: nothing where hardly more is idle than the last
  // time, so that there are few waits for the device.
  Bytes GiveBackForAnother() noexcept;
  // idle_chunks.h
  void MapAhead() noexcept { chunks_->MapAhead(); }
  void TryAgain() noexcept { chunks_->TryAgain(); }
  void OnMark() noexcept { chunks_->OnMark(); }
  [[nodiscard]] const DevicePlan& plan() const noexcept { return plan_; }
  [[nodiscard]] const IdleChunks& chunks() const noexcept { return *chunks_; }
  [[nodiscard]] IdleChunks& chunks() noexcept { return *chunks_; }
  // Null: the plan has no slots in graphs' pools, or these are kept apart.
  [[nodiscard]] GraphLending* lending() const noexcept { return lending_.get(); }
  void SetListener(ArenaListener* listener) noexcept { chunks_->SetListener(listener); }

 private:
  explicit PlannedSpace(const DevicePlan& plan);

  bool MapArena(VmmDriver& driver, const Options& chosen, std::string* why);
  void Serve(VmmDriver& driver, StreamFence* fence, const Options& chosen);
  enum class Finding : std::uint8_t {
    kFits,
    kServedAnyway,  // it does not resemble the plan, whose arena serves it
    kNeedsLess,     // than the plan holds
    kUnlike,        // these two: the plan is given up
    kHoldsMore,     // than without the plan
  };
  bool LeaveOver() noexcept;
  // REQUIRE: mutex_ is held.
  [[nodiscard]] Finding Look(const Iteration& iteration) noexcept STALLOC_REQUIRES(mutex_);
  void Report(Finding finding, const Iteration& iteration) const noexcept STALLOC_REQUIRES(mutex_);
  void GiveBackLongIdle() noexcept STALLOC_REQUIRES(mutex_);

  const DevicePlan plan_;
  const bool has_plan_;
  const VaryingSizes varying_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<PlanEngine> engine_;  // after arena_: destroyed first
  std::unique_ptr<IdleChunks> chunks_;
  std::unique_ptr<GraphLending> lending_;
  Bytes least_dynamic_ = 0;
  std::atomic<bool> gave_up_{false};
  std::atomic<int> given_up_for_{0};  // iterations
  std::atomic<bool> departed_{false};
  std::atomic<bool> unlike_{false};
  std::atomic<bool> fits_{true};
  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
  std::atomic<std::uint64_t> live_blocks_{kUnknown};  // when what is idle was last given back
  std::atomic<Bytes> left_idle_{0};                   // by the last GiveBackForAnother
  Mutex mutex_;
  Resemblance resemblance_ STALLOC_GUARDED_BY(mutex_);       // guarded by mutex_
  std::optional<PlanFit> fit_ STALLOC_GUARDED_BY(mutex_);    // the same; none before the arena is there
  std::uint64_t idle_since_ STALLOC_GUARDED_BY(mutex_) = 0;  // a stamp of the engine's; the same
};

}  // namespace stalloc
