#include "allocator/runtime/planned_space.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "allocator/backing/chunk_bytes.h"
#include "allocator/base/log.h"
#include "allocator/base/mutex.h"
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
  return {.limit_bytes = arena.borrow_begin(),
          .mapped_bytes = height,
          .least_bytes = has_plan ? SmallBlockBytes(height) : 0,
          .rules = rules,
          .lent_begin = arena.borrow_begin(),
          .lent_bytes = arena.reserved_bytes() - arena.borrow_begin()};
}

// Holes between blocks cost addresses, and no memory: chunks of a full device move.
constexpr Bytes kExactAddresses = 3;

// Addresses cost nothing: whatever lies idle below, there is space for as much as the device has.
Bytes ReserveBytes(Bytes device_bytes, Bytes arena_bytes, const PlannedSpace::Options& chosen) {
  if (!chosen.dynamic) return arena_bytes;
  return arena_bytes + (chosen.exact ? kExactAddresses : 1) * device_bytes;
}

// Addresses for graphs' pools: the plan's, and as much as the device has for others.
Bytes BorrowBytes(const DevicePlan& plan, Bytes device_bytes) {
  Bytes bytes = device_bytes;
  for (const LentPool& pool : plan.lent_pools) bytes += pool.extent();
  return bytes;
}

// For what is mapped such a part is worth a wait for the device.
constexpr Bytes kMuchParts = 16;

// What PyTorch's allocator takes for a small block.
constexpr Bytes kLeastSegment = Bytes{2} << 20;

// What a warning says of what is held.
class HeldText {
 public:
  HeldText(const IterationPeaks& peaks, Bytes native) noexcept {
    const HumanBytes would(native);
    std::snprintf(text_.data(), text_.size(), "held %s for %s live (PyTorch's allocator would hold %s)",
                  HumanBytes(peaks.held).text, HumanBytes(peaks.live).text,
                  native != 0 ? would.text : "an unknown sum");
  }
  [[nodiscard]] const char* text() const noexcept { return text_.data(); }

 private:
  std::array<char, 160> text_{};
};

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
  if (!driver.GetMemoryInfo(&info).ok()) info = {};
  const Bytes reserve = ReserveBytes(info.total, plan_.arena_bytes, chosen);
  const Bytes free = FreeMemory::Left(info, chosen.keep_free);
  const Bytes left = free - std::min(free, plan_.arena_bytes);
  Bytes chunk = has_plan_ ? ChunkBytesOf(plan_, left) : ChunkBytesWithoutPlan(info.total);
  if (chosen.exact) chunk = driver.Granularity();
  DriverStatus status;
  const bool shares = has_plan_ && chosen.dynamic && chosen.graphs != nullptr;
  arena_ = Arena::Create(driver, reserve, &status, chunk, shares ? BorrowBytes(plan_, info.total) : 0);
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
  chunks_ = std::make_unique<IdleChunks>(driver, fence, *arena_, *engine_, plan_, chosen.keep_free);
  if (chosen.moves_at_marks) chunks_->MoveAtMarks();
  if (arena_->borrow_begin() < arena_->reserved_bytes()) {
    lending_ = std::make_unique<GraphLending>(GraphLending::Parts{.device = chosen.device,
                                                                  .driver = &driver,
                                                                  .arena = arena_.get(),
                                                                  .engine = engine_.get(),
                                                                  .chunks = chunks_.get(),
                                                                  .pools = chosen.graphs,
                                                                  .poison = chosen.poison},
                                              plan_.lent_pools);
  }
  mutex_.AssertHeld();  // nobody else knows it yet
  fit_.emplace(arena_->chunk_bytes() + kLeastSegment);
}

Bytes PlannedSpace::GiveBackEnded() noexcept {
  const std::uint64_t live = engine_->Stats().live_blocks;
  return live_blocks_.exchange(live, std::memory_order_relaxed) == live ? 0 : GiveBackIdle();
}

Bytes PlannedSpace::IdleBytes() const noexcept {
  const Bytes mapped = arena_->mapped_bytes();
  return mapped - std::min(mapped, engine_->Stats().live_bytes);
}

Bytes PlannedSpace::GiveBackForAnother() noexcept {
  const Bytes much = std::max(arena_->mapped_bytes() / kMuchParts, arena_->chunk_bytes());
  if (IdleBytes() < left_idle_.load(std::memory_order_relaxed) + much) return 0;
  const Bytes released = chunks_->TryGiveBack();
  left_idle_.store(IdleBytes(), std::memory_order_relaxed);
  return released;
}

bool PlannedSpace::Judge(const Iteration& iteration) noexcept {
  if (gave_up()) return LeaveOver();
  chunks_->BeginIteration();
  if (!has_plan_) return false;
  const LockGuard lock(mutex_);
  const Finding finding = Look(iteration);
  if (finding == Finding::kUnlike || finding == Finding::kServedAnyway) unlike_.store(true, std::memory_order_relaxed);
  const bool gives_up = finding == Finding::kUnlike || finding == Finding::kHoldsMore;
  const bool is_news = !departed_.load(std::memory_order_relaxed) || gives_up;
  if (finding != Finding::kFits && is_news) {
    departed_.store(true, std::memory_order_relaxed);
    Report(finding, iteration);
  }
  if (!gives_up) {
    GiveBackLongIdle();
    return false;
  }
  GiveUp();
  return true;
}

PlannedSpace::Finding PlannedSpace::Look(const Iteration& iteration) noexcept {
  const IterationPeaks& peaks = iteration.peaks;
  // On a free card the arena has grown instead of making its blocks wait, and keeps what larger iterations needed: no
  // sign of another run. Nor is what a card holds that was full.
  const Bytes mapped = arena_->mapped_bytes();
  const Bytes allowed = mapped > plan_.arena_bytes && !iteration.replaceable ? chunks_->MayHaveGrownTo() : 0;
  const bool is_free = chunks_->is_card_free();
  const Bytes lived = is_free ? std::max(peaks.live, iteration.lived) : peaks.live;
  const bool fills =
      lived >= peaks.held / 16 * 15 || peaks.held <= std::max(iteration.other, allowed) || chunks_->settles();
  const Resemblance::Verdict likeness = resemblance_.OnIteration(iteration.totals, fills);
  PlanFit::Course course = resemblance_.full() ? PlanFit::Course::kAsPlanned : PlanFit::Course::kPartly;
  if (resemblance_.poor()) course = PlanFit::Course::kNot;
  // Where the run goes on as planned, the arena has grown for a larger iteration.
  const Bytes grown = course == PlanFit::Course::kNot ? 0 : mapped - std::min(mapped, plan_.arena_bytes);
  const auto at_least = static_cast<Bytes>(static_cast<double>(peaks.live) * (is_free ? tuning::kLeastGrowth : 1));
  const Bytes anyway = std::max(at_least, allowed);
  const bool is_known = iteration.other != 0 && !chunks_->settles();
  fit_->OnIteration({.peaks = peaks,
                     .course = course,
                     .grown = grown,
                     .may_hold = is_free ? chunks_->growth() : 1,
                     .other = is_known ? std::max(iteration.other, anyway) : 0});
  fits_.store(fit_->fits(), std::memory_order_relaxed);
  if (likeness == Resemblance::Verdict::kGiveUp) return Finding::kUnlike;
  // For sizes that vary it is not known whether another plan would hold less, as long as they go on as planned.
  const bool needs_less = fit_->HoldsTooMuch() && (fit_->IsSteady() || resemblance_.poor());
  if (fit_->HoldsMoreThanOther() && (needs_less || !iteration.replaceable)) return Finding::kHoldsMore;
  if (likeness == Resemblance::Verdict::kServedAnyway) return Finding::kServedAnyway;
  return needs_less || fit_->HoldsMoreSteadily() ? Finding::kNeedsLess : Finding::kFits;
}

void PlannedSpace::Report(Finding finding, const Iteration& iteration) const noexcept {
  const auto hits = static_cast<unsigned long long>(resemblance_.last().hits);
  const auto expected = static_cast<unsigned long long>(resemblance_.last().expected);
  const HeldText held(iteration.peaks, iteration.native);
  const HumanBytes arena(arena_->mapped_bytes());
  switch (finding) {
    case Finding::kFits:
      break;
    case Finding::kUnlike:
      Log(LogSeverity::kWarning,
          "this run does not resemble its plan: %llu of %llu requests served in the last iteration, which %s; was the "
          "plan made for another model? The run goes on without it; its arena of %s goes back as it becomes idle",
          hits, expected, held.text(), arena.text);
      break;
    case Finding::kHoldsMore:
      Log(LogSeverity::kWarning,
          "this run's plan does not fit it: %d iterations in a row held more than they would without it, the last one "
          "%s. The run goes on without it; its arena of %s goes back as it becomes idle",
          PlanFit::kVerdict, held.text(), arena.text);
      break;
    case Finding::kServedAnyway:
      Log(LogSeverity::kWarning,
          "this run requests other sizes than its plan has: %llu of %llu requests had slots in the last iteration; the "
          "others are in the arena without a slot. A plan from a trace of this run needs less and takes less time",
          hits, expected);
      break;
    case Finding::kNeedsLess:
      Log(LogSeverity::kWarning,
          "this run needs less than its plan holds: %d iterations in a row held more than lived in them, the last one "
          "%s. A plan from a trace of this run holds less",
          PlanFit::kVerdict, held.text());
      break;
  }
}

// What was not used in any of the iterations that held too much. On a free card only what PyTorch would not hold.
void PlannedSpace::GiveBackLongIdle() noexcept {
  if (fit_->begins()) idle_since_ = engine_->NewStamp();
  if (chunks_->is_card_free() && !fit_->HeldMoreThanOther()) return;
  if (!fit_->Trims()) return;
  (void)chunks_->GiveBack(idle_since_);
  idle_since_ = engine_->NewStamp();
}

// Once what lived for an iteration or two only has gone: by then a chunk that is still there is there to stay.
bool PlannedSpace::LeaveOver() noexcept {
  if (++given_up_for_ == kLeavesOverAfter) engine_->ServeLeftOver();
  return false;
}

}  // namespace stalloc
