#include "planner/analysis/recomputation.h"

#include <cstddef>
#include <utility>

namespace stalloc::planner {
namespace {

// Looks at one request after the other, in order.
class RangeFinder {
 public:
  explicit RangeFinder(const DeviceTrace& device) : device_(device) {}

  void Take(std::uint32_t index) {
    const Allocation& allocation = device_.allocations[index];
    if (open_ && segment_ != allocation.segment) Close();
    if ((allocation.flags & kAllocRecomputed) == 0) {
      if (open_) gap_.push_back(index);
      return;
    }
    if (open_ && !OutlivesTheGap(allocation.event)) Close();
    if (!open_) {
      open_ = true;
      first_event_ = allocation.event;
      segment_ = allocation.segment;
    }
    blocks_.insert(blocks_.end(), gap_.begin(), gap_.end());
    blocks_.push_back(index);
    gap_.clear();
    last_event_ = allocation.event;
  }

  [[nodiscard]] std::vector<RecomputedRange> Finish() {
    Close();
    return std::move(ranges_);
  }

 private:
  void Close() {
    if (open_) ranges_.push_back({first_event_, last_event_});
    open_ = false;
    blocks_.clear();
    gap_.clear();
  }

  // For what was alive where the gap began, more than half is alive where it ends. Blocks that are freed by then are
  // never looked at again.
  [[nodiscard]] bool OutlivesTheGap(std::uint64_t end_event) {
    if (gap_.empty()) return true;
    const std::uint64_t begin_event = device_.allocations[gap_.front()].event;
    Bytes before = 0;
    Bytes after = 0;
    std::size_t kept = 0;
    for (const std::uint32_t index : blocks_) {
      const Allocation& block = device_.allocations[index];
      if (block.free_event < begin_event) continue;
      before += block.bytes;
      if (block.free_event < end_event) continue;
      after += block.bytes;
      blocks_[kept++] = index;
    }
    blocks_.resize(kept);
    return 2 * after > before;
  }

  const DeviceTrace& device_;
  std::vector<RecomputedRange> ranges_;
  bool open_ = false;                  // a range, whose last request may be yet to come
  std::vector<std::uint32_t> blocks_;  // of the open range, that may be alive
  std::vector<std::uint32_t> gap_;     // requests after it that are not flagged
  std::uint64_t first_event_ = 0;
  std::uint64_t last_event_ = 0;
  std::uint32_t segment_ = 0;
};

}  // namespace

std::vector<RecomputedRange> FindRecomputation(const DeviceTrace& device) {
  RangeFinder finder(device);
  for (std::uint32_t i = 0; i < device.allocations.size(); ++i) {
    if (!device.allocations[i].outside) finder.Take(i);
  }
  return finder.Finish();
}

}  // namespace stalloc::planner
