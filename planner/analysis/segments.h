// Segments: a trace cut at its iteration marks.
//
//   events   | set-up ... | iteration 0 ... | iteration 1 ... |  eval  | iteration 2 ...
//   marks    ^            ^ I-begin         ^ I-begin          F-begin/end
//   segment      0              1                 2             (fence)       3
//
// Segment 0 is everything before the first iteration mark (it may be empty); segment i + 1 is the i-th traced
// iteration. The end mark of an iteration does not cut: what follows it belongs to the same segment. Fences
// (evaluation, checkpoint) are excised: marks inside them do not count, and requests inside them are nobody's script.
// Marks of CUDA graphs (IsGraphMark) inside them are listed all the same: what is captured there is launched elsewhere.
// Pure functions of the trace.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "proto/model/trace.h"

namespace stalloc::planner {

struct SegmentMark {
  std::uint64_t event = 0;  // index into Trace::events
  std::uint32_t mark = 0;   // index into Trace::marks
};

struct Segment {
  std::uint64_t begin_event = 0;   // the iteration's begin mark; 0 for the set-up
  std::uint64_t end_event = 0;     // one past the last event
  std::int32_t index = -1;         // the iteration as the loop counts it; -1 for the set-up
  std::vector<SegmentMark> marks;  // in order, without the begin mark itself
  bool ended = false;              // has the iteration's end mark
};

// Half-open range of events inside the outermost pair of fence marks.
struct FenceRange {
  std::uint64_t begin_event = 0;
  std::uint64_t end_event = 0;
};

// How many marks of each kind are used, so that the user learns what is missing.
struct MarkCensus {
  std::uint64_t iterations = 0;
  std::uint64_t automatic_iterations = 0;  // among them
  std::uint64_t by_period = 0;             // iterations that no mark begins (period.h)
  std::uint64_t microbatches = 0;
  std::uint64_t optimizers = 0;
  std::uint64_t layers = 0;
  std::uint64_t fences = 0;
  std::uint64_t ignored_automatic = 0;  // an explicit mark of the same kind came before them
};

struct Segmentation {
  std::vector<Segment> segments;  // never empty
  std::vector<FenceRange> fences;
  std::vector<SegmentMark> graph_marks;  // in order, also those that fences and others hide
  MarkCensus census;

  [[nodiscard]] std::size_t iterations() const { return segments.size() - 1; }
};

// Cuts while the trace is read: mark after mark, in order. Automatic marks of a kind are ignored from the first
// explicit mark of that kind on. Not thread-safe.
class SegmentCutter {
 public:
  SegmentCutter() { result_.segments.emplace_back(); }

  // `event` and `mark_index` are where `mark` lies in the trace.
  void Take(std::uint64_t event, std::uint32_t mark_index, const Mark& mark);
  // As far as it was read; the last segment and an open fence have no end yet.
  [[nodiscard]] const Segmentation& so_far() const { return result_; }
  [[nodiscard]] bool inside_fence() const { return depth_ > 0; }
  // `events`: how many the trace has.
  [[nodiscard]] Segmentation Finish(std::uint64_t events);

 private:
  [[nodiscard]] bool Overruled(const Mark& mark);
  void TakeFence(std::uint64_t event, const Mark& mark);
  void OpenIteration(std::uint64_t event, const Mark& mark);
  void KeepInside(std::uint64_t event, std::uint32_t mark_index, const Mark& mark);
  void Count(const Mark& mark);

  Segmentation result_;
  std::array<bool, 256> explicit_seen_{};  // by kind
  int depth_ = 0;
};

// The whole trace at once.
[[nodiscard]] Segmentation CutAtMarks(const Trace& trace);

}  // namespace stalloc::planner
