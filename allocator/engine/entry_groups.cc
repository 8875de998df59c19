#include "allocator/engine/entry_groups.h"

#include <algorithm>
#include <cstddef>

#include "allocator/engine/plan_reading.h"

namespace stalloc {
namespace {

constexpr std::size_t kLeastEntries = 4;
constexpr std::size_t kMostEntries = 64;
constexpr std::size_t kLeastVarying = 4;  // one of so many

bool Alike(const Entry& a, const Entry& b) {
  const bool varies = IsVaryingEntry(a);
  return varies == IsVaryingEntry(b) && (varies || a.bytes == b.bytes);
}

// Two groups of this length end before `end`, and what is there has the size of an entry of theirs.
bool EndsGroups(const std::vector<Entry>& entries, std::size_t end, std::size_t length) {
  std::size_t varying = 0;
  bool mistakable = false;
  for (std::size_t at = end - length; at < end; ++at) {
    if (!Alike(entries[at], entries[at - length])) return false;
    const bool varies = IsVaryingEntry(entries[at]);
    varying += varies ? 1 : 0;
    mistakable = mistakable || (!varies && entries[at].bytes == entries[end].bytes);
  }
  return mistakable && kLeastVarying * varying >= length;
}

}  // namespace

std::vector<std::uint8_t> FindEntryGroups(const std::vector<Entry>& entries) {
  std::vector<std::uint8_t> groups(entries.size(), 0);
  for (std::size_t end = 0; end < entries.size(); ++end) {
    if (IsVaryingEntry(entries[end])) continue;  // follows weakly as it is
    for (std::size_t length = kLeastEntries; length <= std::min(kMostEntries, end / 2); ++length) {
      if (!EndsGroups(entries, end, length)) continue;
      groups[end] = static_cast<std::uint8_t>(length);
      break;
    }
  }
  return groups;
}

}  // namespace stalloc
