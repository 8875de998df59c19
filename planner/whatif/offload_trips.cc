#include "planner/whatif/offload_trips.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace stalloc::planner {
namespace {

// stations.py's, which a test compares.
constexpr std::size_t kAfter = 3;
constexpr std::size_t kAhead = 2;

bool IsNumber(absl::string_view part) {
  return !part.empty() && std::all_of(part.begin(), part.end(), absl::ascii_isdigit);
}

// For a layer's path: what its stations are called but for their last part, and how many parts they have. A path begins
// with the model's class.
struct StationsOf {
  std::string holder;
  std::size_t parts = 0;
};

StationsOf StationsOfPath(const std::string& path) {
  const std::vector<std::string> parts = absl::StrSplit(path, '.');
  const auto number =
      std::find_if(std::next(parts.begin()), parts.end(), [](const auto& part) { return IsNumber(part); });
  const auto last = number == parts.end() ? std::prev(parts.end()) : number;
  return {absl::StrJoin(parts.begin(), last, "."), static_cast<std::size_t>(last - parts.begin()) + 1};
}

class PlaceFinder {
 public:
  PlaceFinder(const std::vector<std::string>& names, const std::vector<LayerVisit>& visits)
      : names_(names), visits_(visits) {
    for (std::size_t i = 0; i < visits.size(); ++i) {
      const std::string& name = names[visits[i].name];
      of_name_[name].push_back(i);
      of_holder_[name.substr(0, name.rfind('.') == std::string::npos ? 0 : name.rfind('.'))].push_back(i);
    }
  }

  [[nodiscard]] OffloadPlace Of(const LayerVisit& visit) const {
    const OffloadPlace alone{visit.forward_end, visit.backward_begin};
    const std::string& name = names_[visit.name];
    if (name.find('.') == std::string::npos) return alone;
    const StationsOf of = StationsOfPath(name);
    const LayerVisit* around = Around(of.holder, visit);
    if (around == nullptr) return alone;
    const std::vector<std::size_t> stations = StationsIn(of.holder, *around);
    const auto own = std::find_if(stations.begin(), stations.end(), [&](std::size_t i) {
      return visits_[i].forward_begin <= visit.forward_begin && visit.forward_end <= visits_[i].forward_end;
    });
    if (own == stations.end()) return alone;
    const auto at = static_cast<std::size_t>(own - stations.begin());
    OffloadPlace place{around->forward_end, around->backward_begin};
    if (at + kAfter < stations.size()) place.gone = visits_[stations[at + kAfter]].forward_end;
    if (at + kAhead < stations.size()) place.back = visits_[stations[at + kAhead]].backward_begin;
    return place;
  }

 private:
  // The innermost visit around it that is the holder's, or of a layer around that.
  [[nodiscard]] const LayerVisit* Around(std::string holder, const LayerVisit& visit) const {
    while (!holder.empty()) {
      const auto found = of_name_.find(holder);
      for (const std::size_t i : found == of_name_.end() ? std::vector<std::size_t>{} : found->second) {
        const LayerVisit& one = visits_[i];
        if (one.forward_begin <= visit.forward_begin && visit.forward_end <= one.forward_end) return &one;
      }
      const std::size_t dot = holder.rfind('.');
      holder.resize(dot == std::string::npos ? 0 : dot);
    }
    return nullptr;
  }
  [[nodiscard]] std::vector<std::size_t> StationsIn(const std::string& holder, const LayerVisit& around) const {
    const auto found = of_holder_.find(holder);
    if (found == of_holder_.end()) return {};
    const auto at = [&](std::uint64_t event) {
      return std::lower_bound(found->second.begin(), found->second.end(), event,
                              [&](std::size_t i, std::uint64_t other) { return visits_[i].forward_begin < other; });
    };
    return {at(around.forward_begin), at(around.forward_end)};
  }

  const std::vector<std::string>& names_;
  const std::vector<LayerVisit>& visits_;
  std::map<std::string, std::vector<std::size_t>> of_name_;    // visits, ascending
  std::map<std::string, std::vector<std::size_t>> of_holder_;  // by the path without its last part
};

}  // namespace

std::vector<OffloadPlace> FindOffloadPlaces(const std::vector<std::string>& names,
                                            const std::vector<LayerVisit>& visits) {
  const PlaceFinder finder(names, visits);
  std::vector<OffloadPlace> places;
  places.reserve(visits.size());
  for (const LayerVisit& visit : visits) places.push_back(finder.Of(visit));
  return places;
}

std::int64_t StallOf(const std::vector<OffloadTrip>& trips, double bytes_per_ns) {
  struct Copy {
    std::int64_t from = 0;
    std::int64_t by = 0;
    std::int64_t ns = 0;
    bool out = false;
  };
  std::vector<Copy> copies;
  for (const OffloadTrip& trip : trips) {
    const auto ns = static_cast<std::int64_t>(static_cast<double>(trip.bytes) / bytes_per_ns);
    copies.push_back({trip.saved_ns, trip.gone_ns, ns, true});
    copies.push_back({trip.back_ns, trip.needed_ns, ns, false});
  }
  std::stable_sort(copies.begin(), copies.end(), [](const Copy& a, const Copy& b) { return a.by < b.by; });
  std::int64_t stall = 0;
  std::int64_t out_free = 0;
  std::int64_t back_free = 0;
  for (const Copy& copy : copies) {
    std::int64_t& free = copy.out ? out_free : back_free;
    free = std::max(free, copy.from + stall) + copy.ns;
    stall += std::max<std::int64_t>(0, free - (copy.by + stall));
  }
  return stall;
}

Bytes MostOnHost(const std::vector<OffloadTrip>& trips) {
  Bytes most = 0;
  for (const OffloadTrip& at : trips) {
    Bytes there = 0;
    for (const OffloadTrip& trip : trips) {
      there += trip.saved_ns <= at.saved_ns && at.saved_ns < trip.needed_ns ? trip.bytes : 0;
    }
    most = std::max(most, there);
  }
  return most;
}

}  // namespace stalloc::planner
