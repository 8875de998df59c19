#include "planner/analysis/phase_map.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "proto/model/pass_name.h"

namespace stalloc::planner {
namespace {

PhaseKind KindOf(Pass pass) {
  switch (pass) {
    case Pass::kForward:
      return PhaseKind::kForward;
    case Pass::kBackward:
    case Pass::kWeight:
      return PhaseKind::kBackward;
    case Pass::kForwardBackward:
      return PhaseKind::kForwardBackward;
    case Pass::kNone:
    case Pass::kOther:
      break;
  }
  return PhaseKind::kBetween;
}

}  // namespace

// Lays the spans of one segment after the other.
class PhaseMapper {
 public:
  PhaseMapper(const Segmentation& segmentation, const std::vector<Mark>& marks, PhaseMap* map)
      : segmentation_(segmentation), marks_(marks), map_(map) {}

  void Run() {
    for (std::uint32_t s = 0; s < segmentation_.segments.size(); ++s) LaySegment(s);
  }

 private:
  void LaySegment(std::uint32_t s) {
    const Segment& segment = segmentation_.segments[s];
    segment_ = s;
    iteration_ = s == 0 ? "set-up" : absl::StrCat("iter ", segment.index);
    const std::size_t first = map_->spans_.size();
    Open(segment.begin_event, s == 0 ? PhaseKind::kSetUp : PhaseKind::kUnmarked, "");
    for (const SegmentMark& mark : segment.marks) {
      LayFencesBefore(mark.event);
      TakeMark(mark.event, marks_[mark.mark]);
    }
    LayFencesBefore(segment.end_event);
    InferWhatIsUnmarked(first);
  }

  void TakeMark(std::uint64_t event, const Mark& mark) {
    const bool begin = mark.edge == MarkEdge::kBegin;
    if (mark.kind == MarkKind::kMicrobatch) {
      map_->knows_microbatches_ = true;
      if (begin) {
        Open(event, KindOf(mark.pass),
             absl::StrCat(", ", PassName(mark.pass), " ", mark.index,
                          mark.chunk == 0 ? "" : absl::StrCat(" chunk ", mark.chunk)));
      } else {
        Open(event, PhaseKind::kBetween, ", between");
      }
    } else if (mark.kind == MarkKind::kOptimizer) {
      map_->knows_optimizer_ = true;
      begin ? Open(event, PhaseKind::kOptimizer, ", optimizer")
            : Open(event, PhaseKind::kAfterOptimizer, ", after the optimizer");
    }
  }

  // A fence interrupts the phase it lies in.
  void LayFencesBefore(std::uint64_t event) {
    for (; fence_ < segmentation_.fences.size() && segmentation_.fences[fence_].begin_event < event; ++fence_) {
      PhaseSpan around = map_->spans_.back();
      around.begin_event = segmentation_.fences[fence_].end_event;
      Open(segmentation_.fences[fence_].begin_event, PhaseKind::kFence, ", fence");
      map_->spans_.push_back(std::move(around));
    }
  }

  void Open(std::uint64_t event, PhaseKind kind, const std::string& name) {
    map_->spans_.push_back({event, kind, segment_, absl::StrCat(iteration_, name)});
  }

  void InferWhatIsUnmarked(std::size_t first) {
    const auto begin = map_->spans_.begin() + static_cast<std::ptrdiff_t>(first);
    const auto has = [&](auto... kinds) {
      return std::any_of(begin, map_->spans_.end(),
                         [&](const PhaseSpan& span) { return ((span.kind == kinds) || ...); });
    };
    const bool microbatches = has(PhaseKind::kForward, PhaseKind::kBackward, PhaseKind::kForwardBackward);
    for (auto span = begin; microbatches && span != map_->spans_.end(); ++span) {
      if (span->kind == PhaseKind::kUnmarked) {
        span->kind = PhaseKind::kBetween;
        span->name += ", between";
      }
    }
    if (microbatches && !has(PhaseKind::kOptimizer) && map_->spans_.back().kind == PhaseKind::kBetween) {
      map_->spans_.back().kind = PhaseKind::kOptimizer;
      map_->spans_.back().name = absl::StrCat(iteration_, ", after the last micro-batch");
      map_->knows_optimizer_ = true;
    }
  }

  const Segmentation& segmentation_;
  const std::vector<Mark>& marks_;
  PhaseMap* map_;
  std::uint32_t segment_ = 0;
  std::string iteration_;
  std::size_t fence_ = 0;
};

PhaseMap::PhaseMap(const Segmentation& segmentation, const std::vector<Mark>& marks) {
  PhaseMapper(segmentation, marks, this).Run();
}

std::size_t PhaseMap::At(std::uint64_t event) const {
  const auto after = std::upper_bound(spans_.begin() + 1, spans_.end(), event,
                                      [](std::uint64_t at, const PhaseSpan& span) { return at < span.begin_event; });
  return static_cast<std::size_t>(after - spans_.begin()) - 1;
}

std::uint64_t PhaseMap::OptimizerAfter(std::uint64_t event) const {
  const std::size_t at = At(event);
  for (std::size_t i = at; i < spans_.size() && spans_[i].segment == spans_[at].segment; ++i) {
    if (spans_[i].kind == PhaseKind::kOptimizer) return std::max(event, spans_[i].begin_event);
  }
  return kNever;
}

namespace {

bool IsPass(PhaseKind kind) {
  return kind == PhaseKind::kForward || kind == PhaseKind::kBackward || kind == PhaseKind::kForwardBackward;
}

}  // namespace

std::uint64_t PhaseMap::PassAfter(std::uint64_t event) const {
  for (std::size_t i = At(event) + 1; i < spans_.size(); ++i) {
    if (IsPass(spans_[i].kind) || spans_[i].kind == PhaseKind::kUnmarked) return spans_[i].begin_event;
  }
  return kNever;
}

bool PhaseMap::IsBehindPass(std::size_t span) const {
  for (std::size_t i = span; i > 0 && spans_[i - 1].segment == spans_[span].segment; --i) {
    const PhaseKind before = spans_[i - 1].kind;
    if (IsPass(before)) return true;
    if (before == PhaseKind::kOptimizer || before == PhaseKind::kAfterOptimizer) return false;
  }
  return false;
}

}  // namespace stalloc::planner
