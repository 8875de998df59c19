#include "allocator/runtime/planned_space.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "allocator/backing/chunk_bytes.h"
#include "allocator/base/log.h"
#include "allocator/runtime/human_bytes.h"

namespace stalloc {
namespace {

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

// Without a plan small blocks lie in the arena, too: most of what it is for is weights and state.
DynamicSpaceOptions OptionsOf(const Arena& arena, Bytes height, bool has_plan, const Rules& rules) {
  return {.limit_bytes = arena.reserved_bytes(),
          .mapped_bytes = height,
          .least_bytes = has_plan ? SmallBlockBytes(height) : 0,
          .rules = rules};
}

// Addresses cost nothing: whatever lies idle below, there is room for as much as the device has.
Bytes ReserveBytes(Bytes device_bytes, Bytes arena_bytes, bool dynamic) {
  return dynamic ? arena_bytes + device_bytes : arena_bytes;
}

// Requests over 512 B that have a slot, in the iteration that has fewest.
std::uint64_t LeastPlanned(const DevicePlan& plan) {
  std::uint64_t least = ~std::uint64_t{0};
  for (const Script& script : plan.cycle) {
    const auto planned = std::count_if(script.entries.begin(), script.entries.end(), [](const Entry& entry) {
      return entry.slot != kNoSlot && entry.bytes > kBlockAlignment;
    });
    least = std::min(least, static_cast<std::uint64_t>(planned));
  }
  return plan.cycle.empty() ? 0 : least;
}

}  // namespace

PlannedSpace::PlannedSpace(const DevicePlan& plan)
    : plan_(plan), has_plan_(!IsEmpty(plan)), varying_(plan), resemblance_(LeastPlanned(plan)) {}

std::unique_ptr<PlannedSpace> PlannedSpace::Create(VmmDriver& driver, StreamFence* fence, const DevicePlan& plan,
                                                   Options chosen, std::string* why) {
  std::unique_ptr<PlannedSpace> space(new PlannedSpace(plan));
  if (!space->MapArena(driver, chosen, why)) return nullptr;
  space->Serve(driver, fence, chosen);
  return space;
}

bool PlannedSpace::MapArena(VmmDriver& driver, const Options& chosen, std::string* why) {
  MemoryInfo info;
  if (!driver.GetMemoryInfo(&info).ok()) info.total = 0;
  const Bytes reserve = ReserveBytes(info.total, plan_.arena_bytes, chosen.dynamic);
  const ChunkSizes sizes = has_plan_ ? ChunkSizesOf(plan_) : ChunkSizesWithoutPlan(info.total);
  DriverStatus status;
  arena_ = Arena::Create(driver, reserve, &status, sizes);
  if (arena_ != nullptr && has_plan_ && !chosen.maps_late) status = MapPlan(*arena_, plan_);
  if (arena_ != nullptr && status.ok()) return true;
  *why = DescribeFailure(driver, status, plan_.arena_bytes);
  return false;
}

void PlannedSpace::Serve(VmmDriver& driver, StreamFence* fence, const Options& chosen) {
  void* const base = reinterpret_cast<void*>(arena_->base());
  const Bytes height = RoundUp(plan_.arena_bytes, driver.Granularity());
  const DynamicSpaceOptions options =
      chosen.dynamic ? OptionsOf(*arena_, height, has_plan_, chosen.rules) : DynamicSpaceOptions{};
  engine_ = std::make_unique<PlanEngine>(plan_, base, fence, options);
  if (chosen.dynamic) least_dynamic_ = options.least_bytes;
  if (chosen.maps_late) engine_->Withdraw(0, height);
  chunks_ = std::make_unique<IdleChunks>(driver, fence, *arena_, *engine_, plan_, chosen.rules);
  if (chosen.maps_late) chunks_->MapLate();
  if (chosen.moves_at_marks) chunks_->MoveAtMarks();
}

Bytes PlannedSpace::GiveBackEnded() noexcept {
  const std::uint64_t live = engine_->Stats().live_blocks;
  return live_blocks_.exchange(live, std::memory_order_relaxed) == live ? 0 : GiveBackIdle();
}

bool PlannedSpace::Judge(const Resemblance::Totals& totals, bool fills) noexcept {
  if (gave_up()) return false;
  chunks_->TryAgain();
  if (!has_plan_) return false;
  const std::lock_guard lock(mutex_);
  const Resemblance::Verdict verdict = resemblance_.OnIteration(totals, fills);
  if (verdict == Resemblance::Verdict::kResembles) return false;
  const bool first = !departed_.exchange(true, std::memory_order_relaxed);
  if (verdict == Resemblance::Verdict::kServedAnyway && first) {
    Log(LogSeverity::kWarning,
        "this run asks for other sizes than its plan has: %llu of %llu requests had slots in the last iteration; the "
        "others are in the arena beside them. A plan from a trace of this run needs less and takes less time",
        static_cast<unsigned long long>(resemblance_.last().hits),
        static_cast<unsigned long long>(resemblance_.last().expected));
  }
  if (verdict != Resemblance::Verdict::kGiveUp) return false;
  engine_->Deactivate();
  gave_up_.store(true, std::memory_order_relaxed);
  Log(LogSeverity::kWarning,
      "this run does not resemble its plan: %llu of %llu requests served in the last iteration; was the plan made for "
      "another model? The run goes on without it; its arena of %s goes back as it becomes idle",
      static_cast<unsigned long long>(resemblance_.last().hits),
      static_cast<unsigned long long>(resemblance_.last().expected), HumanBytes(arena_->mapped_bytes()).text);
  return true;
}

}  // namespace stalloc
