// GraphLending: graphs' pools that serve slots of one plan between launches (docs/design/allocator.md, Graphs).
//
//   waits --nothing new, first launch of an iteration--> lent --surprise, opened, asleep--> taken back -->
//   waits                                                           \--left, not followable, too many surprises--> over
//         --all captured that the plan has, nothing launched yet--> lent
//
// Once nothing is captured in a pool any more its memory is mapped in the arena as well, and what its launches do not
// always need is open to requests that find no space in the arena as it is mapped. Where the pool is the plan's, since
// it has as many requests and bytes, it is open to the plan's slots, too, with memory of the arena's own where the plan
// has it between or after the pool's: mapped when a slot first needs it. A launch closes what it needs, and its stream
// runs after all who used that. Blocks that are there all the same, a surprise, get memory of their own at their
// addresses, once the device is done: the launch costs that time, and never goes ahead over them.
//
// Thread-safe, noexcept after construction. Calls for one pool may come from several threads at a time. Bytes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "allocator/arena/arena.h"
#include "allocator/backing/idle_chunks.h"
#include "allocator/driver/vmm_driver.h"
#include "allocator/engine/plan_engine.h"
#include "allocator/graphs/graph_pools.h"
#include "allocator/graphs/launch_listener.h"
#include "allocator/runtime/graph_poison.h"
#include "proto/model/plan.h"

namespace stalloc {

class PoolPlaces;

class GraphLending {
 public:
  using Verdict = LaunchListener::Verdict;
  using Answer = LaunchListener::Answer;
  struct Parts {
    DeviceIndex device = 0;
    VmmDriver* driver = nullptr;
    Arena* arena = nullptr;
    PlanEngine* engine = nullptr;
    IdleChunks* chunks = nullptr;
    const GraphPools* pools = nullptr;
    GraphPoison* poison = nullptr;  // null: what is lent is not filled
  };
  // All parts outlive this.
  GraphLending(Parts parts, const std::vector<LentPool>& pools);

  // An iteration begins: pools that wait may be lent from the next launch on.
  void OnIteration() noexcept { iterations_.fetch_add(1, std::memory_order_relaxed); }

  // The pool has closed. Lends it to the calling thread, if all is captured that the plan has and nothing was launched:
  // the plan may have requests there before the first launch. Not where it is to be filled, which takes a stream. The
  // caller holds the pool's launch mutex.
  void PoolCloses(std::uint32_t number) noexcept;

  // As LaunchListener's. The caller holds the pool's launch mutex.
  [[nodiscard]] Answer BeforeLaunch(std::uint32_t number, GraphId graph, StreamHandle stream) noexcept;
  void AfterLaunch(std::uint32_t number, GraphId graph) noexcept;
  // Before AfterLaunch: what the launch leaves idle was filled.
  void NotePoisoned(std::uint32_t number, GraphId graph) noexcept;

  // Nothing is lent of the pool any more, and no block of the program lies in its memory. False where that is not
  // possible, since the device cannot be waited for or has no memory. `for_good`: nor will it be again.
  bool TakeBack(std::uint32_t number, bool for_good) noexcept;
  bool TakeBackAll();

  struct Counts {
    std::uint64_t times_lent = 0;  // pools, with those that were lent again
    std::uint64_t surprises = 0;
    Bytes lent_bytes = 0;  // open now, if no graph runs
    Bytes most_bytes = 0;  // the same, at any time
  };
  [[nodiscard]] Counts GetCounts() const;

 private:
  enum class State : std::uint8_t { kWaits, kLent, kTakenBack, kOver };
  struct Pool {
    std::uint32_t number = 0;
    mutable std::mutex mutex;         // guards what follows, but for the counts
    std::optional<LentPool> of_plan;  // none: the plan does not know it, or another one
    std::size_t index = 0;            // the engine's
    Arena::Range place;               // in the arena; of no bytes: none yet
    std::vector<Arena::Range> own;    // of it: what serves slots and is never borrowed, while it is lent
    State state = State::kWaits;
    bool may_have_launched = false;
    std::optional<std::thread::id> early;  // lent to this thread, before any launch
    std::uint64_t version = 0;             // of the catalog in the last iteration in which it was looked at
    std::uint64_t tried_in = 0;            // iteration
    std::uint64_t hopeless = 0;            // version of the catalog that has nothing to lend
    std::vector<GraphRanges> graphs;       // by id - 1; of the layout that was lent last
    std::atomic<std::uint64_t> surprises{0};
    std::atomic<std::uint64_t> times_lent{0};
    std::atomic<Bytes> lent_bytes{0};
    std::atomic<Bytes> most_bytes{0};
  };
  static constexpr std::uint64_t kMostSurprises = 3;
  static constexpr std::chrono::seconds kPatience{2};
  static constexpr std::uint64_t kMostTimes = 64;  // that a pool is lent: each costs a wait for the device

  // Null where it is not known, and cannot be.
  [[nodiscard]] Pool* Find(std::uint32_t number) const noexcept;
  [[nodiscard]] Pool* Get(std::uint32_t number) noexcept;
  [[nodiscard]] std::vector<Pool*> All() const;
  // All REQUIRE: the pool's mutex is held.
  void TryToLend(Pool& pool, StreamHandle stream) noexcept;
  [[nodiscard]] bool IsPlanned(const Pool& pool, const PoolCatalog& catalog, const PoolLayout& layout) const;
  [[nodiscard]] bool CanLendAroundBlocks(const Pool& pool, const PoolCatalog& catalog) const;
  [[nodiscard]] bool FindPlace(Pool& pool, const PoolLayout& layout);
  void Lend(Pool& pool, const GraphPool& found, const PoolLayout& layout, StreamHandle stream);
  [[nodiscard]] std::vector<GranuleRange> Borrow(const Pool& pool, const PoolPlaces& places);
  void FindOwn(Pool& pool, const std::vector<Arena::Range>& blocks);
  // `blocks`: that live in the pool's place, ascending; the device is done with those that did before.
  void ReleaseOwned(const Pool& pool, const std::vector<Arena::Range>& blocks);
  [[nodiscard]] std::vector<Arena::Range> BlocksIn(const Pool& pool) const;
  // False: blocks of the thread that it was lent to early are still there.
  [[nodiscard]] bool EndEarly(Pool& pool) noexcept;
  [[nodiscard]] bool AwaitEarlyBlocks(const Pool& pool) noexcept;
  [[nodiscard]] Answer MakeWay(Pool& pool, const GraphRanges& graph, StreamHandle stream) noexcept;
  [[nodiscard]] Answer NoteLaunch(const GraphRanges& graph) noexcept;
  [[nodiscard]] Answer CarriedGone(const GraphRanges& graph) const noexcept;
  void TellSurprise(const Pool& pool, bool is_last) const noexcept;
  [[nodiscard]] DriverStatus OwnBlocks(const std::vector<Arena::Range>& blocks) noexcept;
  [[nodiscard]] DriverStatus TakeBack(Pool& pool, State then) noexcept;

  const Parts parts_;
  mutable std::mutex table_mutex_;  // guards the next one; pools stay
  std::vector<std::unique_ptr<Pool>> pools_;
  std::atomic<std::uint64_t> iterations_{1};
};

}  // namespace stalloc
