#include "planner/report/quantities.h"

#include "absl/strings/str_format.h"

namespace stalloc::planner {

std::string FormatBytes(Bytes bytes) {
  constexpr Bytes kKiB = 1024;
  if (bytes >= kKiB * kKiB * kKiB) {
    return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / (kKiB * kKiB * kKiB));
  }
  if (bytes >= kKiB * kKiB) {
    return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (kKiB * kKiB));
  }
  if (bytes >= kKiB) {
    return absl::StrFormat("%.1f KiB", static_cast<double>(bytes) / kKiB);
  }
  return absl::StrFormat("%d B", bytes);
}

std::string FormatShare(double share) { return share == 0 ? "-" : absl::StrFormat("%.2f %%", 100 * share); }

std::string FormatSeconds(double seconds) { return absl::StrFormat("%.2f s", seconds); }

}  // namespace stalloc::planner
