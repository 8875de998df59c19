#include "planner/report/quantities.h"

#include "absl/strings/str_format.h"

namespace stalloc::planner {

std::string FormatBytes(Bytes bytes) {
  if (bytes >= kKiB * kKiB * kKiB) {
    return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / (kKiB * kKiB * kKiB));
  }
  if (bytes >= kKiB * kKiB) {
    return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (kKiB * kKiB));
  }
  if (bytes >= kKiB) return absl::StrFormat("%.1f KiB", static_cast<double>(bytes) / kKiB);
  return absl::StrFormat("%d B", bytes);
}

std::string FormatShare(double share) { return share == 0 ? "-" : absl::StrFormat("%.2f %%", 100 * share); }

std::string FormatSeconds(double seconds) { return absl::StrFormat("%.2f s", seconds); }

std::string DistanceText(Bytes arena, Bytes lower_bound) {
  if (arena <= lower_bound) return "optimal";
  const double excess = static_cast<double>(arena - lower_bound);
  return absl::StrFormat("within %s (%.2g %%) of the bound %s", FormatBytes(arena - lower_bound),
                         lower_bound == 0 ? 100.0 : 100 * excess / static_cast<double>(lower_bound),
                         FormatBytes(lower_bound));
}

std::string PackingProgressText(Bytes height, Bytes lower_bound) {
  if (height <= lower_bound || lower_bound == 0) {
    return absl::StrFormat("packing at the bound (%s)", FormatBytes(height));
  }
  return absl::StrFormat("packing %.5f x the bound (%s)",
                         static_cast<double>(height) / static_cast<double>(lower_bound), FormatBytes(height));
}

}  // namespace stalloc::planner
