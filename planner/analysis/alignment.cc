#include "planner/analysis/alignment.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "planner/analysis/anchors.h"
#include "planner/analysis/similar_requests.h"

namespace stalloc::planner {
namespace {

// Beyond so many differences an edit script explains nothing (and costs its square).
constexpr std::uint32_t kMaxEdits = 2048;

using Keys = std::span<const RequestKey>;

// Adds the matches of sub-ranges that start at given positions.
class Collector {
 public:
  void Add(std::size_t left, std::size_t right) {
    matches_.emplace_back(static_cast<std::uint32_t>(left), static_cast<std::uint32_t>(right));
  }
  void Add(const Matches& matches, std::size_t left_base, std::size_t right_base) {
    for (const auto& [left, right] : matches) Add(left_base + left, right_base + right);
  }
  [[nodiscard]] Matches Take() { return std::move(matches_); }

 private:
  Matches matches_;
};

// Calls visit(left_begin, left_end, right_begin, right_end) for what lies between matches, the ends included, and
// match(left, right) for the matches, in order.
template <typename VisitGap, typename VisitMatch>
void WalkGaps(const Matches& matches, std::size_t left_size, std::size_t right_size, VisitGap visit, VisitMatch match) {
  std::size_t left = 0;
  std::size_t right = 0;
  for (const auto& [next_left, next_right] : matches) {
    visit(left, next_left, right, next_right);
    match(next_left, next_right);
    left = std::size_t{next_left} + 1;
    right = std::size_t{next_right} + 1;
  }
  visit(left, left_size, right, right_size);
}

// Pairs the k-th with the k-th where they are on one stream.
Matches PairByPosition(Keys left, Keys right) {
  Matches matches;
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (KeyStream(left[i]) == KeyStream(right[i])) {
      matches.emplace_back(static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i));
    }
  }
  return matches;
}

Matches AlignCore(Keys left, Keys right);

// What lies between the matches is aligned for itself.
Matches FillBetween(const Matches& matches, Keys left, Keys right) {
  Collector collector;
  WalkGaps(
      matches, left.size(), right.size(),
      [&](std::size_t lb, std::size_t le, std::size_t rb, std::size_t re) {
        collector.Add(AlignCore(left.subspan(lb, le - lb), right.subspan(rb, re - rb)), lb, rb);
      },
      [&](std::size_t l, std::size_t r) { collector.Add(l, r); });
  return collector.Take();
}

// Requests that both have, as keys with their numbers: no script matches more.
std::size_t CountCommon(Keys left, Keys right) {
  absl::flat_hash_map<RequestKey, std::size_t> counts;
  for (const RequestKey key : left) ++counts[key];
  std::size_t common = 0;
  for (const RequestKey key : right) {
    const auto found = counts.find(key);
    if (found == counts.end() || found->second == 0) continue;
    --found->second;
    ++common;
  }
  return common;
}

// A script that explains most of it is better than anchors, which need every occurrence of a size to agree. None where
// it would not, which is mostly seen without a search.
std::optional<Matches> ScriptOfMost(Keys left, Keys right) {
  const std::size_t least = (3 * std::min(left.size(), right.size()) + 3) / 4;
  const std::size_t common = CountCommon(left, right);
  if (common < least) return std::nullopt;
  const std::size_t all = left.size() + right.size();
  const std::size_t most_edits = std::min<std::size_t>(kMaxEdits, all - 2 * least);
  if (all - 2 * common > most_edits) return std::nullopt;
  return LongestCommonSubsequence(left, right, static_cast<std::uint32_t>(most_edits));
}

bool AllEqual(Keys left, Keys right) { return std::equal(left.begin(), left.end(), right.begin(), right.end()); }

Matches AlignCore(Keys left, Keys right) {
  if (left.empty() || right.empty()) {
    return {};
  }
  if (AllEqual(left, right)) return PairByPosition(left, right);
  if (const std::optional<Matches> script = ScriptOfMost(left, right); script.has_value()) {
    return FillBetween(*script, left, right);
  }
  if (IsShortEnough(left.size(), right.size())) return AlignSimilar(left, right);
  // Between two anchors a size may agree that does not on the whole. Each level has fewer requests than the one above.
  const Matches anchors = FindAnchors(left, right);
  return anchors.empty() ? PairByPosition(left, right) : FillBetween(anchors, left, right);
}

// Marks as keys: everything that distinguishes phases of one iteration. The number of an iteration does not.
RequestKey PhaseKey(const Phase& phase) {
  const Mark& mark = phase.mark;
  const std::int32_t index = mark.kind == MarkKind::kIteration ? 0 : mark.index;
  return absl::HashOf(mark.kind, mark.edge, mark.pass, mark.chunk, index, mark.name);
}

std::vector<RequestKey> PhaseKeys(const std::vector<Phase>& phases) {
  std::vector<RequestKey> keys;
  keys.reserve(phases.size());
  for (const Phase& phase : phases) keys.push_back(PhaseKey(phase));
  return keys;
}

}  // namespace

Sequence MakeSequence(const DeviceTrace& device, std::uint32_t segment) {
  Sequence sequence;
  sequence.phases = device.segments[segment].phases;
  for (const std::uint32_t index : device.segments[segment].allocations) {
    sequence.keys.push_back(MakeKey(device.allocations[index].bytes, device.allocations[index].stream));
  }
  return sequence;
}

Sequence MakeSequence(const Script& script) {
  Sequence sequence;
  sequence.phases = script.phases;
  for (const Entry& entry : script.entries) {
    sequence.keys.push_back(MakeKey(entry.bytes, entry.stream));
  }
  return sequence;
}

Alignment::Alignment(std::uint32_t size) {
  for (std::uint32_t i = 0; i < size; ++i) to_right_.push_back(i);
  to_left_ = to_right_;
  left_bound_ = to_right_;
  left_bound_.push_back(size);
}

Alignment::Alignment(const Matches& matches, std::uint32_t left_size, std::uint32_t right_size)
    : to_right_(left_size, kNone), to_left_(right_size, kNone), left_bound_(std::size_t{right_size} + 1, left_size) {
  for (const auto& [left, right] : matches) {
    to_right_[left] = right;
    to_left_[right] = left;
  }
  std::uint32_t bound = left_size;
  for (std::uint32_t right = right_size; right-- > 0;) {
    bound = to_left_[right] == kNone ? bound : to_left_[right];
    left_bound_[right] = bound;
  }
}

std::uint32_t Alignment::LeftReached(std::uint32_t right) const {
  while (right > 0 && to_left_[right - 1] == kNone) --right;
  return right == 0 ? 0 : to_left_[right - 1] + 1;
}

Matches AlignRequests(Keys left, Keys right) {
  const std::size_t shorter = std::min(left.size(), right.size());
  std::size_t prefix = 0;
  while (prefix < shorter && left[prefix] == right[prefix]) ++prefix;
  std::size_t suffix = 0;
  while (suffix < shorter - prefix && left[left.size() - 1 - suffix] == right[right.size() - 1 - suffix]) {
    ++suffix;
  }
  Collector collector;
  for (std::size_t i = 0; i < prefix; ++i) collector.Add(i, i);
  collector.Add(AlignCore(left.subspan(prefix, left.size() - prefix - suffix),
                          right.subspan(prefix, right.size() - prefix - suffix)),
                prefix, prefix);
  for (std::size_t i = 0; i < suffix; ++i) {
    collector.Add(left.size() - suffix + i, right.size() - suffix + i);
  }
  return collector.Take();
}

Alignment Align(const Sequence& left, const Sequence& right) {
  return Align(left, right, static_cast<std::uint32_t>(right.keys.size()));
}

Alignment Align(const Sequence& left, const Sequence& right, std::uint32_t right_compared) {
  Collector collector;
  const auto align = [&](std::size_t lb, std::size_t le, std::size_t rb, std::size_t re) {
    rb = std::min<std::size_t>(rb, right_compared);
    re = std::min<std::size_t>(re, right_compared);
    collector.Add(AlignRequests(Keys(left.keys).subspan(lb, le - lb), Keys(right.keys).subspan(rb, re - rb)), lb, rb);
  };
  // Marks that only one side has are no boundary: their phases are aligned as one with the phase before.
  std::size_t left_begin = 0;
  std::size_t right_begin = 0;
  const std::vector<RequestKey> left_marks = PhaseKeys(left.phases);
  const std::vector<RequestKey> right_marks = PhaseKeys(right.phases);
  for (const auto& [l, r] : LongestCommonSubsequence(left_marks, right_marks, kMaxEdits).value_or(Matches{})) {
    align(left_begin, left.phases[l].first_entry, right_begin, right.phases[r].first_entry);
    left_begin = left.phases[l].first_entry;
    right_begin = right.phases[r].first_entry;
  }
  align(left_begin, left.keys.size(), right_begin, right.keys.size());
  return {collector.Take(), static_cast<std::uint32_t>(left.keys.size()),
          static_cast<std::uint32_t>(right.keys.size())};
}

}  // namespace stalloc::planner
