#include "planner/report/worth_text.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/report/quantities.h"

namespace stalloc::planner {
namespace {

constexpr Bytes kAlikeParts = 100;  // of what another allocator holds: a smaller difference is none
constexpr Bytes kDriverParts = 32;  // of a card: what is left for the context and the driver

using Holder = std::pair<std::string, Bytes>;  // its name, what it holds

// Empty where it is worth nothing.
std::string Gain(const Holder& other, Bytes own) {
  if (other.second <= own || other.second - own < other.second / kAlikeParts) return {};
  return absl::StrCat(FormatBytes(other.second - own), " against ", other.first);
}

std::string Verdict(const Holder& native, const Holder& expandable, Bytes own) {
  std::vector<std::string> gains;
  std::vector<std::string> none;
  for (const Holder& other : {native, expandable}) {
    std::string gain = Gain(other, own);
    gain.empty() ? none.push_back(other.first) : gains.push_back(std::move(gain));
  }
  if (gains.empty()) return "worth no memory: both hold little more than is live";
  const std::string nothing = none.empty() ? "" : absl::StrCat(", nothing against ", none.front());
  return absl::StrCat("worth ", absl::StrJoin(gains, ", "), nothing);
}

std::string OnCard(const std::array<Holder, 3>& holders, Bytes card) {
  if (card == 0) return {};
  std::vector<std::string> fits;
  for (const auto& [name, held] : holders) {
    if (held <= card - card / kDriverParts) fits.push_back(name);
  }
  const std::string of_card = absl::StrCat("the card's ", FormatBytes(card));
  if (fits.size() == holders.size()) return absl::StrCat("; all of them fit ", of_card);
  if (fits.empty()) return absl::StrCat("; none of them fits ", of_card);
  return absl::StrCat("; only ", absl::StrJoin(fits, " and "), fits.size() == 1 ? " fits " : " fit ", of_card);
}

}  // namespace

std::string WorthText(const DeviceReport& device, const DevicePlan* plan, Bytes card_bytes) {
  const Bytes live = device.peak.live_bytes;
  if (live == 0) return {};
  Bytes own = live;
  bool is_bound = false;
  if (device.packing.has_value()) {
    own = device.packing->held_bytes;
  } else if (plan != nullptr && plan->predicted.efficiency > 0) {
    own = static_cast<Bytes>(static_cast<double>(live) / plan->predicted.efficiency);
  } else {
    own = device.forecast.has_value() ? std::max(live, device.forecast->held_bytes) : live;
    is_bound = true;
  }
  const Holder native{"native", device.simulated.native_bytes};
  const Holder expandable{"expandable_segments", device.simulated.expandable_bytes};
  return absl::StrCat(
      "native would hold ", FormatBytes(native.second), ", expandable_segments ", FormatBytes(expandable.second),
      ", stalloc ", is_bound ? "at least " : "", FormatBytes(own), ": ", Verdict(native, expandable, own),
      OnCard({native, expandable, Holder{"stalloc", own}}, device.device == kCpuDevice ? 0 : card_bytes));
}

}  // namespace stalloc::planner
