#include "bench/replay/runs.h"

#include <algorithm>
#include <map>
#include <utility>

namespace stalloc::bench {
namespace {

class Composer {
 public:
  Composer(const Recording& recording, MarkStyle style) : style_(style) {
    run_.device = recording.device;
    run_.streams = recording.streams;
    run_.marks = recording.marks;
    automatic_ = style == MarkStyle::kOptimizerStepsOnly || recording.automatic;
    run_.unmarked = style == MarkStyle::kOptimizerStepsOnly && !recording.automatic ? 1 : 0;
  }

  void SetUp(const Piece& piece) { Append(piece); }

  void Iteration(const Piece& piece) {
    run_.begin.push_back(run_.steps.size());
    const std::size_t number = run_.begin.size() - 1;
    if (number >= run_.unmarked) {
      run_.steps.push_back({StepKind::kMark, static_cast<std::uint32_t>(run_.marks.size())});
      run_.marks.push_back({.kind = MarkKind::kIteration,
                            .index = static_cast<std::int32_t>(number),
                            .name = "",
                            .automatic = automatic_});
    }
    Append(piece);
  }

  ComposedRun Take() { return std::move(run_); }

 private:
  // By the request of the piece in front of which they come.
  using Due = std::multimap<std::uint32_t, std::uint32_t>;

  void Append(const Piece& piece) {
    const auto first_block = static_cast<std::uint32_t>(run_.blocks.size());
    run_.blocks.insert(run_.blocks.end(), piece.blocks.begin(), piece.blocks.end());
    Due due = std::move(late_[piece_]);
    for (Step step : piece.steps) {
      if (step.kind == StepKind::kMark && style_ == MarkStyle::kOptimizerStepsOnly) continue;
      if (step.kind == StepKind::kAllocate) FreeUpTo(step.index, &due);
      if (step.kind != StepKind::kMark) step.index += first_block;
      run_.steps.push_back(step);
    }
    FreeUpTo(UINT32_MAX, &due);
    for (const LateFree& late : piece.late_frees) {
      late_[piece_ + late.pieces_later].emplace(late.before_request, first_block + late.block);
    }
    late_.erase(piece_++);
  }

  void FreeUpTo(std::uint32_t request, Due* due) {
    while (!due->empty() && due->begin()->first <= request) {
      run_.steps.push_back({StepKind::kFree, due->begin()->second});
      due->erase(due->begin());
    }
  }

  const MarkStyle style_;
  bool automatic_ = false;
  ComposedRun run_;
  std::uint32_t piece_ = 0;
  std::map<std::uint32_t, Due> late_;  // by piece
};

}  // namespace

ComposedRun ComposeRun(const Recording& recording, const std::vector<const Piece*>& iterations, MarkStyle style) {
  Composer composer(recording, style);
  composer.SetUp(recording.set_up);
  for (const Piece* piece : iterations) composer.Iteration(*piece);
  return composer.Take();
}

Trace TraceOf(const ComposedRun& run, MarkStyle style) {
  Trace trace;
  trace.complete = true;
  trace.marks = run.marks;
  trace.streams = run.streams;
  for (const Step& step : run.steps) {
    TraceEvent event{.device = run.device, .time_ns = static_cast<std::int64_t>(trace.events.size())};
    switch (step.kind) {
      case StepKind::kAllocate:
        event.kind = EventKind::kAlloc;
        event.allocation = step.index;
        event.bytes = run.blocks[step.index].requested;
        event.stream = run.blocks[step.index].stream;
        event.flags = run.blocks[step.index].flags;
        break;
      case StepKind::kFree:
        event.kind = EventKind::kFree;
        event.allocation = step.index;
        break;
      case StepKind::kUse:
        event.kind = EventKind::kRecordStream;
        event.allocation = step.index;
        event.stream = step.stream;
        break;
      case StepKind::kMark:
        event.kind = EventKind::kMark;
        event.mark = step.index;
        break;
    }
    trace.events.push_back(event);
  }
  trace.allocations = run.blocks.size();
  if (style == MarkStyle::kOptimizerStepsOnly) {
    trace.events.push_back({.kind = EventKind::kMark, .mark = static_cast<std::uint32_t>(trace.marks.size())});
    trace.marks.push_back({.kind = MarkKind::kIteration,
                           .index = static_cast<std::int32_t>(run.begin.size()),
                           .name = "",
                           .automatic = true});
  }
  return trace;
}

Bytes PeakLiveBytes(const ComposedRun& run, std::size_t from, std::size_t to) {
  Bytes live = 0;
  Bytes peak = 0;
  for (std::size_t i = 0; i < to; ++i) {
    const Step& step = run.steps[i];
    if (i == from) peak = live;
    if (step.kind == StepKind::kAllocate) live += BlockBytes(run.blocks[step.index].requested);
    if (step.kind == StepKind::kFree) live -= BlockBytes(run.blocks[step.index].requested);
    if (i >= from) peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace stalloc::bench
