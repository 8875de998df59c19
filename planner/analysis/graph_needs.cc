#include "planner/analysis/graph_needs.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "planner/analysis/sweep.h"

namespace stalloc::planner {
namespace {

constexpr absl::string_view kPrefix = "CUDA graph ";  // of marks: patches/stalloc/_marking/_graphs.py
constexpr absl::string_view kCapture = " capture";
constexpr absl::string_view kReplay = " replay";

struct Capture {
  std::uint64_t begin = 0;  // events
  std::uint64_t end = kNever;
  std::uint64_t last_end = kNever;   // of this one and all before it
  std::vector<std::uint32_t> asked;  // allocations, in order
  std::vector<std::uint32_t> freed;  // that other captures asked for
};

struct Launch {
  std::uint64_t event = 0;
  std::uint32_t number = 0;
};

std::optional<std::uint32_t> NumberOf(absl::string_view name, absl::string_view what) {
  std::uint32_t number = 0;
  if (!absl::ConsumePrefix(&name, kPrefix) || !absl::ConsumeSuffix(&name, what)) return std::nullopt;
  return absl::SimpleAtoi(name, &number) ? std::optional(number) : std::nullopt;
}

class NeedsFinder {
 public:
  NeedsFinder(const TracedRank& traced, const DeviceTrace& device) : device_(device) {
    for (const Segment& segment : traced.segmentation.segments) {
      for (const SegmentMark& mark : segment.marks) TakeMark(mark.event, traced.head.marks[mark.mark]);
    }
  }

  GraphNeeds Run() {
    if (captures_.empty()) return {};
    std::uint64_t last_end = 0;
    for (Capture& capture : captures_) capture.last_end = last_end = std::max(last_end, capture.end);
    kinds_.resize(device_.allocations.size());
    for (std::uint32_t i = 0; i < device_.allocations.size(); ++i) Classify(i);
    for (std::size_t i = 0; i < captures_.size(); ++i) Measure(i);
    Walk();
    return std::move(found_);
  }

 private:
  static constexpr std::size_t kNoCapture = ~std::size_t{0};
  enum class Kind : std::uint8_t { kEager, kDead, kCarried, kKept };
  struct Pool {
    Bytes live = 0;  // as PyTorch counts
    Bytes most = 0;
    Bytes kept = 0;
    Bytes waiting = 0;  // carried, and its graph was launched
    [[nodiscard]] Bytes Needs(Bytes launch) const { return std::min(most, kept + waiting + launch); }
  };

  void TakeMark(std::uint64_t event, const Mark& mark) {
    if (mark.kind != MarkKind::kLayer) return;
    const bool begins = mark.edge == MarkEdge::kBegin;
    if (const auto number = NumberOf(mark.name, kCapture)) {
      if (begins) {
        found_.graphs.push_back({.number = *number});
        rows_[*number].push_back(captures_.size());
        captures_.push_back({.begin = event, .asked = {}, .freed = {}});
      } else if (const auto rows = rows_.find(*number); rows != rows_.end()) {
        captures_[rows->second.back()].end = event;
      }
    } else if (const auto launched = NumberOf(mark.name, kReplay); launched && begins) {
      launches_.push_back({event, *launched});
    }
  }

  // The capture that is open at the event; of several the one that began last.
  [[nodiscard]] std::size_t CaptureAt(std::uint64_t event) const {
    const auto behind = std::ranges::upper_bound(captures_, event, {}, &Capture::begin);
    for (auto i = static_cast<std::size_t>(behind - captures_.begin()); i-- > 0;) {
      if (event < captures_[i].end) return i;
      if (event >= captures_[i].last_end) break;
    }
    return kNoCapture;
  }

  void Classify(std::uint32_t index) {
    const Allocation& allocation = device_.allocations[index];
    if ((allocation.flags & kAllocCaptured) == 0) return;
    const std::size_t asked = CaptureAt(allocation.event);
    const std::size_t freed = allocation.freed() ? CaptureAt(allocation.free_event) : kNoCapture;
    if (asked == kNoCapture || freed == kNoCapture) {
      kinds_[index] = Kind::kKept;
    } else {
      kinds_[index] = asked == freed ? Kind::kDead : Kind::kCarried;
    }
    if (asked == kNoCapture) return;
    graph_pools_.insert(device_.PoolOf(index));
    CapturedGraph& graph = found_.graphs[asked];
    if (captures_[asked].asked.empty()) graph.pool = device_.PoolOf(index);
    captures_[asked].asked.push_back(index);
    if (kinds_[index] == Kind::kCarried) {
      captures_[freed].freed.push_back(index);
      graph.carried += allocation.bytes;
    } else if (kinds_[index] == Kind::kKept) {
      graph.kept += allocation.bytes;
    }
  }

  // The most of a graph that lives at a time in its launch, in the order of its capture.
  void Measure(std::size_t number) {
    struct Change {
      std::uint64_t event = 0;
      std::int64_t bytes = 0;
      bool dead = false;
    };
    const Capture& capture = captures_[number];
    std::vector<Change> changes;
    const auto add = [&](std::uint64_t event, std::int64_t bytes, Kind kind) {
      changes.push_back({event, bytes, kind == Kind::kDead});
    };
    std::int64_t live = 0;
    for (const std::uint32_t index : capture.freed) {
      const Allocation& allocation = device_.allocations[index];
      live += static_cast<std::int64_t>(allocation.bytes);
      add(allocation.free_event, -static_cast<std::int64_t>(allocation.bytes), Kind::kCarried);
    }
    for (const std::uint32_t index : capture.asked) {
      const Allocation& allocation = device_.allocations[index];
      if (kinds_[index] == Kind::kKept) continue;
      add(allocation.event, static_cast<std::int64_t>(allocation.bytes), kinds_[index]);
      if (kinds_[index] == Kind::kDead) {
        add(allocation.free_event, -static_cast<std::int64_t>(allocation.bytes), Kind::kDead);
      }
    }
    std::ranges::sort(changes, {}, &Change::event);
    std::int64_t dead = 0;
    CapturedGraph& graph = found_.graphs[number];
    graph.launch = static_cast<Bytes>(live);
    for (const Change& change : changes) {
      live += change.bytes;
      if (change.dead) dead += change.bytes;
      graph.launch = std::max(graph.launch, static_cast<Bytes>(live));
      graph.dead = std::max(graph.dead, static_cast<Bytes>(dead));
    }
  }

  void Walk() {
    waits_.assign(device_.allocations.size(), false);
    std::size_t next = 0;
    Sweep sweep(device_);
    for (SweepStep step; sweep.Next(&step);) {
      for (; next < launches_.size() && launches_[next].event <= step.event; ++next) TakeLaunch(launches_[next]);
      TakeStep(step);
    }
    for (; next < launches_.size(); ++next) TakeLaunch(launches_[next]);
  }

  void TakeStep(const SweepStep& step) {
    const Bytes bytes = device_.allocations[step.allocation].bytes;
    const auto change = [&](Bytes& live) { live = step.is_free ? live - bytes : live + bytes; };
    change(torch_);
    const std::uint32_t number = device_.PoolOf(step.allocation);
    if (kinds_[step.allocation] == Kind::kEager || !graph_pools_.contains(number)) {
      change(eager_);
    } else {
      Pool& pool = pools_[number];
      change(pool.live);
      pool.most = std::max(pool.most, pool.live);
      if (!step.is_free && kinds_[step.allocation] == Kind::kKept) pool.kept += bytes;
    }
    if (!step.is_free) Note(step.event, nullptr);
  }

  // Of the launched graph, the last one.
  [[nodiscard]] std::size_t CaptureBefore(const Launch& launch) const {
    const auto rows = rows_.find(launch.number);
    if (rows == rows_.end()) return kNoCapture;
    const auto ended = [&](std::size_t row) { return captures_[row].end <= launch.event; };
    const auto last = std::find_if(rows->second.rbegin(), rows->second.rend(), ended);
    return last != rows->second.rend() ? *last : kNoCapture;
  }

  void TakeLaunch(const Launch& launch) {
    const std::size_t at = CaptureBefore(launch);
    if (at == kNoCapture) return;
    ++found_.graphs[at].launches;
    // What it takes from others is part of its own launch.
    for (const std::uint32_t index : captures_[at].freed) SetWaiting(index, false);
    Note(launch.event, &found_.graphs[at]);
    for (const std::uint32_t index : captures_[at].asked) {
      if (kinds_[index] == Kind::kCarried) SetWaiting(index, true);
    }
  }

  void SetWaiting(std::uint32_t index, bool waits) {
    if (waits_[index] == waits) return;
    waits_[index] = waits;
    Bytes& waiting = pools_[device_.PoolOf(index)].waiting;
    const Bytes bytes = device_.allocations[index].bytes;
    waiting = waits ? waiting + bytes : waiting - bytes;
  }

  void Note(std::uint64_t event, const CapturedGraph* launched) {
    Bytes needed = eager_;
    for (const auto& [number, pool] : pools_) {
      needed += pool.Needs(launched != nullptr && launched->pool == number ? launched->launch : 0);
    }
    needed = std::max(needed, torch_);
    if (needed <= found_.peak) return;
    found_.peak = needed;
    found_.torch_then = torch_;
    found_.event = event;
  }

  const DeviceTrace& device_;
  std::vector<Capture> captures_;                           // parallel to the graphs that are found
  std::map<std::uint32_t, std::vector<std::size_t>> rows_;  // captures, by the number of their graph
  std::vector<Launch> launches_;
  std::vector<Kind> kinds_;  // by allocation, as the next one
  std::vector<bool> waits_;
  std::set<std::uint32_t> graph_pools_;  // PoolPlusOne: something was captured there; others are MemPools
  std::map<std::uint32_t, Pool> pools_;
  Bytes eager_ = 0;  // live
  Bytes torch_ = 0;  // live, with what pools have
  GraphNeeds found_;
};

}  // namespace

GraphNeeds FindGraphNeeds(const TracedRank& traced, const DeviceTrace& device) {
  return NeedsFinder(traced, device).Run();
}

}  // namespace stalloc::planner
