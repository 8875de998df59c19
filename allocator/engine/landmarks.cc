#include "allocator/engine/landmarks.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>

#include "allocator/engine/plan_reading.h"

namespace stalloc {
namespace {

// A run is not further than this from where its requests' number says it is, or nothing is known of it.
constexpr std::int32_t kFarthest = 1024;

// Of so many places of a size one may be an entry that is not always there.
constexpr std::size_t kSeldom = 16;

// The places of one size.
struct Places {
  std::vector<std::int32_t> fixed;
  std::size_t varying = 0;
};

// The first ones of each run; none if one run is long: what an expert asks for several times marks no place.
std::vector<std::int32_t> FirstOfRuns(const std::vector<std::int32_t>& places) {
  std::vector<std::int32_t> firsts;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (i == 0 || places[i] - places[i - 1] > Landmarks::kRun) firsts.push_back(places[i]);
    if (places[i] - firsts.back() > 2 * Landmarks::kRun) return {};
  }
  return firsts;
}

}  // namespace

Landmarks::Landmarks(const Script& script, const std::function<std::uint32_t(std::int32_t)>& anchor) {
  std::vector<std::int32_t> varying_before = {0};
  std::map<std::uint32_t, Places> sizes;
  for (std::size_t i = 0; i < script.entries.size(); ++i) {
    const bool varies = IsVaryingEntry(script.entries[i]);
    varying_before.push_back(varying_before.back() + (varies ? 1 : 0));
    const auto position = static_cast<std::int32_t>(i);
    const std::uint32_t granules = anchor(position);
    if (granules == 0) continue;
    Places& places = sizes[granules];
    if (varies) {
      ++places.varying;
    } else {
      places.fixed.push_back(position);
    }
  }
  for (const auto& [granules, places] : sizes) {
    const std::vector<std::int32_t> firsts = FirstOfRuns(places.fixed);
    if (firsts.empty() || places.varying * kSeldom > places.fixed.size()) continue;
    const auto gaps = static_cast<std::int32_t>(firsts.size()) - 1;
    // Of one place alone, the whole script is what it tells apart.
    const std::int32_t begin = gaps > 0 ? firsts.front() : 0;
    const std::int32_t end = gaps > 0 ? firsts.back() : static_cast<std::int32_t>(script.entries.size());
    const std::int32_t varying =
        varying_before[static_cast<std::size_t>(end)] - varying_before[static_cast<std::size_t>(begin)];
    if (end - begin < kApart * gaps || 4 * varying < end - begin) continue;
    for (const std::int32_t position : firsts) {
      by_size_.push_back({granules, position});
      positions_.push_back(position);
    }
  }
  std::sort(positions_.begin(), positions_.end());
}

std::int32_t Landmarks::Nearest(std::uint32_t granules, std::int32_t position, std::int32_t begin,
                                std::int32_t end) const noexcept {
  constexpr std::int32_t kNowhere = std::numeric_limits<std::int32_t>::max() / 4;
  const auto next = std::lower_bound(by_size_.begin(), by_size_.end(), Landmark{granules, position}, InOrder);
  const auto is_one = [&](const Landmark& landmark) {
    return landmark.granules == granules && landmark.position >= begin && landmark.position < end;
  };
  const bool has_next = next != by_size_.end() && is_one(*next);
  const bool has_last = next != by_size_.begin() && is_one(*std::prev(next));
  const std::int32_t ahead = has_next ? next->position - position : kNowhere;
  const std::int32_t behind = has_last ? position - std::prev(next)->position : kNowhere;
  const auto [near, far] = std::minmax(ahead, behind);
  if (near > kFarthest || 3 * near > 2 * far || near + far < kApart / 2) return kNone;
  return ahead < behind ? next->position : std::prev(next)->position;
}

std::int32_t Landmarks::Before(std::int32_t position) const noexcept {
  const auto next = std::lower_bound(positions_.begin(), positions_.end(), position);
  return next == positions_.begin() ? kNone : *std::prev(next);
}

}  // namespace stalloc
