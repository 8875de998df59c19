// Captured graphs, whose pools serve requests of the plan between launches: each arena looks after its own.
#include <algorithm>
#include <new>
#include <string>
#include <string_view>

#include "allocator/runtime/device_runtime_impl.h"

namespace stalloc {

LaunchListener::Answer DeviceRuntime::Impl::BeforeLaunch(std::uint32_t pool, GraphId graph,
                                                         StreamHandle stream) noexcept {
  PlannedSpace* const serving = spaces.Serving();
  for (PlannedSpace* const space : spaces.All()) {
    GraphLending* const lending = space->lending();
    if (lending == nullptr) continue;
    // The arenas before know nothing of what lies in the pool for the one that serves.
    if (space != serving && !lending->TakeBack(pool, /*for_good=*/true)) return {.verdict = Verdict::kOutOfMemory};
    const Answer answer = lending->BeforeLaunch(pool, graph, stream);
    if (answer.verdict != Verdict::kLaunch) return answer;
  }
  return {};
}

// Others get the bytes after the fill.
void DeviceRuntime::Impl::AfterLaunch(std::uint32_t pool, GraphId graph, StreamHandle stream) noexcept {
  const GraphPool* const launched = poison != nullptr ? parts.graphs->Find(pool) : nullptr;
  const bool is_filled = launched != nullptr && poison->AfterLaunch(*launched, graph, stream);
  if (launched != nullptr && !is_filled) (void)TakeBackPool(pool, /*for_good=*/true);
  for (PlannedSpace* const space : spaces.All()) {
    GraphLending* const lending = space->lending();
    if (lending == nullptr) continue;
    if (is_filled) lending->NotePoisoned(pool, graph);
    lending->AfterLaunch(pool, graph);
  }
}

bool DeviceRuntime::Impl::TakeBackPool(std::uint32_t pool, bool for_good) noexcept {
  return std::ranges::all_of(spaces.All(), [&](PlannedSpace* space) {
    return space->lending() == nullptr || space->lending()->TakeBack(pool, for_good);
  });
}

bool DeviceRuntime::Impl::TakeBackPools() {
  return std::ranges::all_of(
      spaces.All(), [](PlannedSpace* space) { return space->lending() == nullptr || space->lending()->TakeBackAll(); });
}

bool DeviceRuntime::Impl::PoolOpens(std::uint32_t pool) noexcept { return TakeBackPool(pool, /*for_good=*/false); }

void DeviceRuntime::Impl::PoolCloses(std::uint32_t pool) noexcept {
  PlannedSpace* const space = spaces.Serving();
  if (space != nullptr && space->lending() != nullptr) space->lending()->PoolCloses(pool);
}

// Where a block cannot leave, the mapping in the arena keeps its memory.
void DeviceRuntime::Impl::PoolLeft(std::uint32_t pool) noexcept { (void)TakeBackPool(pool, /*for_good=*/true); }

bool DeviceRuntime::Impl::Unfollowable(std::uint32_t pool, const char* /*why*/) noexcept {
  return TakeBackPool(pool, /*for_good=*/true);
}

void DeviceRuntime::Impl::CountOpenPools(int more) noexcept {
  PlannedSpace* const space = spaces.Serving();
  if (space == nullptr || inert.load(std::memory_order_relaxed)) return;
  const Bytes held = parts.upstream->HeldBytes().current;
  Bytes taken = 0;
  {
    const LockGuard lock(cold);
    if (open_pools > 0 && held > held_at_pools) taken = held - held_at_pools;
    held_at_pools = held;
    open_pools = std::max(0, open_pools + more);
  }
  if (taken > 0) space->chunks().TakenByOthers(taken);
}

void DeviceRuntime::UpstreamPoolOpens() noexcept { impl_->CountOpenPools(1); }
void DeviceRuntime::UpstreamPoolCloses() noexcept { impl_->CountOpenPools(-1); }

void DeviceRuntime::Impl::MarkGraph(std::uint32_t pool, GraphId graph, std::string_view what, bool begins) noexcept {
  if (recorder() == nullptr) return;
  try {
    std::uint32_t number = 0;
    {
      const LockGuard lock(cold);
      number = graph_numbers.try_emplace({pool, graph}, graph_numbers.size()).first->second;
    }
    MarkLayer(kGraphMarkPrefix, number, what, begins ? MarkEdge::kBegin : MarkEdge::kEnd);
  } catch (const std::bad_alloc&) {  // the trace lacks a mark
  }
}

void DeviceRuntime::Impl::MarkLayer(std::string_view prefix, std::uint32_t number, std::string_view what,
                                    MarkEdge edge) {
  Recorder* const writer = recorder();
  if (writer == nullptr) return;
  writer->Marked({.kind = MarkKind::kLayer,
                  .edge = edge,
                  .pass = Pass::kForward,
                  .name = std::string(prefix) + std::to_string(number) + std::string(what)});
}

void DeviceRuntime::Impl::SeesCapture(std::uint32_t pool, GraphId graph, bool begins) noexcept {
  MarkGraph(pool, graph, kCaptureMarkSuffix, begins);
}

void DeviceRuntime::Impl::SeesRestorable(std::uint32_t pool) noexcept {
  try {
    MarkLayer(kRestorablePoolPrefix, pool, "", MarkEdge::kBegin);
    MarkLayer(kRestorablePoolPrefix, pool, "", MarkEdge::kEnd);
  } catch (const std::bad_alloc&) {  // the plan takes what is carried for lendable, the run does not lend it
  }
}

void DeviceRuntime::Impl::SeesLaunch(std::uint32_t pool, GraphId graph, bool begins) noexcept {
  MarkGraph(pool, graph, kReplayMarkSuffix, begins);
}

}  // namespace stalloc
