#include "planner/analysis/graph_captures.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

namespace stalloc::planner {
namespace {

// The number between them.
std::optional<std::uint32_t> NumberOf(std::string_view name, std::string_view prefix, std::string_view suffix) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  if (name.size() < suffix.size()) return std::nullopt;
  name.remove_suffix(suffix.size());
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? std::optional(number) : std::nullopt;
}

class CaptureFinder {
 public:
  CaptureFinder(const TracedRank& traced, const DeviceTrace& device) : device_(device) {
    for (const SegmentMark& mark : traced.segmentation.graph_marks) TakeMark(mark.event, traced.head.marks[mark.mark]);
  }

  GraphCaptures Run() {
    if (found_.captures.empty()) return {};
    std::uint64_t last_end = 0;
    for (GraphCapture& capture : found_.captures) capture.last_end = last_end = std::max(last_end, capture.end);
    for (const auto& [event, number] : launched_) TakeLaunch(event, number);
    found_.kinds.resize(device_.allocations.size());
    for (std::uint32_t i = 0; i < device_.allocations.size(); ++i) Classify(i);
    return std::move(found_);
  }

 private:
  static constexpr std::size_t kNoCapture = ~std::size_t{0};

  void TakeMark(std::uint64_t event, const Mark& mark) {
    const bool begins = mark.edge == MarkEdge::kBegin;
    if (const auto number = NumberOf(mark.name, kGraphMarkPrefix, kCaptureMarkSuffix)) {
      if (begins) {
        rows_[*number].push_back(found_.captures.size());
        found_.captures.push_back({.number = *number, .begin = event, .requested = {}, .freed = {}});
      } else if (const auto rows = rows_.find(*number); rows != rows_.end()) {
        found_.captures[rows->second.back()].end = event;
      }
    } else if (const auto pool = NumberOf(mark.name, kRestorablePoolPrefix, "")) {
      restorable_.insert(*pool);
    } else if (const auto launched = NumberOf(mark.name, kGraphMarkPrefix, kReplayMarkSuffix); launched && begins) {
      launched_.emplace_back(event, *launched);
    }
  }

  // For the launched graph, the last one.
  void TakeLaunch(std::uint64_t event, std::uint32_t number) {
    const auto rows = rows_.find(number);
    if (rows == rows_.end()) return;
    const auto ended = [&](std::size_t row) { return found_.captures[row].end <= event; };
    const auto last = std::find_if(rows->second.rbegin(), rows->second.rend(), ended);
    if (last != rows->second.rend()) found_.launches.push_back({event, static_cast<std::uint32_t>(*last)});
  }

  // The capture that is open at the event; of several the one that began last.
  [[nodiscard]] std::size_t CaptureAt(std::uint64_t event) const {
    const std::vector<GraphCapture>& captures = found_.captures;
    const auto next = std::ranges::upper_bound(captures, event, {}, &GraphCapture::begin);
    for (auto i = static_cast<std::size_t>(next - captures.begin()); i-- > 0;) {
      if (event < captures[i].end) return i;
      if (event >= captures[i].last_end) break;
    }
    return kNoCapture;
  }

  // No graph was captured while it lived.
  [[nodiscard]] bool IsUnseen(const Allocation& allocation) const {
    if (!allocation.freed()) return false;
    const auto after = std::ranges::lower_bound(found_.captures, allocation.free_event, {}, &GraphCapture::begin);
    return after == found_.captures.begin() || (after - 1)->last_end <= allocation.event;
  }

  void Classify(std::uint32_t index) {
    const Allocation& allocation = device_.allocations[index];
    if ((allocation.flags & kAllocCaptured) == 0) return;
    const std::size_t requested = CaptureAt(allocation.event);
    const std::size_t freed = allocation.freed() ? CaptureAt(allocation.free_event) : kNoCapture;
    CapturedKind& kind = found_.kinds[index];
    if (requested == kNoCapture && IsUnseen(allocation)) return;
    if (requested == kNoCapture || freed == kNoCapture) {
      kind = CapturedKind::kKept;
    } else if (requested == freed) {
      kind = CapturedKind::kDead;
    } else {
      kind = restorable_.contains(device_.PoolOf(index)) ? CapturedKind::kKept : CapturedKind::kCarried;
    }
    if (requested != kNoCapture) found_.captures[requested].requested.push_back(index);
    if (kind == CapturedKind::kCarried) found_.captures[freed].freed.push_back(index);
  }

  const DeviceTrace& device_;
  std::map<std::uint32_t, std::vector<std::size_t>> rows_;         // captures, by the number of their graph
  std::set<std::uint32_t> restorable_;                             // pools
  std::vector<std::pair<std::uint64_t, std::uint32_t>> launched_;  // events and graphs' numbers
  GraphCaptures found_;
};

}  // namespace

GraphCaptures FindGraphCaptures(const TracedRank& traced, const DeviceTrace& device) {
  return CaptureFinder(traced, device).Run();
}

std::uint32_t CapturingIterations(const GraphCaptures& found, const Segmentation& segmentation) {
  const auto segment_of = [&](std::uint64_t event) {
    const auto after = std::ranges::upper_bound(segmentation.segments, event, {}, &Segment::begin_event);
    return static_cast<std::uint32_t>(after - segmentation.segments.begin() - 1);
  };
  std::uint32_t iterations = 0;
  for (const GraphLaunch& launch : found.launches) {
    const std::uint32_t captured = segment_of(found.captures[launch.capture].begin);
    if (segment_of(launch.event) > captured) iterations = std::max(iterations, captured);
  }
  return iterations;
}

}  // namespace stalloc::planner
