#include "planner/packing/search/near_peak.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace stalloc::planner {
namespace {

// Greatest load within a span of positions.
class PeakOverSpan {
 public:
  explicit PeakOverSpan(const Instance& instance)
      : leaves_(std::bit_ceil(std::max<std::uint32_t>(instance.positions(), 1))), greatest_(2 * leaves_) {
    const std::vector<Bytes> load = instance.Load();
    std::copy(load.begin(), load.end(), greatest_.begin() + leaves_);
    for (std::uint32_t node = leaves_ - 1; node > 0; --node) {
      greatest_[node] = std::max(greatest_[2 * node], greatest_[2 * node + 1]);
    }
  }

  [[nodiscard]] Bytes Of(const Span& span) const {
    Bytes greatest = 0;
    for (std::uint32_t l = span.begin + leaves_, r = span.end + leaves_; l < r; l >>= 1, r >>= 1) {
      if (l & 1) greatest = std::max(greatest, greatest_[l++]);
      if (r & 1) greatest = std::max(greatest, greatest_[--r]);
    }
    return greatest;
  }

 private:
  std::uint32_t leaves_;
  std::vector<Bytes> greatest_;
};

}  // namespace

std::vector<BlockIndex> BlocksNearPeak(const Instance& instance, double share) {
  const PeakOverSpan peak(instance);
  const Bytes least = static_cast<Bytes>(share * static_cast<double>(instance.load_bound()));
  std::vector<BlockIndex> near;
  for (BlockIndex i = 0; i < instance.size(); ++i) {
    if (std::max(peak.Of(instance[i].span), peak.Of(instance[i].second)) >= least) near.push_back(i);
  }
  return near;
}

Bytes LightBytes(const Instance& instance) { return instance.load_bound() / 32768; }

}  // namespace stalloc::planner
