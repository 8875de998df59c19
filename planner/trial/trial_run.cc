#include "planner/trial/trial_run.h"

#include <algorithm>
#include <cstddef>
#include <memory>

#include "allocator/arena/arena.h"
#include "allocator/backing/chunk_bytes.h"
#include "allocator/backing/idle_chunks.h"
#include "allocator/engine/place/dynamic_space.h"
#include "allocator/engine/plan_engine.h"
#include "planner/analysis/sweep.h"
#include "planner/trial/instant_fence.h"
#include "planner/trial/no_memory.h"

namespace stalloc::planner {
namespace {

// Beyond the plan's height, as a multiple of what is live at most: a run that needs more has long lost.
constexpr Bytes kMostGrowth = 2;

struct TimedMark {
  std::uint64_t event = 0;  // the mark comes before it
  Mark mark;
};

// The events for the engine, in order.
std::vector<TimedMark> MarksOf(const TracedRank& traced, const std::vector<bool>& served) {
  std::vector<TimedMark> marks;
  const std::vector<Segment>& segments = traced.segmentation.segments;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (i > 0) {
      marks.push_back(
          {segments[i].begin_event, {.kind = MarkKind::kIteration, .index = segments[i].index, .name = ""}});
    }
    if (!served[i]) continue;
    for (const SegmentMark& mark : segments[i].marks) {
      marks.push_back({mark.event, traced.head.marks[mark.mark]});
    }
  }
  for (const FenceRange& fence : traced.segmentation.fences) {
    marks.push_back({fence.begin_event, {.kind = MarkKind::kFence, .name = ""}});
    marks.push_back({fence.end_event, {.kind = MarkKind::kFence, .edge = MarkEdge::kEnd, .name = ""}});
  }
  std::stable_sort(marks.begin(), marks.end(),
                   [](const TimedMark& left, const TimedMark& right) { return left.event < right.event; });
  return marks;
}

DynamicSpaceOptions OptionsFor(const Arena& arena) {
  return {.limit_bytes = arena.reserved_bytes(),
          .mapped_bytes = arena.mapped_end(),
          .least_bytes = SmallBlockBytes(arena.mapped_end())};
}

std::unique_ptr<Arena> Mapped(VmmDriver& driver, const DevicePlan& plan, Bytes growth) {
  DriverStatus status;
  auto arena = Arena::Create(driver, plan.arena_bytes + growth, &status, ChunkBytesOf(plan));
  (void)MapPlan(*arena, plan);
  return arena;
}

class Server {
 public:
  Server(const DeviceTrace& device, const DevicePlan& plan, const std::vector<bool>& served,
         const std::vector<bool>& lent)
      : device_(device),
        served_(served),
        lent_(lent),
        arena_(Mapped(driver_, plan, kMostGrowth * PeakLiveBytes(device))),
        engine_(plan, reinterpret_cast<void*>(arena_->base()), &fence_, OptionsFor(*arena_)),
        chunks_(driver_, &fence_, *arena_, engine_, plan),
        blocks_(device.allocations.size()) {
    for (const StreamInfo& stream : device.streams) {
      if (stream.ordinal >= handles_.size()) handles_.resize(std::size_t{stream.ordinal} + 1);
      handles_[stream.ordinal] = stream.handle;
    }
  }

  TrialRun Serve(const std::vector<TimedMark>& marks) {
    auto mark = marks.begin();
    Sweep sweep(device_);
    for (SweepStep step; sweep.Next(&step);) {
      for (; mark != marks.end() && mark->event <= step.event; ++mark) OnMark(mark->mark);
      if (step.is_free) {
        Free(step.allocation);
      } else if (served_[device_.allocations[step.allocation].segment]) {
        Allocate(step.allocation);
      }
    }
    const EngineStats stats = engine_.Stats();
    run_.arena_bytes = arena_->mapped_bytes();  // at most: nothing goes back
    run_.slot_hits = stats.planned_hits;
    run_.dynamic_hits = stats.dynamic_hits;
    run_.times_moved = chunks_.GetCounts().times_moved;
    return run_;
  }

 private:
  struct Block {
    void* pointer = nullptr;  // null: upstream, or lent
    bool live = false;
  };

  void OnMark(const Mark& mark) {
    engine_.OnMark(mark);
    if (mark.kind != MarkKind::kLayer) chunks_.OnMark();
    if (mark.kind == MarkKind::kIteration) chunks_.TryAgain();
  }

  void Allocate(std::uint32_t index) {
    const Allocation& allocation = device_.allocations[index];
    live_ += allocation.bytes;
    run_.peak_live_bytes = std::max(run_.peak_live_bytes, live_);
    Block& block = blocks_[index];
    if (IsLent(index)) {
      block.live = true;
      return;
    }
    block = {Place(allocation), true};
    ++run_.requests;
    if (block.pointer == nullptr) {
      upstream_ += allocation.bytes;
      run_.upstream_peak_bytes = std::max(run_.upstream_peak_bytes, upstream_);
    }
  }

  [[nodiscard]] bool IsLent(std::uint32_t index) const { return !lent_.empty() && lent_[index]; }

  void* Place(const Allocation& allocation) {
    const StreamHandle stream = allocation.stream < handles_.size() ? handles_[allocation.stream] : 0;
    if ((allocation.flags & kAllocCaptured) != 0) return nullptr;
    if ((allocation.flags & kAllocParallel) != 0) {
      return engine_.AllocateUnexpected(allocation.requested(), stream, MissReason::kParallel).pointer;
    }
    return engine_.Allocate(allocation.requested(), stream).pointer;
  }

  void Free(std::uint32_t index) {
    Block& block = blocks_[index];
    if (!block.live) return;
    block.live = false;
    live_ -= device_.allocations[index].bytes;
    if (block.pointer != nullptr) {
      engine_.Free(block.pointer);
    } else if (!IsLent(index)) {
      upstream_ -= device_.allocations[index].bytes;
    }
  }

  const DeviceTrace& device_;
  const std::vector<bool>& served_;
  const std::vector<bool>& lent_;
  InstantFence fence_;
  NoMemory driver_;
  std::unique_ptr<Arena> arena_;
  PlanEngine engine_;
  IdleChunks chunks_;
  std::vector<Block> blocks_;          // by allocation
  std::vector<StreamHandle> handles_;  // by the stream's ordinal
  TrialRun run_;
  Bytes live_ = 0;
  Bytes upstream_ = 0;
};

}  // namespace

TrialRun ServeTraced(const TracedRank& traced, const DeviceTrace& device, const DevicePlan& plan,
                     const std::vector<bool>& served, const std::vector<bool>& lent) {
  return Server(device, plan, served, lent).Serve(MarksOf(traced, served));
}

}  // namespace stalloc::planner
