// PlanEngine: serves the requests of one device from an arena, where the plan says they belong.
//
// A request that the plan expects (allocator/engine/matcher.h finds it) gets its slot, provided that no live block
// holds any byte of it (allocator/engine/occupancy.h: checked on every request, whatever the plan says). What has no
// slot, or cannot have it, gets room that the plan leaves idle, above which the arena grows
// (allocator/engine/dynamic_space.h). Every other request is the caller's to serve elsewhere, and is counted by reason.
// A wrong plan or a diverging run therefore costs memory, never data.
//
// Streams: work on a device is in order within a stream only. Bytes that another stream used last are handed out after
// the requesting stream was made to wait for that stream's work (stream_clocks.h, freed_blocks.h), whether or not the
// plan foresaw it. Each stream of the plan is bound to the stream of the first request that matches one of its entries
// (stream_binding.h). A request from another stream than that is served all the same: a miss would cost its memory a
// second time, in that stream's own pool; order costs an event and a wait, and the wait is one that the stream mostly
// has from the program anyway. Only what cannot be ordered now (a capture runs, no fence) is a miss.
//
// Thread-safe; Allocate and Free are noexcept, take no heap memory, do no I/O and hold no lock over a driver call.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allocator/engine/dynamic_space_options.h"
#include "allocator/engine/miss_reason.h"
#include "allocator/engine/stream_fence.h"
#include "proto/model/observed.h"
#include "proto/model/plan.h"
#include "proto/model/trace.h"
#include "proto/model/units.h"

namespace stalloc {

// Brings memory back behind parts of the arena that were withdrawn. Implemented by the arena's owner.
class ArenaBacking {
 public:
  virtual ~ArenaBacking() = default;
  // Called without the engine's lock when a request needs bytes that are withdrawn or above what is mapped. True: they
  // are mapped, and Restore or Extend was called. `now`: the plan's entry that is due, counted through prologue and
  // cycle. Thread-safe, noexcept; may call the driver.
  enum class MayTake : std::uint8_t {
    kSpare,   // what was given back, as far as Spare goes: nothing moves
    kNoMore,  // from the device than was held at any time: idle parts of the arena may move
    kMore,    // where too little of it is idle
  };
  virtual bool Back(Offset offset, Bytes bytes, std::uint64_t now, MayTake may_take) noexcept = 0;
  // So much of what was withdrawn can be mapped again without holding more than before. Called with the engine's lock.
  [[nodiscard]] virtual Bytes Spare() const noexcept { return 0; }
};

struct EngineStats {
  std::uint64_t requests = 0;
  std::uint64_t planned_hits = 0;
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
};

class PlanEngine {
 public:
  struct Allocation {
    void* pointer = nullptr;                // null: not served here
    MissReason reason = MissReason::kNone;  // why not from a slot
  };

  // `base` is the arena's base address, which is never dereferenced; the arena is mapped up to plan.arena_bytes at
  // least. `fence` may be null (one stream); it outlives all calls but the destructor. REQUIRES: CheckPlanShape passed.
  PlanEngine(const DevicePlan& plan, void* base, StreamFence* fence, const DynamicSpaceOptions& dynamic = {});
  ~PlanEngine();
  PlanEngine(const PlanEngine&) = delete;
  PlanEngine& operator=(const PlanEngine&) = delete;

  Allocation Allocate(Bytes requested, StreamHandle stream) noexcept;
  // The same for a request that no plan expects (of parallel regions, whose order is nobody's): from idle room alone.
  Allocation AllocateUnexpected(Bytes requested, StreamHandle stream, MissReason reason) noexcept;
  // Returns the block's rounded bytes; 0 when no live block starts there (counted, and the caller's error to report).
  // `current`: the stream on which the calling thread runs, where it is not the block's own for certain; see
  // freed_blocks.h, Note [Freed on another stream].
  Bytes Free(void* pointer, std::optional<StreamHandle> current = std::nullopt) noexcept;
  void RecordStream(void* pointer, StreamHandle stream) noexcept;

  // Withdraw: from now on nothing is placed in [offset, offset + bytes), so that its memory can go elsewhere once the
  // device is done with all that it was given before. False, and nothing changes, while a block lives there.
  // Restore: it is mapped again. REQUIRES: multiples of kBlockAlignment.
  bool Withdraw(Offset offset, Bytes bytes) noexcept;
  void Restore(Offset offset, Bytes bytes) noexcept;
  // When a block there was last freed, as a stamp: what was given to the device for it, it was given before a later
  // stamp was drawn. 0: none ever was.
  [[nodiscard]] std::uint64_t LastFreeIn(Offset offset, Bytes bytes) const noexcept;
  [[nodiscard]] std::uint64_t NewStamp() noexcept;
  // The arena is now mapped up to `mapped_bytes`, a multiple of kBlockAlignment.
  void Extend(Bytes mapped_bytes) noexcept;
  // Most of what the plan expects varies in size: its arena's memory will move.
  [[nodiscard]] bool VariesMostly() const noexcept;
  // Who is asked for withdrawn and further memory; null (at first): nobody, such requests miss. Call before the first
  // request.
  void SetBacking(ArenaBacking* backing) noexcept;

  // Moves the cursor. Marks come from any thread.
  void OnMark(const Mark& mark) noexcept;

  // Stops serving for good (the run does not resemble the plan); live blocks stay valid and can be freed. Nothing is
  // placed afterwards, not even for requests that are under way, and only these still call the StreamFence.
  void Deactivate() noexcept;

  [[nodiscard]] EngineStats Stats() const;
  void ResetPeak() noexcept;
  // Size of the live block that starts at or contains `pointer`; nullopt-like: bytes == 0 if none.
  [[nodiscard]] LiveBlock FindLive(const void* pointer) const noexcept;
  [[nodiscard]] std::vector<LiveBlock> LiveBlocks() const;  // ascending by offset; allocates, cold
  // The same without heap memory: copies what fits of them into `blocks`, returns how many there are.
  [[nodiscard]] std::size_t CopyLiveBlocks(std::span<LiveBlock> blocks) const noexcept;
  [[nodiscard]] PlanPosition Position() const noexcept;
  // What the run has shown of entries that varied or were not served as planned (observations.h), up to the blocks that
  // still live; no entries where the plan has none that vary. Allocates, cold.
  [[nodiscard]] ObservedDevice Observed() const;

  // Walks every invariant (no two live blocks overlap, bitset and table agree, counters add up). Empty: fine.
  [[nodiscard]] std::string CheckInvariants() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stalloc
