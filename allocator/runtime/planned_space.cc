#include "allocator/runtime/planned_space.h"

#include <algorithm>
#include <string>
#include <vector>

#include "allocator/base/log.h"
#include "allocator/runtime/human_bytes.h"

namespace stalloc {
namespace {

// A transient part smaller than this is not worth a handle of its own.
constexpr Bytes kLeastChunk = Bytes{64} << 20;

std::string DescribeFailure(VmmDriver& driver, const DriverStatus& status, Bytes needed) {
  MemoryInfo info;
  std::string free = "unknown";
  if (driver.GetMemoryInfo(&info).ok()) {
    free = std::string(HumanBytes(info.free).text).append(" of ").append(HumanBytes(info.total).text);
  }
  return std::string("the plan's arena cannot be mapped (")
      .append(status.call)
      .append(" failed, code ")
      .append(std::to_string(status.native))
      .append("): needed ")
      .append(HumanBytes(needed).text)
      .append(", free ")
      .append(free);
}

DriverStatus MapChunks(Arena& arena, const DevicePlan& plan, Bytes granularity) {
  const Bytes height = RoundUp(plan.arena_bytes, granularity);
  const Bytes persistent = PersistentTop(plan, granularity);
  if (persistent > 0 && height - persistent >= kLeastChunk) {
    if (const DriverStatus status = arena.GrowTo(persistent); !status.ok()) return status;
  }
  return arena.GrowTo(height);
}

}  // namespace

Bytes PersistentTop(const DevicePlan& plan, Bytes granularity) {
  Bytes top = 0;
  const auto raise = [&](const std::vector<Script>& scripts) {
    for (const Script& script : scripts) {
      for (const Entry& entry : script.entries) {
        if (entry.slot == kNoSlot) continue;
        if (entry.entry_class != EntryClass::kPersistent && entry.expected_life != 0) continue;
        const Slot& slot = plan.slots[entry.slot];
        top = std::max(top, slot.offset + slot.capacity);
      }
    }
  };
  raise(plan.prologue);
  raise(plan.cycle);
  return std::min(RoundUp(top, granularity), RoundUp(plan.arena_bytes, granularity));
}

std::unique_ptr<PlannedSpace> PlannedSpace::Create(VmmDriver& driver, StreamFence* fence, const DevicePlan& plan,
                                                   std::string* why) {
  std::unique_ptr<PlannedSpace> space(new PlannedSpace(driver, plan));
  DriverStatus status;
  space->arena_ = Arena::Create(driver, plan.arena_bytes, &status);
  if (space->arena_ != nullptr) status = MapChunks(*space->arena_, plan, driver.Granularity());
  if (space->arena_ == nullptr || !status.ok()) {
    *why = DescribeFailure(driver, status, plan.arena_bytes);
    return nullptr;
  }
  void* const base = reinterpret_cast<void*>(space->arena_->base());
  space->engine_ = std::make_unique<PlanEngine>(space->plan_, base, fence);
  return space;
}

bool PlannedSpace::Judge(const Resemblance::Totals& totals) noexcept {
  if (gave_up()) return false;
  const std::lock_guard lock(mutex_);
  if (!resemblance_.OnIteration(totals)) return false;
  engine_->Deactivate();
  gave_up_.store(true, std::memory_order_relaxed);
  Log(LogSeverity::kWarning,
      "this run does not resemble its plan: %llu of %llu requests served in the last iteration; was the plan made for "
      "another model? The run goes on without it; its arena of %s goes back as it becomes idle",
      static_cast<unsigned long long>(resemblance_.last().hits),
      static_cast<unsigned long long>(resemblance_.last().expected), HumanBytes(arena_->mapped_bytes()).text);
  return true;
}

Bytes PlannedSpace::ReleaseIdle() noexcept {
  if (!gave_up() || arena_->mapped_bytes() == 0) return 0;
  const std::lock_guard lock(mutex_);
  // The engine serves nothing any more, so what is idle now stays idle.
  Offset top = 0;
  for (const LiveBlock& block : engine_->LiveBlocks()) top = std::max(top, block.offset + block.bytes);
  top = RoundUp(top, driver_.Granularity());
  if (top >= arena_->mapped_bytes()) return 0;
  // Kernels given out before the last free may still read there.
  if (!driver_.Synchronize().ok()) return 0;
  return arena_->ShrinkTo(top);
}

}  // namespace stalloc
