#include "planner/report/live_series.h"

#include <algorithm>

#include "planner/analysis/sweep.h"

namespace stalloc::planner {
namespace {

// The least and the greatest moment of the stretch of events that is open.
class Stretches {
 public:
  Stretches(std::uint64_t begin, std::uint64_t end, std::size_t count)
      : begin_(begin), width_(std::max<std::uint64_t>(1, (end - begin + count - 1) / count)) {}

  void Take(const LivePoint& point) {
    const std::uint64_t stretch = (point.event - begin_) / width_;
    if (stretch != stretch_) {
      Close();
      stretch_ = stretch;
    }
    if (!any_ || point.live < least_.live) least_ = point;
    if (!any_ || point.live > greatest_.live) greatest_ = point;
    any_ = true;
  }

  std::vector<LivePoint> Finish() {
    Close();
    return std::move(points_);
  }

 private:
  void Close() {
    if (!any_) return;
    const bool rises = least_.event < greatest_.event;
    points_.push_back(rises ? least_ : greatest_);
    if (least_.event != greatest_.event) points_.push_back(rises ? greatest_ : least_);
    any_ = false;
  }

  const std::uint64_t begin_;
  const std::uint64_t width_;
  std::uint64_t stretch_ = 0;
  bool any_ = false;
  LivePoint least_;
  LivePoint greatest_;
  std::vector<LivePoint> points_;
};

}  // namespace

std::vector<LivePoint> SampleLive(const DeviceFacts& facts, std::uint64_t begin, std::uint64_t end,
                                  std::size_t stretches) {
  Stretches sampled(begin, end, stretches);
  LivePoint now;
  bool started = false;
  const auto start = [&] {
    now.event = begin;
    if (!started) sampled.Take(now);
    started = true;
  };
  Sweep sweep(facts.device);
  for (SweepStep step; sweep.Next(&step) && step.event < end;) {
    if (step.event >= begin) start();
    const Bytes bytes = facts.device.allocations[step.allocation].bytes;
    Bytes& of_class = now.by_class[static_cast<std::size_t>(facts.blocks[step.allocation].memory_class)];
    of_class = step.is_free ? of_class - bytes : of_class + bytes;
    now.live = step.is_free ? now.live - bytes : now.live + bytes;
    now.event = step.event;
    if (step.event >= begin) sampled.Take(now);
  }
  start();
  return sampled.Finish();
}

std::vector<HeldPoint> SampleHeld(const DeviceFacts& facts, std::size_t most) {
  std::vector<HeldPoint> points;
  for (const TraceClock::Held& held : facts.clock.held) {
    if (held.device == facts.device.device) points.push_back({held.event, held.bytes});
  }
  const std::size_t width = (points.size() + most - 1) / most;
  if (width <= 1) return points;
  std::vector<HeldPoint> sampled;
  for (std::size_t i = 0; i < points.size(); i += width) {
    const auto first = points.begin() + static_cast<std::ptrdiff_t>(i);
    const auto last = points.begin() + static_cast<std::ptrdiff_t>(std::min(points.size(), i + width));
    const auto highest = std::max_element(first, last, [](auto& a, auto& b) { return a.held < b.held; });
    sampled.push_back({first->event, highest->held});  // from the stretch's beginning: never below what was held
  }
  return sampled;
}

}  // namespace stalloc::planner
