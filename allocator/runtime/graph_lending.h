// GraphLending: graphs' pools that serve slots of one plan between launches (docs/design/allocator.md, Graphs).
//
//   waits --layout is the plan's, first launch of an iteration--> lent --surprise, opened, asleep--> taken back -->
//   waits
//                                                                   \--left, not followable, too many surprises--> over
//
// A pool of the run is the plan's when the sizes and places of all its requests are (pool_layout.h). Then its memory is
// mapped in the arena as well, and what its launches do not always need is open to the plan's slots. A launch closes
// what it needs, and its stream runs behind all who used that. Blocks that are there all the same, a surprise, get
// memory of their own at their addresses, once the device is done: the launch costs that time, and never goes ahead
// over them.
//
// Thread-safe, noexcept after construction. Calls for one pool may come from several threads at a time. Bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "allocator/arena/arena.h"
#include "allocator/backing/idle_chunks.h"
#include "allocator/driver/vmm_driver.h"
#include "allocator/engine/plan_engine.h"
#include "allocator/graphs/graph_pools.h"
#include "allocator/graphs/launch_listener.h"
#include "proto/model/plan.h"

namespace stalloc {

class GraphLending {
 public:
  using Verdict = LaunchListener::Verdict;
  struct Parts {
    DeviceIndex device = 0;
    VmmDriver* driver = nullptr;
    Arena* arena = nullptr;
    PlanEngine* engine = nullptr;
    IdleChunks* chunks = nullptr;
    const GraphPools* pools = nullptr;
  };
  // All parts outlive this.
  GraphLending(Parts parts, const std::vector<LentPool>& pools);

  // An iteration begins: pools that wait may be lent from the next launch on.
  void OnIteration() noexcept { iterations_.fetch_add(1, std::memory_order_relaxed); }

  // As LaunchListener's, for pools of the plan; others are none of this. The caller holds the pool's launch mutex.
  [[nodiscard]] Verdict BeforeLaunch(std::uint32_t number, GraphId graph, StreamHandle stream) noexcept;
  void AfterLaunch(std::uint32_t number, GraphId graph) noexcept;

  // Nothing is lent of the pool any more, and no block of the program lies in its memory. False where that is not
  // possible, since the device cannot be waited for or has no memory. `for_good`: nor will it be again.
  bool TakeBack(std::uint32_t number, bool for_good) noexcept;
  bool TakeBackAll() noexcept;

  struct Counts {
    std::uint64_t times_lent = 0;  // pools, with those that were lent again
    std::uint64_t surprises = 0;
    Bytes lent_bytes = 0;  // open now, if no graph runs
  };
  [[nodiscard]] Counts GetCounts() const noexcept;

 private:
  enum class State : std::uint8_t { kWaits, kLent, kTakenBack, kOver };
  struct Pool {
    LentPool of_plan;
    std::size_t index = 0;     // in the plan's lent_pools
    Offset begin = 0;          // in the arena
    mutable std::mutex mutex;  // guards what follows
    State state = State::kWaits;
    std::uint64_t version = 0;        // of the catalog that is not the plan's
    std::uint64_t tried_in = 0;       // iteration
    std::vector<GraphRanges> graphs;  // by id - 1; of the layout that is the plan's
    std::uint64_t surprises = 0;
    std::uint64_t times_lent = 0;
    Bytes lent_bytes = 0;
  };
  static constexpr std::uint64_t kMostSurprises = 3;

  [[nodiscard]] Pool* Find(std::uint32_t number) noexcept;
  // All REQUIRE: the pool's mutex is held.
  void TryToLend(Pool& pool) noexcept;
  void Lend(Pool& pool, const PoolCatalog& catalog, const PoolLayout& layout) noexcept;
  [[nodiscard]] bool Borrow(Pool& pool, const PoolLayout& layout, std::vector<Arena::Range>* borrowed) noexcept;
  [[nodiscard]] Verdict MakeWay(Pool& pool, const GraphRanges& graph, StreamHandle stream) noexcept;
  [[nodiscard]] DriverStatus OwnBlocks(Pool& pool) noexcept;
  [[nodiscard]] DriverStatus TakeBack(Pool& pool, State then) noexcept;

  const Parts parts_;
  std::vector<std::unique_ptr<Pool>> pools_;
  std::atomic<std::uint64_t> iterations_{1};
};

}  // namespace stalloc
