// What DeviceRuntime's sources share: device_runtime.cc (requests, frees, marks), device_runtime_plans.cc (arenas and
// plans that are taken up), device_runtime_observers.cc (who learns of blocks), device_runtime_sharing.cc (peers, other
// processes), device_runtime_oom.cc (what is said of a lack of memory), device_runtime_figures.cc (what is held and was
// served), device_runtime_fit.cc (whether a plan is worth that), device_runtime_graphs.cc (pools of graphs that serve
// requests).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "allocator/base/log.h"
#include "allocator/base/mutex.h"
#include "allocator/base/published.h"
#include "allocator/runtime/device_runtime.h"
#include "allocator/runtime/graph_poison.h"
#include "allocator/runtime/held_meter.h"
#include "allocator/runtime/ledger.h"
#include "allocator/runtime/native_held.h"
#include "allocator/runtime/oom_observer.h"
#include "allocator/runtime/out_of_memory.h"
#include "allocator/runtime/plan_doubt.h"
#include "allocator/runtime/plan_entries.h"
#include "allocator/runtime/request_counts.h"
#include "allocator/runtime/set_up_window.h"
#include "allocator/runtime/signature_observer.h"
#include "allocator/runtime/sleep_tags.h"
#include "allocator/runtime/spaces.h"
#include "allocator/runtime/trace_observer.h"
#include "allocator/runtime/upstream_cache.h"
#include "allocator/runtime/watch_observer.h"

namespace stalloc {

struct DeviceRuntime::Impl : ArenaListener, LaunchListener {
  explicit Impl(const Parts& given);

  static constexpr std::uint64_t kSettledAfter = 2;  // iterations that begin under a plan whose memory comes late

  const Parts parts;
  std::string degraded;
  std::unique_ptr<WatchObserver> watch;  // null: blocks are not watched
  std::unique_ptr<GraphPoison> poison;   // null: what graphs leave idle is not filled
  Spaces spaces;                         // none: there is no plan, and none will be taken up
  std::unique_ptr<DeviceSleep> sleep;    // null: nothing can sleep
  SetUpWindow set_up;                    // what the space without a plan serves
  PlanDoubt doubt;                       // of the plan that the run began with
  Mutex adding;                          // of spaces
  std::unique_ptr<PlannedSpace> without_plan
      STALLOC_GUARDED_BY(adding);  // serves when that plan is left; null: none; guarded by adding
  std::atomic<bool> left{false};
  bool traces_exactly = false;  // the space without a plan is an exact trace's; set before the first request
  std::atomic<bool> inert{false};
  std::atomic<ArenaListener*> listener{nullptr};
  std::atomic<Bytes> held_limit{0};
  std::atomic<std::uint64_t> reclaims{0};    // that gave something back
  std::atomic<std::uint64_t> settled_at{0};  // iterations begun when a plan that was taken up has its memory
  NativeHeld native;                         // what PyTorch's allocator would hold
  Bytes apart_at = 0;                        // what upstream held when the next was requested; of the thread of marks
  Bytes apart_held = 0;                      // of that in pools that are kept apart
  UpstreamCache upstream_cache;              // what it still has of what the arenas come to hold
  std::atomic<bool> has_next_space{false};   // may be: queried at every recorded request, without a lock
  mutable Mutex next_space_mutex;
  std::weak_ptr<PlannedSpace> next_space
      STALLOC_GUARDED_BY(next_space_mutex);  // prepared for a plan that is to be taken up; guarded by next_space_mutex
  Mutex change;                              // of one arena at a time: from BeforeArenaChange to AfterArenaChange
  std::unique_ptr<TraceObserver> trace;      // null: nothing is recorded at any time
  std::unique_ptr<SignatureObserver> signature;  // null: nobody wants it
  std::unique_ptr<OomObserver> oom;              // null: no reports are written
  BlockObservers observers;
  Published<PlanEntries> entries;  // where reports are written
  RequestCounts counts;
  Ledger ledger;
  LogThrottle unknown_frees{1};
  LogThrottle exact_full{1};

  mutable Mutex cold;  // guards what follows
  mutable HeldMeter meter STALLOC_GUARDED_BY(cold);
  mutable Bytes run_arena_bytes STALLOC_GUARDED_BY(cold) = 0;
  std::optional<std::uint64_t> taken_up_at
      STALLOC_GUARDED_BY(cold);  // iterations that had begun when a plan was taken up
  IterationPeaks last_iteration STALLOC_GUARDED_BY(cold);
  int open_pools STALLOC_GUARDED_BY(cold) = 0;       // upstream's
  Bytes held_at_pools STALLOC_GUARDED_BY(cold) = 0;  // by upstream, when their number changed last
  NativeHeld::Known native_known STALLOC_GUARDED_BY(cold);
  std::map<std::pair<std::uint32_t, GraphId>, std::uint32_t> graph_numbers
      STALLOC_GUARDED_BY(cold);  // in traces, by pool and capture

  // device_runtime_plans.cc
  void SetUpPlan() STALLOC_REQUIRES(adding);
  // An arena of weights and state, until a plan is taken up. Null where there can be none.
  std::unique_ptr<PlannedSpace> BuildWithoutPlan();
  // The plan that serves is another run's: in the midst of its first iteration, on any thread.
  void LeavePlan() noexcept;
  void AddSpace(std::shared_ptr<PlannedSpace> space) noexcept;
  // Null, and why, if there is none. Not served yet.
  std::unique_ptr<PlannedSpace> BuildSpace(const DevicePlan& plan, PlannedSpace::Options options, std::string* why);
  void Announce(PlannedSpace& space);
  void SetUpExact();

  // device_runtime.cc
  void* ServeFromPlan(PlannedSpace& space, Bytes requested, StreamHandle stream, Origin origin,
                      MissReason* reason) noexcept;
  void* ServeInSetUp(PlannedSpace& space, Bytes requested, StreamHandle stream, Origin origin) noexcept;
  void* ServeExactly(PlannedSpace& space, Bytes requested, StreamHandle stream, Origin origin) noexcept;
  void* Serve(PlannedSpace& space, Bytes requested, StreamHandle stream, Origin origin, MissReason* reason) noexcept;
  void* ServeFromUpstream(Bytes requested, StreamHandle stream, Origin origin, bool apart);
  Bytes Reclaim(Origin origin) noexcept;
  // For the arenas and of what is prepared; bytes.
  Bytes GiveBackIdle() noexcept;
  [[nodiscard]] bool IsWithinLimit(Bytes more) const noexcept;
  void UnknownFree(const void* pointer) noexcept;
  void OnIteration();
  void GiveBackEnded() noexcept;
  void GiveBackSoonEnded() noexcept;
  void Tag(const void* pointer, unsigned tag) noexcept;
  [[nodiscard]] Bytes LiveUpstream() const noexcept;  // bytes of its blocks
  [[nodiscard]] UpstreamCache::Figures UpstreamNow() const noexcept;
  void ReleaseUpstream(const UpstreamCache::Figures& now) noexcept;
  // What is held is sampled on either side of a change: see held_meter.h.
  void BeforeArenaChange() noexcept override STALLOC_NO_THREAD_SAFETY_ANALYSIS;  // takes `change`
  void AfterArenaChange() noexcept override STALLOC_NO_THREAD_SAFETY_ANALYSIS;   // lets it go
  [[nodiscard]] bool MayHold(Bytes more) noexcept override;
  [[nodiscard]] bool Owns(const void* pointer) const noexcept { return spaces.Of(pointer) != nullptr; }

  // device_runtime_graphs.cc
  [[nodiscard]] Answer BeforeLaunch(std::uint32_t pool, GraphId graph, StreamHandle stream) noexcept override;
  void AfterLaunch(std::uint32_t pool, GraphId graph, StreamHandle stream) noexcept override;
  [[nodiscard]] bool PoolOpens(std::uint32_t pool) noexcept override;
  void PoolCloses(std::uint32_t pool) noexcept override;
  void PoolLeft(std::uint32_t pool) noexcept override;
  [[nodiscard]] bool Unfollowable(std::uint32_t pool, const char* why) noexcept override;
  void SeesCapture(std::uint32_t pool, GraphId graph, bool begins) noexcept override;
  void SeesLaunch(std::uint32_t pool, GraphId graph, bool begins) noexcept override;
  void SeesRestorable(std::uint32_t pool) noexcept override;
  void MarkGraph(std::uint32_t pool, GraphId graph, std::string_view what, bool begins) noexcept;
  void MarkLayer(std::string_view prefix, std::uint32_t number, std::string_view what, MarkEdge edge);
  [[nodiscard]] bool TakeBackPool(std::uint32_t pool, bool for_good) noexcept;
  [[nodiscard]] bool TakeBackPools();
  void CountOpenPools(int more) noexcept;

  // device_runtime_sleep.cc
  [[nodiscard]] Status MaySleep() const;

  // device_runtime_oom.cc
  [[nodiscard]] OutOfMemoryFacts FactsOf(Bytes requested, StreamHandle stream) const;

  // device_runtime_figures.cc
  Upstream::Held Sample() const;
  [[nodiscard]] Recorder* recorder() const noexcept { return trace != nullptr ? trace->recorder() : nullptr; }
  [[nodiscard]] std::shared_ptr<PlannedSpace> NextSpace() const noexcept;
  [[nodiscard]] Bytes OwnBytes() const noexcept;
  // The iteration that ran has ended, another begins.
  IterationPeaks EndIteration() noexcept;
  void BeginIteration() noexcept;

  // device_runtime_fit.cc
  void Judge(PlannedSpace* space, const IterationPeaks& all);
  [[nodiscard]] std::vector<NativeFeed::LiveBlock> LiveForNative() const;
  [[nodiscard]] Bytes HeldApart(Bytes upstream);
  [[nodiscard]] Bytes IdleInRetired() const noexcept;
};

}  // namespace stalloc
