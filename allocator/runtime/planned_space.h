// PlannedSpace: an arena and the engine that serves it, from mapping to giving up; with a plan, or before there is one.
//
//   serving  --give up, or retire-->  idle chunks go back at each iteration  -->  nothing mapped
//
// Thread-safe. Sizes are bytes.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "allocator/arena/arena.h"
#include "allocator/backing/idle_chunks.h"
#include "allocator/engine/plan_engine.h"
#include "allocator/runtime/resemblance.h"
#include "allocator/runtime/varying_sizes.h"

namespace stalloc {

class PlannedSpace {
 public:
  struct Options {
    bool dynamic = false;         // what has no slot is served, too, and the arena grows for it
    bool moves_at_marks = false;  // for tests: IdleChunks::MoveAtMarks
    bool maps_late = false;       // memory comes as requests need it, not all of it at first
    Rules rules = {};
  };
  // Null when the arena cannot be mapped: `why` then has what was needed and what is free. `plan` is copied; an empty
  // one makes an arena whose requests find room by best fit, and of which nothing is mapped at first.
  static std::unique_ptr<PlannedSpace> Create(VmmDriver& driver, StreamFence* fence, const DevicePlan& plan,
                                              Options options, std::string* why);

  [[nodiscard]] PlanEngine& engine() noexcept { return *engine_; }
  [[nodiscard]] const PlanEngine& engine() const noexcept { return *engine_; }
  [[nodiscard]] const Arena& arena() const noexcept { return *arena_; }
  // In the arena or, of a size too small for a place beside the slots, by design elsewhere.
  [[nodiscard]] bool IsPlaced(Bytes requested, const PlanEngine::Allocation& allocation) const noexcept {
    return allocation.pointer != nullptr || requested < least_dynamic_;
  }
  // Of a size that is no surprise.
  [[nodiscard]] bool IsKnownSize(Bytes requested, const PlanEngine::Allocation& allocation) const noexcept {
    return allocation.reason != MissReason::kUnknownSize || varying_.Contain(requested);
  }
  // Smaller requests without a slot are upstream's. 0: none are.
  [[nodiscard]] Bytes least_dynamic() const noexcept { return least_dynamic_; }
  DriverStatus RefreshAccess() noexcept { return arena_->RefreshAccess(); }
  [[nodiscard]] Result<Arena::Exported> Export(Offset offset, Bytes bytes) { return arena_->Export(offset, bytes); }
  void DropDescriptors() noexcept { arena_->DropDescriptors(); }

  // At each iteration's begin: gives the plan up when the run does not resemble it and fares no better with it (one
  // warning; one, too, where it keeps it). `fills`: the run needs about what it holds. True when it gave up now.
  bool Judge(const Resemblance::Totals& totals, bool fills) noexcept;
  [[nodiscard]] bool gave_up() const noexcept { return gave_up_.load(std::memory_order_relaxed); }
  // The run asks for other sizes than the plan has, whether it was given up for that or not.
  [[nodiscard]] bool departed() const noexcept { return departed_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool has_plan() const noexcept { return has_plan_; }
  // Another space serves from now on. What lives here stays where it is.
  void Retire() noexcept { engine_->Deactivate(); }

  // Returns idle chunks, also while the plan is served (idle_chunks.h); bytes.
  Bytes GiveBackIdle() noexcept { return chunks_->GiveBack(); }
  // The same; nothing where as many blocks live as the last time.
  Bytes GiveBackEnded() noexcept;
  void TryAgain() noexcept { chunks_->TryAgain(); }
  void OnMark() noexcept { chunks_->OnMark(); }
  // The first iteration of a plan that was mapped late is over.
  void Settle() noexcept { chunks_->Settle(); }
  [[nodiscard]] const DevicePlan& plan() const noexcept { return plan_; }
  [[nodiscard]] const IdleChunks& chunks() const noexcept { return *chunks_; }
  [[nodiscard]] IdleChunks& chunks() noexcept { return *chunks_; }
  void SetListener(ArenaListener* listener) noexcept { chunks_->SetListener(listener); }

 private:
  explicit PlannedSpace(const DevicePlan& plan);

  bool MapArena(VmmDriver& driver, const Options& chosen, std::string* why);
  void Serve(VmmDriver& driver, StreamFence* fence, const Options& chosen);

  const DevicePlan plan_;
  const bool has_plan_;
  const VaryingSizes varying_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<PlanEngine> engine_;  // after arena_: destroyed first
  std::unique_ptr<IdleChunks> chunks_;
  Bytes least_dynamic_ = 0;
  std::atomic<bool> gave_up_{false};
  std::atomic<bool> departed_{false};
  std::atomic<std::uint64_t> live_blocks_{0};  // when what is idle was last given back
  std::mutex mutex_;
  Resemblance resemblance_;  // guarded by mutex_
};

}  // namespace stalloc
