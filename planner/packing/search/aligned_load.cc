#include "planner/packing/search/aligned_load.h"

#include <algorithm>
#include <bit>
#include <queue>
#include <vector>

namespace stalloc::planner {
namespace {

struct Padding {
  Bytes bytes;
  Span span;

  bool operator<(const Padding& other) const { return bytes < other.bytes; }
};

// Granules are powers of two.
bool IsMultiple(Bytes value, Bytes granule) { return (value & (granule - 1)) == 0; }

Bytes PaddingOf(const Item& item, Bytes granule) { return -item.bytes & (granule - 1); }

Bytes GreatestPowerOfTwoIn(Bytes alignment) { return Bytes{1} << std::countr_zero(alignment); }

// Of the blocks whose alignment is a multiple of the granule.
class RoundedLoad {
 public:
  RoundedLoad(const Instance& instance, Bytes granule) : load_(instance.positions() + 1) {
    for (const Item& item : instance.items()) {
      if (!IsMultiple(item.alignment, granule)) continue;
      for (const Span& span : {item.span, item.second}) {
        if (!span.empty()) Add(span, item.bytes, PaddingOf(item, granule));
      }
    }
    std::sort(paddings_.begin(), paddings_.end(),
              [](const Padding& a, const Padding& b) { return a.span.begin < b.span.begin; });
  }

  // Greatest over time, the topmost block taken as it is.
  [[nodiscard]] Bytes Bound() const {
    Bytes bound = 0;
    Bytes load = 0;
    std::priority_queue<Padding> alive;  // and what ended since, below the greatest
    auto next = paddings_.begin();
    for (std::uint32_t position = 0; position + 1 < load_.size(); ++position) {
      load += load_[position];
      for (; next != paddings_.end() && next->span.begin == position; ++next) alive.push(*next);
      while (!alive.empty() && alive.top().span.end <= position) alive.pop();
      bound = std::max(bound, load - (alive.empty() ? 0 : alive.top().bytes));
    }
    return bound;
  }

 private:
  void Add(const Span& span, Bytes bytes, Bytes padding) {
    load_[span.begin] += bytes + padding;
    load_[span.end] -= bytes + padding;
    if (padding != 0) paddings_.push_back({padding, span});
  }

  std::vector<Bytes> load_;  // at a position, what it is more than before, modulo 2^64
  std::vector<Padding> paddings_;
};

}  // namespace

Bytes AlignedLoadBound(const Instance& instance) {
  Bytes granules = 0;  // a set of powers of two
  for (const Item& item : instance.items()) granules |= GreatestPowerOfTwoIn(item.alignment);
  granules &= ~Bytes{1};  // pads nothing
  Bytes bound = instance.load_bound();
  for (; granules != 0; granules &= granules - 1) {
    const Bytes granule = GreatestPowerOfTwoIn(granules);
    const bool pads = std::any_of(instance.items().begin(), instance.items().end(), [&](const Item& item) {
      return IsMultiple(item.alignment, granule) && !IsMultiple(item.bytes, granule);
    });
    if (pads) bound = std::max(bound, RoundedLoad(instance, granule).Bound());
  }
  return bound;
}

}  // namespace stalloc::planner
