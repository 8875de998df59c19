// Captured graphs, whose pools serve requests of the plan between launches: each arena looks after its own.
#include <algorithm>

#include "allocator/runtime/device_runtime_impl.h"

namespace stalloc {

LaunchListener::Verdict DeviceRuntime::Impl::BeforeLaunch(std::uint32_t pool, GraphId graph,
                                                          StreamHandle stream) noexcept {
  for (PlannedSpace* const space : spaces.All()) {
    GraphLending* const lending = space->lending();
    const Verdict verdict = lending != nullptr ? lending->BeforeLaunch(pool, graph, stream) : Verdict::kLaunch;
    if (verdict != Verdict::kLaunch) return verdict;
  }
  return Verdict::kLaunch;
}

void DeviceRuntime::Impl::AfterLaunch(std::uint32_t pool, GraphId graph, StreamHandle /*stream*/) noexcept {
  for (PlannedSpace* const space : spaces.All()) {
    if (space->lending() != nullptr) space->lending()->AfterLaunch(pool, graph);
  }
}

bool DeviceRuntime::Impl::TakeBackPool(std::uint32_t pool, bool for_good) noexcept {
  return std::ranges::all_of(spaces.All(), [&](PlannedSpace* space) {
    return space->lending() == nullptr || space->lending()->TakeBack(pool, for_good);
  });
}

bool DeviceRuntime::Impl::TakeBackPools() noexcept {
  return std::ranges::all_of(
      spaces.All(), [](PlannedSpace* space) { return space->lending() == nullptr || space->lending()->TakeBackAll(); });
}

bool DeviceRuntime::Impl::PoolOpens(std::uint32_t pool) noexcept { return TakeBackPool(pool, /*for_good=*/false); }

void DeviceRuntime::Impl::PoolCloses(std::uint32_t /*pool*/) noexcept {}

// Where a block cannot leave, the mapping in the arena keeps its memory.
void DeviceRuntime::Impl::PoolLeft(std::uint32_t pool) noexcept { (void)TakeBackPool(pool, /*for_good=*/true); }

bool DeviceRuntime::Impl::Unfollowable(std::uint32_t pool, const char* /*why*/) noexcept {
  return TakeBackPool(pool, /*for_good=*/true);
}

}  // namespace stalloc
