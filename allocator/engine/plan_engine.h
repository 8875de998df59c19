// PlanEngine: serves the requests of one device from an arena, where the plan says they belong (README). What it does
// not serve is counted by reason, and the caller's to serve elsewhere.
//
// Thread-safe; Allocate and Free are noexcept, take no heap memory (ArenaBacking may), do no I/O, hold no lock over a
// driver call.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allocator/base/check.h"
#include "allocator/base/deferred_ranges.h"
#include "allocator/base/mutex.h"
#include "allocator/base/part_stamps.h"
#include "allocator/base/spin_mutex.h"
#include "allocator/engine/follow/matcher.h"
#include "allocator/engine/follow/observations.h"
#include "allocator/engine/follow/script_cursor.h"
#include "allocator/engine/order/freed_blocks.h"
#include "allocator/engine/order/slot_streams.h"
#include "allocator/engine/place/dynamic_space.h"
#include "allocator/engine/place/lent_region.h"
#include "proto/model/observed.h"
#include "proto/model/plan.h"
#include "proto/model/trace.h"
#include "proto/model/units.h"

namespace stalloc {

// Why a request was not served from a slot of the plan.
enum class MissReason : std::uint8_t {
  kNone,         // served
  kUnplanned,    // matched an entry that the plan leaves to upstream (its size varies, it is not always there)
  kUnknownSize,  // no entry of this script has this size
  kUnmatched,    // the size exists, but not here
  kOccupied,     // matched, but a live block holds bytes of the slot
  kStream,       // matched, but its stream cannot be ordered after those that used the bytes
  kFenced,       // inside a fence (evaluation, checkpoint)
  kCapturing,    // a graph capture or MemPool owns the stream's requests
  kParallel,     // from a parallel region, whose threads come in any order
  kInactive,     // no plan, plan given up, or forked child
  kUnbacked,     // matched, but the slot's memory went back to the device and cannot be had again now
  kCount,
};

[[nodiscard]] constexpr const char* MissReasonName(MissReason reason) noexcept {
  constexpr std::array kNames = {"none",   "unplanned", "unknown_size", "unmatched", "occupied", "stream",
                                 "fenced", "capturing", "parallel",     "inactive",  "unbacked", "?"};
  static_assert(kNames.size() == static_cast<std::size_t>(MissReason::kCount) + 1);
  return kNames[static_cast<std::size_t>(reason)];
}

// Brings memory back for parts of the arena that were withdrawn.
class ArenaBacking {
 public:
  virtual ~ArenaBacking() = default;
  // Called without the engine's lock when a request needs bytes that are withdrawn or above what is mapped. True: they
  // are mapped, and Restore or Extend was called. `now`: the plan's entry that is due, counted through prologue and
  // cycle. Thread-safe, noexcept; may call the driver.
  // How much more memory than before the arena may take from the device.
  enum class Growth : std::uint8_t {
    kSpare,      // none; only what was given back, as far as Spare goes: nothing moves
    kForbidden,  // none; idle parts of the arena may move
    kAllowed,    // as much as is missing, where too little of the arena is idle
  };
  virtual bool EnsureBacked(Offset offset, Bytes bytes, std::uint64_t now, Growth growth) noexcept = 0;
  // So much of what was withdrawn can be mapped again without holding more than before. Called with the engine's lock.
  [[nodiscard]] virtual Bytes Spare() const noexcept { return 0; }
  // Rather than that a request waits or is in another's way, so much more is mapped. Called with the engine's lock.
  [[nodiscard]] virtual bool MayGrow(Bytes /*more*/, Bytes /*peak_live*/) const noexcept { return false; }
};

struct EngineStats {
  std::uint64_t requests = 0;
  std::uint64_t planned_hits = 0;
  std::uint64_t lent_hits = 0;     // of these: in graphs' pools
  std::uint64_t dynamic_hits = 0;  // served in the arena, but not from a slot
  std::array<std::uint64_t, static_cast<std::size_t>(MissReason::kCount)> misses{};
  Bytes live_bytes = 0;
  Bytes peak_live_bytes = 0;
  std::uint64_t live_blocks = 0;
  std::uint64_t iterations = 0;
  std::uint64_t sync_losses = 0;     // times that a request was not the expected one
  std::uint64_t reanchorings = 0;    // times that the place in the script was found elsewhere
  std::uint64_t unknown_frees = 0;   // Free of an address where no live block starts
  std::uint64_t pending_blocks = 0;  // freed by the program, but another stream was recorded and may still use them
  Bytes pending_bytes = 0;
  std::uint64_t retained_blocks = 0;  // never to be reused: their streams could not be followed
  std::uint64_t stream_events = 0;    // recorded
  std::uint64_t stream_waits = 0;     // of one stream for another
  bool active = false;
};

// Where the run is in its plan.
struct PlanPosition {
  bool in_script = false;    // else the plan has none for this time, and the four below mean nothing
  std::uint32_t script = 0;  // counted through prologue and cycle
  std::int32_t phase = -1;   // of the script, by the last mark; -1: before its first
  std::int32_t entry = 0;    // of the script, that is expected next
  bool in_sync = false;      // else `entry` is the best guess
  bool fenced = false;       // inside an evaluation or checkpoint
  std::uint64_t iterations = 0;
};

struct LiveBlock {
  Offset offset = 0;
  Bytes bytes = 0;  // rounded
  Bytes requested = 0;
  StreamHandle stream = 0;
  bool freed_pending = false;  // freed by the program, but another stream was recorded and may still use it
  bool asleep = false;         // the three below: see LiveRecord
  bool shared = false;
  unsigned tag = 0;
};

// A free that has begun: the block is its thread's alone, and its bytes stay occupied until Free(ticket).
struct FreeTicket {
  void* pointer = nullptr;
  Bytes requested = 0;  // 0: no live block started there, or its free had begun already
  StreamHandle stream = 0;
};

class PlanEngine {
 public:
  struct Allocation {
    void* pointer = nullptr;                // null: not served here
    MissReason reason = MissReason::kNone;  // why not from a slot
  };

  // `base` is the arena's base address, which is never dereferenced; the arena is mapped up to plan.arena_bytes at
  // least. `fence` may be null (one stream); it outlives all calls but the destructor. REQUIRES: CheckPlanShape passed,
  // or the plan is empty: then requests find space by best fit, from the base upward.
  PlanEngine(const DevicePlan& plan, void* base, StreamFence* fence, const DynamicSpaceOptions& options = {});
  PlanEngine(const PlanEngine&) = delete;
  PlanEngine& operator=(const PlanEngine&) = delete;

  Allocation Allocate(Bytes requested, StreamHandle stream) noexcept;
  // The same for a request that no plan expects (of parallel regions, whose order is nobody's): from idle space alone.
  Allocation AllocateUnexpected(Bytes requested, StreamHandle stream, MissReason reason) noexcept;
  // Returns the block's rounded bytes; 0 when no live block starts there (counted, and the caller's error to report).
  // `current`: the stream on which the calling thread runs, where it is not the block's own for certain; see
  // details.md, Freed on another stream. `requested`: what was requested of the block; unchanged where none is freed.
  Bytes Free(void* pointer, std::optional<StreamHandle> current = std::nullopt, Bytes* requested = nullptr) noexcept;
  // The same in two steps, so that others learn of the end before the address can be given out again. Of several
  // threads that free one block BeginFree serves one; for the others it counts an unknown free. REQUIRES of Free: a
  // ticket with bytes, once.
  [[nodiscard]] FreeTicket BeginFree(void* pointer) noexcept;
  Bytes Free(const FreeTicket& ticket, std::optional<StreamHandle> current = std::nullopt) noexcept;
  void RecordStream(void* pointer, StreamHandle stream) noexcept;

  // Withdraw: from now on nothing is placed in [offset, offset + bytes), so that its memory can go elsewhere once the
  // device is done with all that it was given before. False, and nothing changes, while a block lives there, or a
  // stream of another device may still use one that was freed.
  // Restore: it is mapped again. REQUIRES: multiples of kBlockAlignment.
  bool Withdraw(Offset offset, Bytes bytes) noexcept;
  void Restore(Offset offset, Bytes bytes) noexcept {
    const Lock lock(mutex_);
    withdrawn_.Remove(WholeGranules(offset), WholeGranules(offset + bytes));
  }
  // Returns when streams of other devices are done with what was freed so far, where they can be waited for. The host
  // waits, without the lock.
  void AwaitOtherDevices() noexcept {
    Lock lock(mutex_);
    freed_.AwaitOtherDevices(lock);
  }
  // When a block there was last freed, as a stamp: what was given to the device for it, it was given before a later
  // stamp was drawn. 0: none ever was.
  [[nodiscard]] std::uint64_t LastFreeIn(Offset offset, Bytes bytes) const noexcept;
  [[nodiscard]] std::uint64_t NewStamp() noexcept {
    const Lock lock(mutex_);
    return clocks_.NewStamp();
  }
  // The arena is now mapped up to `mapped_bytes`, a multiple of kBlockAlignment.
  void Extend(Bytes mapped_bytes) noexcept {
    const Lock lock(mutex_);
    space_.SetMapped(WholeGranules(mapped_bytes));
  }
  // Most of what the plan expects varies in size: its arena's memory will move. Of the plan alone, which stays.
  [[nodiscard]] bool VariesMostly() const noexcept STALLOC_NO_THREAD_SAFETY_ANALYSIS {
    return space_.gaps().VariesMostly();
  }
  // Who is requested withdrawn and further memory; null (at first): nobody, such requests miss. Call before the first
  // request.
  void SetBacking(ArenaBacking* backing) noexcept {
    const Lock lock(mutex_);
    backing_ = backing;
  }

  // The run that the engine will serve is there already. REQUIRES: nothing was requested of it yet.
  void StartAt(const PlanStart& start) noexcept;
  // Moves the cursor. Marks come from any thread.
  void OnMark(const Mark& mark) noexcept;

  // Graphs' pools, by their index in the plan's lent_pools; ranges are of the arena. From OpenLent on `ranges` of the
  // pool, which has so many graphs, serve its slots and what finds no space in the arena as it is mapped, until
  // CloseLent; blocks there stay. `given`, disjoint, are closed until a launch takes them.
  // False, and nothing changes, while a block is in `ranges` or another device may still use one. REQUIRES: this device
  // is done with all that used the pool.
  [[nodiscard]] bool OpenLent(std::size_t pool, std::span<const GranuleRange> ranges,
                              std::span<const GranuleRange> given, std::size_t graphs);
  void CloseLent(std::size_t pool) noexcept;
  // A pool of so many bytes that the plan does not know. Its index and where it lies; none where there is no space.
  struct LentPlace {
    std::size_t pool = 0;
    Offset begin = 0;
  };
  [[nodiscard]] std::optional<LentPlace> AddLentPool(Bytes bytes) noexcept;
  // A graph of the pool is about to be launched, on that stream. kReady: what it needs is closed, and the stream runs
  // after all who used it. Else it must not be launched; kBlocksInTheWay: before they are gone. kCarriedGone: blocks
  // of the program have been where the graph reads what an earlier one has left. EndLaunch, after it was given to the
  // device: what it needs no more is open, after its stream.
  enum class Launch : std::uint8_t { kReady, kBlocksInTheWay, kCarriedGone, kNotOrdered };
  [[nodiscard]] Launch BeginLaunch(std::size_t pool, const GraphRanges& graph, StreamHandle stream) noexcept;
  void EndLaunch(const GraphRanges& graph) noexcept;
  // A graph of a pool that was open once is launched: false where blocks of the program have been where it reads what
  // an earlier one has left.
  [[nodiscard]] bool NoteLaunch(const GraphRanges& graph) noexcept;
  // What the graph takes was overwritten after its launch: as if a block of the program had been there. Of more ranges
  // than there is space for nothing is noted.
  void NoteOverwritten(const GraphRanges& graph) noexcept;
  // Which graph has left what blocks of the program used; the first of several, 0: they used nothing that it reads.
  [[nodiscard]] GraphId GiverOfUsed(const GraphRanges& graph) const noexcept;
  // Live blocks of the program there; allocates, cold.
  [[nodiscard]] std::vector<LiveBlock> LentBlocks(std::size_t pool) const;
  [[nodiscard]] bool HasLentBlocks(std::size_t pool) const noexcept;
  // The calling thread is served there as if it had launched; no thread is until it launches.
  void ServeAsLauncher(std::size_t pool) noexcept;
  void ForgetLaunchers(std::size_t pool) noexcept;

  // The plan is given up: its slots serve nobody any more. Nothing is placed, not even for requests that are under way,
  // while what is idle goes back; blocks are freed as ever.
  void DropPlan() noexcept {
    const Lock lock(mutex_);
    if (plan_ == Plan::kServed) plan_ = Plan::kDropped;
  }
  // The rest that remaining blocks leave serves every request that fits; no memory is mapped or moved for
  // that. Nothing where the plan serves, or what has no slot is not served here.
  void ServeLeftOver() noexcept {
    const Lock lock(mutex_);
    if (plan_ == Plan::kDropped) plan_ = Plan::kLeftOver;
  }
  // Stops serving for good (another arena serves); live blocks stay valid and can be freed. Nothing is placed
  // afterwards, not even for requests that are under way, and only these and
  // AwaitOtherDevices still call the StreamFence.
  void Deactivate() noexcept {
    const Lock lock(mutex_);
    state_ = State::kStopped;
  }

  // For allocator/sleep. Between Pause and Resume nothing is placed, not even for requests that are under way; blocks
  // are freed as ever. An engine that serves no more does not begin again.
  void Pause() noexcept { Switch(State::kServes, State::kPaused); }
  void Resume() noexcept { Switch(State::kPaused, State::kServes); }
  // For the live block that starts there; false, and nothing changes, if none does. `tag`: up to LiveRecord::kMostTags.
  bool SetTag(const void* pointer, unsigned tag) noexcept {
    return Flag(pointer, static_cast<std::uint16_t>(tag << LiveRecord::kTagShift), LiveRecord::kTags);
  }
  bool SetAsleep(Offset offset, bool asleep) noexcept {
    return Flag(base_ + offset, asleep ? LiveRecord::kAsleep : 0, LiveRecord::kAsleep);
  }
  bool SetShared(Offset offset) noexcept { return Flag(base_ + offset, LiveRecord::kShared, 0); }
  // Withdraw, although blocks live there, or are used by other devices: their bytes are to go elsewhere. False where
  // some of it is withdrawn already.
  bool WithdrawUnderBlocks(Offset offset, Bytes bytes) noexcept {
    const Lock lock(mutex_);
    return withdrawn_.Add(WholeGranules(offset), WholeGranules(offset + bytes));
  }

  [[nodiscard]] EngineStats Stats() const;
  void ResetPeak() noexcept {
    const Lock lock(mutex_);
    stats_.peak_live_bytes = stats_.live_bytes;
  }
  // Size of the live block that starts at or contains `pointer`; nullopt-like: bytes == 0 if none.
  [[nodiscard]] LiveBlock FindLive(const void* pointer) const noexcept;
  [[nodiscard]] std::vector<LiveBlock> LiveBlocks() const;  // ascending by offset; allocates, cold
  // The same without heap memory: copies the uppermost that fit into `blocks`, returns how many there are.
  [[nodiscard]] std::size_t CopyLiveBlocks(std::span<LiveBlock> blocks) const noexcept;
  [[nodiscard]] PlanPosition Position() const noexcept;
  // What the run has shown of entries that varied or were not served as planned (observations.h), up to the blocks that
  // still live; no entries where the plan has none that vary. Allocates, cold.
  [[nodiscard]] ObservedDevice Observed() const STALLOC_NO_THREAD_SAFETY_ANALYSIS;  // some of it never changes

  // Walks every invariant (no two live blocks overlap, bitset and table agree, counters add up). Empty: fine.
  [[nodiscard]] std::string CheckInvariants() const {
    const Lock lock(mutex_);
    return CheckLocked();
  }

 private:
  using Lock = OpenableLock<SpinMutex>;
  using Place = LoadedScript::Place;
  using Growth = ArenaBacking::Growth;
  static constexpr Granules kNone = DynamicSpace::kNone;

  enum class State : std::uint8_t { kServes, kPaused, kStopped };
  enum class Plan : std::uint8_t { kServed, kDropped, kLeftOver };
  [[nodiscard]] bool active() const noexcept STALLOC_REQUIRES(mutex_) {
    return state_ == State::kServes && plan_ != Plan::kDropped;
  }
  void Switch(State from, State to) noexcept {
    const Lock lock(mutex_);
    if (state_ == from) state_ = to;
  }

  struct Request {
    Bytes bytes = 0;
    Granules granules = 0;  // 0: more than any arena has
    StreamHandle stream = 0;
    std::int32_t entry = -1;        // of the present script, whose request it is; -1: nobody knows
    Observations::Stamp stamp = 0;  // of that entry
  };

  // All of these may open the lock where it is passed to them. plan_engine.cc: slots, frees, marks.
  [[nodiscard]] MissReason FindPlace(Request& request, Place& place) noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] MissReason TakePlace(const Place& place, const Request& request, Lock& lock) noexcept
      STALLOC_REQUIRES(mutex_);
  [[nodiscard]] MissReason OccupyInOrder(const Place& place, const Request& request, std::uint64_t& hits,
                                         Lock& lock) noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] bool NeedsOfHome(StreamBinding& binding, StreamIndex stream, StreamNeeds& needs) noexcept
      STALLOC_REQUIRES(mutex_);
  [[nodiscard]] bool AddHome(const StreamBinding& binding, StreamIndex stream, StreamNeeds& needs) noexcept
      STALLOC_REQUIRES(mutex_);
  [[nodiscard]] bool OrderOrPutBack(Granules granule, StreamIndex stream, const StreamNeeds& needs, std::uint64_t& hits,
                                    Lock& lock) noexcept STALLOC_REQUIRES(mutex_);
  void ForgetPrivacyOf(StreamIndex home) noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] MissReason BackUp(const Place& place, const Request& request, Lock& lock) noexcept
      STALLOC_REQUIRES(mutex_);
  [[nodiscard]] bool RequestBacking(Granules granule, Granules granules, Growth growth, Lock& lock) noexcept
      STALLOC_REQUIRES(mutex_);
  // The last check of every placement: the engine serves, and memory
  // backs all of [lo, hi).
  [[nodiscard]] bool MayPlace(Granules lo, Granules hi) const noexcept STALLOC_REQUIRES(mutex_) {
    if (!active() || (!withdrawn_.empty() && withdrawn_.Touches(lo, hi))) return false;
    return lent_.Contains(lo, hi) ? lent_.IsOpen(lo, hi) : hi <= std::max(plan_granules_, space_.mapped());
  }
  void Occupy(Granules granule, const Request& request, StreamIndex stream, std::uint16_t flags) noexcept
      STALLOC_REQUIRES(mutex_);
  void Vacate(LiveRecord& block) noexcept STALLOC_REQUIRES(mutex_);
  Bytes End(LiveRecord& block, std::optional<StreamHandle> current, Lock& lock) noexcept STALLOC_REQUIRES(mutex_);
  void Follow() noexcept STALLOC_REQUIRES(mutex_);

  // unplanned_requests.cc
  Allocation ServeUnplanned(Request request, MissReason reason, Lock& lock) noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] std::int32_t StillThere(std::int32_t entry) const noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] bool MayHaveSpace(const Request& request, MissReason reason) const noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] Granules TakeEmptySlot(const Request& request, MissReason reason, Lock& lock) noexcept
      STALLOC_REQUIRES(mutex_);
  [[nodiscard]] Place FindKeptPlace(const Request& request) const noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] Place FindLentSlot(const Request& request) const noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] IdleGaps::Window WindowFor(std::int32_t entry, MissReason reason) const noexcept
      STALLOC_REQUIRES(mutex_);
  [[nodiscard]] Granules TakeSpace(const Request& request, MissReason reason, Lock& lock) noexcept
      STALLOC_REQUIRES(mutex_);
  [[nodiscard]] Granules FindSpace(DynamicSpace::Request request, std::int32_t entry, Lock& lock) noexcept
      STALLOC_REQUIRES(mutex_);
  [[nodiscard]] Granules FindMapped(const DynamicSpace::Request& request, std::int32_t entry,
                                    bool may_grow) const noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] bool MayGrow(Granules granules) const noexcept STALLOC_REQUIRES(mutex_) {
    return backing_ != nullptr && backing_->MayGrow(Bytes{granules} * kBlockAlignment, stats_.peak_live_bytes);
  }
  [[nodiscard]] GranuleRange FindSlotInTheWay(Granules granules, std::int32_t entry) const noexcept
      STALLOC_REQUIRES(mutex_);
  [[nodiscard]] bool OccupySpace(Granules granule, const Request& request, StreamIndex stream, Lock& lock) noexcept
      STALLOC_REQUIRES(mutex_);

  // graph_launches.cc
  [[nodiscard]] bool TakeLentSlot(const Request& request, Place& place, Lock& lock) noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] bool BackOwned(Granules lo, Granules hi, Lock& lock) noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] static bool IsProgramsBlock(const LiveRecord& record) noexcept {
    return !record.Is(LiveRecord::kFreed) && !record.IsOfLaunch();
  }
  [[nodiscard]] bool MakeOrdered(const GraphRanges& graph, StreamIndex stream, Lock& lock) noexcept
      STALLOC_REQUIRES(mutex_);
  [[nodiscard]] bool TakeLentInstead(const Request& request, Place& place, Lock& lock) noexcept
      STALLOC_REQUIRES(mutex_);
  // The plan expects the entry's block to be freed after its script has ended. -1: not known, false.
  [[nodiscard]] bool OutlivesScript(std::int32_t entry) const noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] Granules TakeLentSpace(const Request& request, StreamIndex stream, std::uint64_t& hits,
                                       Lock& lock) noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] bool OccupyLent(Granules granule, const Request& request, StreamIndex stream, std::uint64_t& hits,
                                Lock& lock) noexcept STALLOC_REQUIRES(mutex_);
  void NoteBlocksInTheWay(const GraphRanges& graph) noexcept STALLOC_REQUIRES(mutex_);
  void LetGoOfLaunches(const GranuleRange& range) noexcept STALLOC_REQUIRES(mutex_);
  void OccupyForLaunch(const GranuleRange& range, StreamIndex stream) noexcept STALLOC_REQUIRES(mutex_);

  // engine_state.cc
  [[nodiscard]] LiveBlock Describe(const LiveRecord& record) const noexcept STALLOC_REQUIRES(mutex_);
  [[nodiscard]] std::string CheckLocked() const STALLOC_REQUIRES(mutex_);
  // In the checked build: walks everything after one operation in 256, so that tests of large arenas still end.
  void CheckNow() const noexcept STALLOC_REQUIRES(mutex_) {
    STALLOC_DCHECK((++checks_ & 255) != 0 || CheckLocked().empty());
  }

  [[nodiscard]] void* AddressOf(Granules granule) const noexcept { return base_ + Offset{granule} * kBlockAlignment; }
  // What starts there, live or not; null if nothing does.
  [[nodiscard]] LiveRecord* RecordAt(const void* pointer) noexcept STALLOC_REQUIRES(mutex_);
  // The block of the program that starts there; null if none does.
  [[nodiscard]] LiveRecord* LiveAt(const void* pointer) noexcept STALLOC_REQUIRES(mutex_);
  // The same, where nobody has begun to free it; else counts an unknown free.
  [[nodiscard]] LiveRecord* FreeableAt(const void* pointer) noexcept STALLOC_REQUIRES(mutex_);
  // For the live block that starts there; false if none does.
  bool Flag(const void* pointer, std::uint16_t set, std::uint16_t cleared) noexcept;
  [[nodiscard]] GranuleRange InArena(Offset offset, Bytes bytes) const noexcept;

  alignas(64) mutable SpinMutex mutex_;  // guards all below it
  std::byte* const base_;
  const Granules arena_granules_;
  const Granules plan_granules_;  // the plan's height
  Matcher matcher_ STALLOC_GUARDED_BY(mutex_);
  const PlanStreams streams_;
  ScriptCursor cursor_ STALLOC_GUARDED_BY(mutex_);
  Observations observations_ STALLOC_GUARDED_BY(mutex_);
  Occupancy occupancy_ STALLOC_GUARDED_BY(mutex_);
  StreamClocks clocks_ STALLOC_GUARDED_BY(mutex_);
  FreedBlocks freed_ STALLOC_GUARDED_BY(mutex_);
  static constexpr std::size_t kMostWithdrawn = 8192;  // ranges: of 4 TiB in chunks of 1 GiB, every second one
  RangeSet withdrawn_ STALLOC_GUARDED_BY(mutex_){kMostWithdrawn};
  static constexpr std::size_t kMostLive = 1u << 20;           // ranges
  DeferredRanges live_ STALLOC_GUARDED_BY(mutex_){kMostLive};  // what blocks of the program occupy
  PartStamps freed_at_ STALLOC_GUARDED_BY(mutex_);             // when some of them were last freed
  DynamicSpace space_ STALLOC_GUARDED_BY(mutex_);
  LentRegion lent_ STALLOC_GUARDED_BY(mutex_);
  std::vector<StreamBinding> bindings_ STALLOC_GUARDED_BY(mutex_);  // by number, see PlanStreams
  ArenaBacking* backing_ STALLOC_GUARDED_BY(mutex_) = nullptr;
  const LoadedScript kept_;  // what evaluations and checkpoints leave live for good: details.md, Fences
  const Turns turns_;
  const Rules rules_;
  const bool has_plan_;
  EngineStats stats_ STALLOC_GUARDED_BY(mutex_);
  mutable std::uint64_t checks_ STALLOC_GUARDED_BY(mutex_) = 0;
  State state_ STALLOC_GUARDED_BY(mutex_);
  Plan plan_ STALLOC_GUARDED_BY(mutex_) = Plan::kServed;
};

}  // namespace stalloc
