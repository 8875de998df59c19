// DeviceRuntime: the allocator of one device in one mode, over an injected upstream. What adapters call.
//
//   Trace fast : upstream + Recorder          Trace exact : PlanEngine without a plan (else upstream) + Recorder
//   Alloc      : PlanEngine (slots, and idle space without a slot), else upstream
//   neither    : upstream (degraded session)
//
// Keeps the ledger: bytes live in arenas and upstream together, and the peak of their sum. Thread-safe. Sizes are
// bytes.
//
// When upstream is out of memory after its own retries, idle chunks of the arena go back to the device and upstream is
// tried once more. The plan maps them again when it needs them. The same goes back when the program empties its caches.
//
// A run that does not resemble its plan, and does not fare well in its arena all the same, gives the plan up
// (allocator/runtime/resemblance.h): the engine stops serving, and idle parts of the arena go back to the device at the
// next iteration marks, never those under a live block.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allocator/arena/arena.h"
#include "allocator/backing/idle_chunks.h"
#include "allocator/engine/plan_engine.h"
#include "allocator/graphs/graph_pools.h"
#include "allocator/record/recorder.h"
#include "allocator/runtime/block_observer.h"
#include "allocator/runtime/block_watch.h"
#include "allocator/runtime/config.h"
#include "allocator/runtime/device_sleep.h"
#include "allocator/runtime/held_meter.h"
#include "allocator/runtime/iteration_peaks.h"
#include "allocator/runtime/running_pass.h"
#include "proto/model/plan.h"

namespace stalloc {

// The allocator that exists anyway: PyTorch's native one, cudaMallocAsync, malloc.
class Upstream {
 public:
  virtual ~Upstream() = default;
  // May throw what its own allocator throws (c10::OutOfMemoryError); never returns null for bytes > 0.
  virtual void* Allocate(Bytes requested, StreamHandle stream) = 0;
  // The same once more, after Allocate threw for lack of memory and some was given back.
  virtual void* AllocateAgain(Bytes requested, StreamHandle stream) { return Allocate(requested, stream); }
  virtual void Free(void* pointer) noexcept = 0;
  virtual void RecordStream(void* pointer, StreamHandle stream) = 0;
  using Held = HeldMeter::Upstream;
  // What Allocate threw (the current exception) says that the device is full, so that memory given back may help.
  [[nodiscard]] virtual bool IsOutOfMemory(const std::exception_ptr& /*thrown*/) const { return true; }
  // A block's bytes up to the next multiple of kBlockAlignment are its own.
  [[nodiscard]] virtual bool PadsBlocks() const noexcept { return false; }
  // Gives back to the device what it caches, as far as it can.
  virtual void ReleaseCached() noexcept {}
  // Bytes that it holds on the device, used or cached. Called at marks, in Stats() and at exit.
  [[nodiscard]] virtual Held HeldBytes() const = 0;
  // Keeps what is freed, as PyTorch's allocator does; else it holds what lives in it.
  [[nodiscard]] virtual bool Caches() const noexcept { return true; }
  // For what it holds, in pools that are kept apart (captured graphs). `live`: bytes of blocks there.
  [[nodiscard]] virtual Bytes HeldApart(Bytes live) const { return live; }
  // An iteration of the run begins: the next iteration_peak starts at what is held now. Nothing for one that caches
  // what is freed, and so never holds less than before.
  virtual void BeginIteration() noexcept {}
};

// Peaks over the whole run, whatever the program resets meanwhile. What the summary reports.
struct RunPeaks {
  Bytes live_bytes = 0;
  Bytes held_bytes = 0;
  Bytes arena_bytes = 0;
  Bytes upstream_bytes = 0;
  double efficiency = 0;  // live / held
};

// Requests over 512 B from the second iteration on, captured ones among them. Evaluations and checkpoints have no
// slots, and are counted apart.
struct SteadyCounts {
  std::uint64_t requests = 0;  // outside of fences
  std::uint64_t hits = 0;      // of these: served from their slots
  std::uint64_t fenced = 0;    // inside of fences
};

struct RuntimeStats {
  std::uint64_t requests = 0;
  std::uint64_t planned_hits = 0;
  std::uint64_t dynamic_hits = 0;   // served from the arena without a slot
  std::uint64_t upstream = 0;       // requests that upstream served
  std::uint64_t heap_hits = 0;      // requests that the exact trace's arena served
  std::uint64_t unknown_frees = 0;  // frees of addresses that nobody here gave out
  std::uint64_t iterations = 0;
  SteadyCounts steady;
  EngineStats engine;     // its `misses` also count what never reached the engine (kCapturing, kParallel)
  bool gave_up = false;   // the run did not resemble its plan
  bool left = false;      // nor did its first iteration resemble the plan that it began with
  bool departed = false;  // it does not, or needs less than the plan holds, whether it was given up for that or not
  bool unlike = false;    // it does not resemble it
  bool card_was_full = false;  // at some time while an arena served (allocator/backing/README.md)
  Bytes live_bytes = 0;        // rounded to 512 B a block, arena + upstream
  Bytes peak_live_bytes = 0;   // peak of the sum since ResetPeaks
  Bytes arena_bytes = 0;       // mapped now
  Bytes arena_live_bytes = 0;
  IdleChunks::Counts lent;  // of the arena: when the device was full, or caches were emptied
  Bytes heap_bytes = 0;     // the exact trace's arena, which does not count as one
  Bytes upstream_reserved_bytes = 0;
  Bytes upstream_reserved_peak_bytes = 0;  // since upstream's own reset
  Bytes held_peak_bytes = 0;               // peak of arena + upstream since ResetPeaks: see held_meter.h
  double efficiency = 0;                   // peak_live / held_peak
  RunPeaks run;
  struct SincePlan {
    std::uint64_t iterations = 0;  // that had begun
    Bytes peak_live_bytes = 0;
    Bytes held_peak_bytes = 0;
    double efficiency = 0;
  };
  std::optional<SincePlan> since_plan;  // a plan was taken up in the middle of the run
  struct ServingPlan {
    Bytes arena_bytes = 0;
    double efficiency = 0;  // predicted
  };
  std::optional<ServingPlan> plan;
  IterationPeaks last_iteration;  // that has ended
  struct Native {
    Bytes held_bytes = 0;       // most, while requests were watched; 0: they never were
    Bytes peak_live_bytes = 0;  // meanwhile
    bool overflowed = false;    // they were too many
  };
  struct Graphs {
    std::uint64_t hits = 0;        // requests that graphs' pools served
    std::uint64_t times_lent = 0;  // pools, with those that were lent again
    std::uint64_t surprises = 0;   // launches that found blocks in their way
    Bytes lent_bytes = 0;          // of pools, now
    Bytes most_bytes = 0;          // the same, at any time
    Bytes filled_bytes = 0;        // by GraphPoison, each time counted
  };
  Graphs graphs;
  Native native;  // what PyTorch's native allocator would hold (native_held.h), and what is held apart
  WatchCounts watch;
};

// A block of the arena as another process maps it.
struct ExportedBlock {
  Arena::Exported chunks;
  Bytes offset = 0;  // of the block's address in them
};

class OomReports;
class PlannedSpace;
class RunSignature;

class DeviceRuntime {
 public:
  struct Parts {
    DeviceIndex device = 0;
    Upstream* upstream = nullptr;      // not owned; outlives the runtime
    VmmDriver* driver = nullptr;       // not owned; may be null in Trace fast
    StreamFence* fence = nullptr;      // not owned; may be null
    Recorder* recorder = nullptr;      // Trace; not owned; outlives the runtime
    const DevicePlan* plan = nullptr;  // Alloc; copied
    bool awaits_plan = false;          // there is none, and one will be taken up: what stays is served from an arena
    bool replaceable = false;          // a plan that does not fit makes place for another one (Auto)
    bool dynamic = false;              // Alloc: what has no slot is served from the arena, too, which grows for it
    bool moves_at_marks = false;       // Alloc, for tests: memory that may move does so at every mark
    Rules rules = {};                  // Alloc: of the engine
    Bytes keep_free = FreeMemory::kDefaultKeep;  // Alloc: of the device, for others
    bool exact = false;                          // Trace
    Bytes limit_bytes = 0;
    OomReports* reports = nullptr;      // not owned; null: none is written, and no recent events are kept
    WatchMemory* watch = nullptr;       // not owned; null: blocks are not watched
    DeviceCopies* copies = nullptr;     // not owned; null: nothing can sleep
    PassHere pass_here = nullptr;       // null: not known, and no request is said to be recomputed
    RunSignature* signature = nullptr;  // not owned, outlives the runtime; null: nobody wants it
    bool doubts = false;                // Alloc: the plan may be another run's: see PlanDoubt
    bool maps_late = false;             // Alloc: and its memory comes as requests need it
    GraphPools* graphs = nullptr;       // not owned, outlives the runtime; null: captures and launches are not seen
    bool shares_graphs = true;          // Alloc: graphs' pools serve other requests between launches
    bool poisons_graphs = false;        // what their launches leave idle is filled (graph_poison.h)
  };
  // Never fails: an arena that cannot be mapped is a warning (both figures) and an unplanned run; see degraded().
  explicit DeviceRuntime(const Parts& parts);
  ~DeviceRuntime();

  // Captured requests go to upstream, never to an arena; those of parallel regions never to a plan's slots. Of
  // captured ones `pool` is 1 + the ordinal of theirs, for the trace; 0: not known.
  // Throws what upstream throws, and AsleepError while the device is asleep. Exact Trace that is out of memory falls
  // through to upstream, whose error it is then. A request of 0 bytes is upstream's, uncounted.
  void* Allocate(Bytes requested, StreamHandle stream, Origin origin, std::uint32_t pool = 0);
  // Call once when Allocate has thrown for lack of memory and the error is about to leave the adapter: writes the
  // report that STALLOC_OOM_REPORT requests, and returns what to add to the error, a line each. Takes heap memory for
  // the lines alone, after the report; may throw std::bad_alloc.
  std::vector<std::string> ExplainOutOfMemory(Bytes requested, StreamHandle stream);
  // Null is fine. An address that nobody here gave out is counted, logged and handed to upstream (it may be older than
  // we are). `current`: the stream on which the calling thread runs, where that may be another than the block's
  // (engine/details.md, Freed on another stream). Returns the block's bytes; 0 of `requested`: of upstream's, or none.
  struct Freed {
    Bytes bytes = 0;  // rounded
    Bytes requested = 0;
  };
  Freed Free(void* pointer, std::optional<StreamHandle> current = std::nullopt) noexcept;
  // The same in two steps, so that others learn of the end before the address can be given out again. Of several
  // threads that free one block BeginFree gives one its bytes; to the others it is an address that nobody here gave
  // out. No lock is held in between. REQUIRES of Free: each ending once.
  struct Ending : FreeTicket {
    Bytes bytes = 0;                // rounded; 0: no block of the device begins there
    PlannedSpace* space = nullptr;  // null: upstream's
  };
  [[nodiscard]] Ending BeginFree(void* pointer) noexcept;
  void Free(const Ending& ending, std::optional<StreamHandle> current = std::nullopt) noexcept;
  void RecordStream(void* pointer, StreamHandle stream);
  // Upstream gave a block out, or took one back, on its own (a graph pool set back to an earlier state): ledger and
  // trace follow. REQUIRES: upstream's own block; Forget is called for a block before upstream can give its address out
  // again.
  void Adopt(void* pointer, Bytes requested, StreamHandle stream, std::uint32_t pool = 0) noexcept;
  void Forget(void* pointer) noexcept;
  void OnMark(const Mark& mark);

  // A run takes a plan up, its first or one that fits better, between two iterations and on the thread of the loop:
  // what upstream caches goes back first. Blocks that live stay where they are. `explicit_kinds`: see PlanStart. Empty,
  // or why not: then nothing has changed.
  [[nodiscard]] std::string TakePlan(const DevicePlan& plan, std::uint32_t explicit_kinds);
  // The same in two steps. To index a plan takes a second for 100,000 requests: meanwhile, on any thread. Null,
  // and why, where there can be no such arena. Nothing is mapped.
  [[nodiscard]] std::shared_ptr<PlannedSpace> PreparePlan(const DevicePlan& plan, std::string* why);
  // Moved from where it is taken up.
  [[nodiscard]] std::string TakePlan(std::shared_ptr<PlannedSpace>& prepared, std::uint32_t explicit_kinds);
  // The plan that serves is another run's, and serves no more. What lives stays where it is, what is idle goes back,
  // now and at each iteration. Nothing where none serves. On the thread of the loop.
  void DropPlan() noexcept;
  // Events go to this recorder from now on; null: to none. It and the one before outlive the runtime, since other
  // threads may be calling either.
  void RecordTo(Recorder* recorder) noexcept;

  // Arenas with their engines, the oldest first; the last one serves, what lives in the others stays there.
  [[nodiscard]] std::span<PlannedSpace* const> spaces() const noexcept;
  // Whose addresses these are; null: no arena's.
  [[nodiscard]] const PlannedSpace* SpaceOf(const void* pointer) const noexcept;
  // An arena owns the address (as opposed to upstream).
  [[nodiscard]] bool Owns(const void* pointer) const noexcept;
  // Rounded bytes of a live block of upstream's that was given out here; 0: none starts there.
  [[nodiscard]] Bytes UpstreamBlockBytes(const void* pointer) const noexcept;
  [[nodiscard]] RuntimeStats Stats() const;
  // Starts new peaks in Stats(); RunPeaks go on. Call it BEFORE upstream's own peaks are reset, whose run peak it
  // keeps.
  void ResetPeaks() noexcept;
  [[nodiscard]] const Arena* arena() const noexcept;        // of the plan; null: none is served
  [[nodiscard]] const PlanEngine* engine() const noexcept;  // the same
  [[nodiscard]] bool exact() const noexcept;                // the arena is an exact trace's
  // Why a plan or exact trace that was requested is not there; empty: fine.
  [[nodiscard]] const std::string& degraded() const noexcept;

  // The program empties its caches: idle chunks of the arenas go back to the device, and
  // are mapped again when requests need them. Bytes. Nothing while the device may not be synchronised.
  Bytes EmptyCache() noexcept;
  // Before a pool of upstream's is opened, and after it was closed: memory that it takes meanwhile, which the arena may
  // have given back for it, is the pool's.
  void UpstreamPoolOpens() noexcept;
  void UpstreamPoolCloses() noexcept;

  // Arena and upstream together shall hold no more: idle chunks go back now if they do, and the arena maps no more than
  // the limit allows. Does not stop upstream. 0: no limit. Bytes.
  void SetHeldLimit(Bytes limit) noexcept;

  // device_runtime_sleep.cc. Blocks of the arenas go to sleep and wake (device_sleep.h): no kernel may use one that
  // sleeps, and none that is under way may be captured. Errors say what is in the way, and then nothing has changed.
  [[nodiscard]] Result<SleepFigures> Sleep(const SleepOrder& order);
  [[nodiscard]] Result<SleepFigures> Wake(const TagNames& tags);
  [[nodiscard]] Status ReadAsleep(const void* pointer, Bytes bytes, void* to) const;
  // Memory of the host for that: takes it before it is needed, gives back what no sleeping block needs. Bytes.
  [[nodiscard]] Status ReserveHostPool(Bytes bytes);
  Bytes ReleaseHostPool();

  // It is notified before and after parts of the arena go back to the device or are mapped again. Lives as long as the
  // runtime.
  void SetArenaListener(ArenaListener* listener) noexcept;

  // For another process to map the live block of the arena that `pointer` lies in, from there to its end. The block
  // must live until that process is done with it: its chunks stay where they are as long, and their descriptors open.
  [[nodiscard]] Result<ExportedBlock> Export(const void* pointer) const;

  // Opens the arenas to the peer devices that the driver learned of since they were mapped.
  DriverStatus RefreshAccess() noexcept;

  // In a forked child: nothing is served from, given back to or exported of the arena any more, no driver call is made.
  void BecomeInert() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stalloc
