#include "bench/replay/replayer.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "allocator/driver/host_driver.h"
#include "allocator/runtime/device_runtime.h"
#include "allocator/runtime/open_marks.h"
#include "allocator/runtime/planned_space.h"
#include "bench/replay/expandable_upstream.h"
#include "bench/replay/lagging_device.h"
#include "bench/replay/live_ranges.h"

namespace stalloc::bench {
namespace {

// As large as those of the recorded runs; the host driver only counts it.
constexpr Bytes kDeviceBytes = Bytes{128} << 30;

// A device with a runtime on it, and the run's blocks there.
class Bed {
 public:
  static absl::StatusOr<std::unique_ptr<Bed>> Make(const ComposedRun& run, const DevicePlan& plan,
                                                   const Serving& serving) {
    std::unique_ptr<Bed> bed(new Bed(run));
    bed->driver_ = HostDriver::Create({.capacity = kDeviceBytes});
    if (bed->driver_ == nullptr) return absl::InternalError("no host driver: the system gives no memfd");
    bed->device_ = std::make_unique<LaggingDevice>(*bed->driver_, serving.lag);
    bed->runtime_ = std::make_unique<DeviceRuntime>(DeviceRuntime::Parts{.device = run.device,
                                                                         .upstream = &bed->upstream_,
                                                                         .driver = bed->device_.get(),
                                                                         .fence = bed->device_.get(),
                                                                         .plan = serving.takes_plan ? nullptr : &plan,
                                                                         .awaits_plan = serving.takes_plan,
                                                                         .dynamic = serving.dynamic,
                                                                         .rules = serving.rules});
    if (!bed->runtime_->degraded().empty()) return absl::InternalError(bed->runtime_->degraded());
    if (serving.card > 0) {
      const auto live = static_cast<double>(PeakLiveBytes(run, 0, run.steps.size()));
      bed->runtime_->SetHeldLimit(static_cast<Bytes>(serving.card * live));
    }
    return bed;
  }

  void Allocate(std::uint32_t block) {
    const Block& wanted = run_.blocks[block];
    device_->Advance();
    pointers_[block] = runtime_->Allocate(wanted.requested, handles_[wanted.stream], OriginOf(wanted));
  }
  void Free(std::uint32_t block) { runtime_->Free(pointers_[block]); }
  void Do(const Step& step) {
    switch (step.kind) {
      case StepKind::kAllocate:
        return Allocate(step.index);
      case StepKind::kFree:
        return Free(step.index);
      case StepKind::kUse:
        return runtime_->RecordStream(pointers_[step.index], handles_[step.stream]);
      case StepKind::kMark:
        open_marks_.See(run_.marks[step.index]);
        return runtime_->OnMark(run_.marks[step.index]);
    }
  }

  absl::Status TakePlan(const DevicePlan& plan) {
    const std::string why = runtime_->TakePlan(plan, open_marks_.explicit_kinds());
    return why.empty() ? absl::OkStatus() : absl::InternalError(why);
  }
  // Now, not at a peak.
  [[nodiscard]] SincePlan Parts(Bytes live) const {
    SincePlan parts;
    parts.upstream_bytes = upstream_.held();
    for (const PlannedSpace* const space : runtime_->spaces()) {
      (space->has_plan() ? parts.plan_arena_bytes : parts.first_arena_bytes) += space->arena().mapped_bytes();
      (space->has_plan() ? parts.plan_arena_live_bytes : parts.first_arena_live_bytes) +=
          space->engine().Stats().live_bytes;
    }
    parts.upstream_live_bytes = live - parts.plan_arena_live_bytes - parts.first_arena_live_bytes;
    return parts;
  }

  [[nodiscard]] DeviceRuntime& runtime() { return *runtime_; }
  [[nodiscard]] const DriverCallCounts& driver_calls() const { return device_->calls(); }
  [[nodiscard]] Address AddressOf(std::uint32_t block) const { return reinterpret_cast<Address>(pointers_[block]); }
  [[nodiscard]] Bytes arena_bytes() const {
    Bytes sum = 0;
    for (const PlannedSpace* const space : runtime_->spaces()) sum += space->arena().mapped_bytes();
    return sum;
  }
  [[nodiscard]] Bytes upstream_bytes() const { return upstream_.held(); }
  [[nodiscard]] Bytes touched_bytes() const { return driver_->GetCounts().resident_bytes; }

 private:
  explicit Bed(const ComposedRun& run) : run_(run), pointers_(run.blocks.size()) {
    for (const StreamInfo& stream : run.streams) {
      if (stream.ordinal >= handles_.size()) handles_.resize(stream.ordinal + 1);
      handles_[stream.ordinal] = stream.handle;
    }
  }

  static Origin OriginOf(const Block& block) {
    if ((block.flags & kAllocCaptured) != 0) return Origin::kCaptured;
    return (block.flags & kAllocParallel) != 0 ? Origin::kParallel : Origin::kProgram;
  }

  const ComposedRun& run_;
  ExpandableUpstream upstream_;
  std::unique_ptr<HostDriver> driver_;
  std::unique_ptr<LaggingDevice> device_;
  std::unique_ptr<DeviceRuntime> runtime_;  // after what it uses: destroyed first
  OpenMarks open_marks_;
  std::vector<void*> pointers_;        // by block
  std::vector<StreamHandle> handles_;  // by the stream's ordinal, which counts through all devices
};

class Replayer {
 public:
  // `plan`: to be taken up on the way; null: it is served already.
  Replayer(const ComposedRun& run, Bed& bed, const Serving& serving, const DevicePlan* plan)
      : run_(run), bed_(bed), plan_(plan), first_served_(serving.first) {
    result_.served_by.resize(run.blocks.size());
  }

  absl::StatusOr<Replayed> Replay() {
    arena_ = bed_.arena_bytes();
    if (absl::Status status = TakeSteps(0, run_.begin[first_served_], false); !status.ok()) return status;
    if (plan_ != nullptr) {
      if (absl::Status status = bed_.TakePlan(*plan_); !status.ok()) return status;
      result_.since_plan = SincePlan();
      WatchSincePlan();
    }
    before_ = bed_.runtime().Stats();
    for (std::size_t i = first_served_; i < run_.begin.size(); ++i) {
      const Activity before = SoFar();
      held_in_iteration_ = bed_.arena_bytes() + bed_.upstream_bytes();
      if (absl::Status status = TakeSteps(run_.begin[i], run_.end(i), true); !status.ok()) return status;
      result_.activities.push_back(Since(before));
      result_.iterations.push_back({PeakLiveBytes(run_, run_.begin[i], run_.end(i)), held_in_iteration_});
    }
    return Finish();
  }

 private:
  absl::Status TakeSteps(std::size_t begin, std::size_t end, bool served) {
    for (std::size_t i = begin; i < end; ++i) {
      if (absl::Status status = Take(run_.steps[i], served); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Take(const Step& step, bool served) {
    // A free ends the block's range before the runtime can give it out again.
    if (step.kind == StepKind::kFree && !live_.Remove(bed_.AddressOf(step.index))) {
      return absl::InternalError(absl::StrCat("block ", step.index, " is freed, but was not alive"));
    }
    const std::uint64_t dynamic_before = dynamic_hits_;
    bed_.Do(step);
    if (step.kind == StepKind::kFree) live_bytes_ -= BlockBytes(run_.blocks[step.index].requested);
    if (step.kind == StepKind::kAllocate) {
      live_bytes_ += BlockBytes(run_.blocks[step.index].requested);
      if (absl::Status status = Placed(step.index, dynamic_before, served); !status.ok()) return status;
    }
    WatchHeld(step, served);
    return absl::OkStatus();
  }

  absl::Status Placed(std::uint32_t block, std::uint64_t dynamic_before, bool served) {
    const Bytes bytes = BlockBytes(run_.blocks[block].requested);
    if (!live_.Add(bed_.AddressOf(block), bytes)) {
      return absl::InternalError(
          absl::StrCat("block ", block, " of ", bytes, " bytes overlaps a live one at ", bed_.AddressOf(block)));
    }
    ServedBy kind = ServedBy::kUpstream;
    if (bed_.runtime().Owns(reinterpret_cast<const void*>(bed_.AddressOf(block)))) {
      dynamic_hits_ = bed_.runtime().Stats().dynamic_hits;
      kind = dynamic_hits_ > dynamic_before ? ServedBy::kDynamic : ServedBy::kPlanned;
    }
    result_.served_by[block] = kind;
    if (served) {
      ++result_.requests[static_cast<std::size_t>(kind)];
      result_.bytes[static_cast<std::size_t>(kind)] += bytes;
    }
    return absl::OkStatus();
  }

  void WatchHeld(const Step& step, bool served) {
    const Bytes arena = bed_.arena_bytes();
    if (served && step.kind == StepKind::kAllocate) {
      if (arena > arena_) {
        result_.growths.push_back({requests_, run_.blocks[step.index].requested, arena - arena_, arena, live_bytes_});
      }
      ++requests_;
    }
    arena_ = arena;
    const Bytes held = arena + bed_.upstream_bytes();
    result_.peak_held_bytes = std::max(result_.peak_held_bytes, held);
    held_in_iteration_ = std::max(held_in_iteration_, held);
    if (result_.since_plan.has_value()) WatchSincePlan();
  }

  void WatchSincePlan() {
    SincePlan& since = *result_.since_plan;
    const Bytes held = bed_.arena_bytes() + bed_.upstream_bytes();
    const IterationPeaks peaks{std::max(since.peaks.live_bytes, live_bytes_), std::max(since.peaks.held_bytes, held)};
    if (peaks.held_bytes > since.peaks.held_bytes) since = bed_.Parts(live_bytes_);
    since.peaks = peaks;
  }

  // Of the whole run.
  [[nodiscard]] Activity SoFar() const {
    const RuntimeStats stats = bed_.runtime().Stats();
    return {.requests = result_.requests,
            .misses = stats.engine.misses,
            .driver_calls = bed_.driver_calls(),
            .moves = stats.lent.times_moved,
            .moved_bytes = stats.lent.moved_bytes,
            .growth_bytes = result_.growth_bytes(),
            .upstream_bytes = bed_.upstream_bytes()};
  }

  [[nodiscard]] Activity Since(const Activity& before) const {
    Activity now = SoFar();
    const auto subtract = [](auto& counts, const auto& from) {
      for (std::size_t i = 0; i < counts.size(); ++i) counts[i] -= from[i];
    };
    subtract(now.requests, before.requests);
    subtract(now.misses, before.misses);
    subtract(now.driver_calls, before.driver_calls);
    now.moves -= before.moves;
    now.moved_bytes -= before.moved_bytes;
    now.growth_bytes -= before.growth_bytes;
    now.upstream_bytes -= before.upstream_bytes;
    return now;
  }

  absl::StatusOr<Replayed> Finish() {
    const RuntimeStats stats = bed_.runtime().Stats();
    for (std::size_t i = 0; i < kMissReasons; ++i) {
      result_.misses[i] = stats.engine.misses[i] - before_.engine.misses[i];
    }
    result_.moves = stats.lent.times_moved - before_.lent.times_moved;
    result_.moved_bytes = stats.lent.moved_bytes - before_.lent.moved_bytes;
    result_.stream_events = stats.engine.stream_events - before_.engine.stream_events;
    result_.stream_waits = stats.engine.stream_waits - before_.engine.stream_waits;
    result_.peak_live_bytes = PeakLiveBytes(run_, 0, run_.steps.size());
    result_.arena_bytes = bed_.arena_bytes();
    result_.upstream_bytes = bed_.upstream_bytes();
    result_.gave_up = stats.gave_up;
    if (stats.run.live_bytes != result_.peak_live_bytes) {
      return absl::InternalError(absl::StrCat("peak of live bytes: expected ", result_.peak_live_bytes,
                                              ", the runtime counted ", stats.run.live_bytes));
    }
    if (const Bytes touched = bed_.touched_bytes(); touched != 0) {
      return absl::InternalError(absl::StrCat("expected that no memory is touched, found ", touched, " bytes"));
    }
    return std::move(result_);
  }

  const ComposedRun& run_;
  Bed& bed_;
  const DevicePlan* const plan_;
  const std::size_t first_served_;
  LiveRanges live_;
  Replayed result_;
  RuntimeStats before_;  // as the served iteration begins
  std::uint64_t dynamic_hits_ = 0;
  std::uint32_t requests_ = 0;  // of the served iteration
  Bytes live_bytes_ = 0;
  Bytes arena_ = 0;
  Bytes held_in_iteration_ = 0;
};

using Clock = std::chrono::steady_clock;

double NanosecondsSince(Clock::time_point start) {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

// Sorts in part. REQUIRES: not empty.
double Quantile(std::vector<double>& values, double share) {
  const auto rank = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + rank, values.end());
  return values[static_cast<std::size_t>(rank)];
}

double ClockNanoseconds() {
  std::vector<double> times;
  for (int i = 0; i < 1001; ++i) times.push_back(NanosecondsSince(Clock::now()));
  return Quantile(times, 0.5);
}

}  // namespace

Bytes Replayed::growth_bytes() const {
  Bytes sum = 0;
  for (const Growth& growth : growths) sum += growth.bytes;
  return sum;
}

const char* ServedByName(ServedBy kind) {
  switch (kind) {
    case ServedBy::kPlanned:
      return "planned";
    case ServedBy::kDynamic:
      return "dynamic";
    case ServedBy::kUpstream:
      return "upstream";
    case ServedBy::kCount:
      break;
  }
  return "?";
}

absl::StatusOr<Replayed> ReplayRun(const ComposedRun& run, const DevicePlan& plan, const Serving& serving) {
  const absl::StatusOr<std::unique_ptr<Bed>> bed = Bed::Make(run, plan, serving);
  if (!bed.ok()) return bed.status();
  return Replayer(run, **bed, serving, serving.takes_plan ? &plan : nullptr).Replay();
}

std::vector<IterationPeaks> ReplayUpstream(const ComposedRun& run, std::size_t first) {
  ExpandableUpstream upstream;
  std::vector<void*> pointers(run.blocks.size());
  std::vector<IterationPeaks> peaks;
  std::size_t done = 0;
  for (std::size_t i = first; i < run.begin.size(); ++i) {
    for (; done < run.end(i); ++done) {
      const Step& step = run.steps[done];
      if (step.kind == StepKind::kAllocate) {
        const Block& block = run.blocks[step.index];
        pointers[step.index] = upstream.Allocate(block.requested, block.stream);
      } else if (step.kind == StepKind::kFree) {
        upstream.Free(pointers[step.index]);
      }
    }
    peaks.push_back({PeakLiveBytes(run, run.begin[i], run.end(i)), upstream.held()});
  }
  return peaks;
}

absl::StatusOr<std::array<PairTimes, kServedKinds>> TimeRun(const ComposedRun& run, const DevicePlan& plan,
                                                            const Serving& serving,
                                                            const std::vector<ServedBy>& served_by) {
  const absl::StatusOr<std::unique_ptr<Bed>> bed = Bed::Make(run, plan, serving);
  if (!bed.ok()) return bed.status();
  const double clock = ClockNanoseconds();
  std::vector<double> allocate_ns(run.blocks.size(), -1);  // -1: not of a served iteration
  std::array<std::vector<double>, kServedKinds> pairs;
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    const Step& step = run.steps[i];
    const bool timed =
        i >= run.begin[serving.first] && (step.kind == StepKind::kAllocate || step.kind == StepKind::kFree);
    if (!timed) {
      (*bed)->Do(step);
      continue;
    }
    const Clock::time_point start = Clock::now();
    (*bed)->Do(step);
    const double taken = std::max(0.0, NanosecondsSince(start) - clock);
    if (step.kind == StepKind::kAllocate) {
      allocate_ns[step.index] = taken;
    } else if (allocate_ns[step.index] >= 0) {
      pairs[static_cast<std::size_t>(served_by[step.index])].push_back(allocate_ns[step.index] + taken);
    }
  }
  std::array<PairTimes, kServedKinds> times;
  for (std::size_t kind = 0; kind < kServedKinds; ++kind) {
    if (pairs[kind].empty()) continue;
    const double mean = std::reduce(pairs[kind].begin(), pairs[kind].end()) / static_cast<double>(pairs[kind].size());
    times[kind] = {pairs[kind].size(), Quantile(pairs[kind], 0.5), Quantile(pairs[kind], 0.99), mean};
  }
  return times;
}

}  // namespace stalloc::bench
