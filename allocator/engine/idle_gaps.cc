#include "allocator/engine/idle_gaps.h"

#include <algorithm>
#include <limits>

#include "allocator/engine/plan_reading.h"

namespace stalloc {
namespace {

using Position = std::uint64_t;  // requests from the axis' begin, plus one

constexpr Position kInUse = 0;
constexpr Position kNever = std::numeric_limits<Position>::max();

// Of more gaps than these the larger ones will do: where there are so many, there is slack.
constexpr std::size_t kMostGaps = 64;

// How far an entry's neighbourhood goes, in entries to either side: about a layer.
constexpr std::size_t kNeighbourhood = 256;

// An expert with few tokens in the traced iterations may have so many times as many.
constexpr std::uint32_t kGrowth = 64;

// When each address is used next. Ascending ranges that cover [0, limit).
class NextUses {
 public:
  explicit NextUses(std::uint32_t limit) : limit_(limit), ranges_{{0, kNever}} {}

  void Assign(std::uint32_t lo, std::uint32_t hi, Position use) {
    const auto first = std::lower_bound(ranges_.begin(), ranges_.end(), lo, StartsBefore);
    const auto last = std::lower_bound(first, ranges_.end(), hi, StartsBefore);
    const Position behind = std::prev(last)->use;
    const bool cut = hi < limit_ && (last == ranges_.end() || last->lo > hi);
    // [first, last) begin inside [lo, hi): one range takes their place, and one more where the last of them goes on.
    Range fresh[2] = {{lo, use}, {hi, behind}};
    const std::size_t count = cut ? 2 : 1;
    const auto room = static_cast<std::size_t>(last - first);
    const auto reused = std::min(room, count);
    std::copy(fresh, fresh + reused, first);
    if (room > count) ranges_.erase(first + static_cast<std::ptrdiff_t>(count), last);
    if (room < count) ranges_.insert(first + static_cast<std::ptrdiff_t>(reused), fresh + reused, fresh + count);
  }

  // Calls visit(lo, hi) for each maximal range that is not used before `until`, ascending.
  template <typename Visit>
  void ForEachIdle(Position until, Visit&& visit) const {
    for (std::size_t i = 0; i < ranges_.size();) {
      if (ranges_[i].use < until) {
        ++i;
        continue;
      }
      const std::uint32_t lo = ranges_[i].lo;
      while (i < ranges_.size() && ranges_[i].use >= until) ++i;
      visit(lo, i < ranges_.size() ? ranges_[i].lo : limit_);
    }
  }

 private:
  struct Range {
    std::uint32_t lo;
    Position use;
  };
  static bool StartsBefore(const Range& range, std::uint32_t at) { return range.lo < at; }

  std::uint32_t limit_;
  std::vector<Range> ranges_;
};

// An entry with its first place on the axis: prologue, then the cycle's rounds.
struct Request {
  const Entry* entry = nullptr;
  Position begin = 0;
  bool cyclic = false;
};

// A request in one round; those of the prologue have round 0 alone.
struct Occurrence {
  Position at = 0;
  std::size_t request = 0;
  std::uint64_t round = 0;
};
bool Later(const Occurrence& a, const Occurrence& b) { return a.at > b.at; }

// The sweep.
class GapFinder {
 public:
  GapFinder(const DevicePlan& plan, std::uint32_t limit) : plan_(plan), uses_(limit) {
    AddRequests(plan.prologue, false);
    const std::size_t prologue = requests_.size();
    AddRequests(plan.cycle, true);
    length_ = requests_.size() - prologue;
    for (std::size_t request = 0; request < requests_.size(); ++request) AddOccurrences(request);
    std::sort(begins_.begin(), begins_.end(), Later);
    std::sort(ends_.begin(), ends_.end(), Later);
    for (const Entry& kept : plan.kept.entries) Assign(kept, kInUse);
  }

  [[nodiscard]] const Entry& entry(std::size_t request) const { return *requests_[request].entry; }

  // Calls visit(request, uses, begin, end) at each request's place, last one first: what is used next when, and until
  // when the request's block lives.
  template <typename Visit>
  void Sweep(Visit&& visit) {
    auto end = ends_.begin();
    for (const Occurrence& begin : begins_) {
      for (; end != ends_.end() && end->at >= begin.at; ++end) Assign(*end, kInUse);
      if (TakesSlot(begin)) Assign(begin, begin.at);
      if (begin.round == (requests_[begin.request].cyclic ? 1 : 0)) visit(begin.request, uses_, begin.at, EndOf(begin));
    }
  }

 private:
  static constexpr std::uint64_t kRounds = 3;

  void AddRequests(const std::vector<Script>& scripts, bool cyclic) {
    for (const Script& script : scripts) {
      for (const Entry& entry : script.entries) requests_.push_back({&entry, requests_.size() + 1, cyclic});
    }
  }

  void AddOccurrences(std::size_t request) {
    const std::uint64_t rounds = requests_[request].cyclic ? kRounds : 1;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const Occurrence begin{requests_[request].begin + round * length_, request, round};
      begins_.push_back(begin);
      if (!TakesSlot(begin)) continue;
      const Position end = EndOf(begin);
      if (end > begin.at + 1) ends_.push_back({end == kNever ? end : end - 1, request, round});
    }
  }

  [[nodiscard]] Position EndOf(const Occurrence& begin) const {
    const std::uint64_t life = entry(begin.request).expected_life;
    return life == 0 ? kNever : begin.at + life;
  }

  // What stays for good takes its slot in the first round only, and has it ever after.
  [[nodiscard]] bool TakesSlot(const Occurrence& begin) const {
    const Entry& taker = entry(begin.request);
    return taker.slot != kNoSlot && (begin.round == 0 || taker.expected_life != 0);
  }

  void Assign(const Occurrence& occurrence, Position use) { Assign(entry(occurrence.request), use); }
  void Assign(const Entry& entry, Position use) {
    if (entry.slot == kNoSlot) return;
    const Slot& slot = plan_.slots[entry.slot];
    uses_.Assign(WholeGranules(slot.offset), WholeGranules(slot.offset + slot.capacity), use);
  }

  const DevicePlan& plan_;
  NextUses uses_;
  std::vector<Request> requests_;
  Position length_ = 0;  // of the cycle
  std::vector<Occurrence> begins_;
  std::vector<Occurrence> ends_;  // last positions of slots that are in use over more than one
};

// Of prologue and cycle.
std::vector<const Entry*> AllEntries(const DevicePlan& plan) {
  std::vector<const Entry*> entries;
  ForEachScript(plan, [&](const Script& script) {
    for (const Entry& entry : script.entries) entries.push_back(&entry);
  });
  return entries;
}

// The longest of [first, end), in the order they were in.
void KeepLongest(std::vector<IdleGaps::Gap>& gaps, std::size_t first, std::size_t count) {
  if (gaps.size() - first <= count) return;
  const auto begin = gaps.begin() + static_cast<std::ptrdiff_t>(first);
  std::nth_element(begin, begin + static_cast<std::ptrdiff_t>(count), gaps.end(),
                   [](const auto& a, const auto& b) { return a.hi - a.lo > b.hi - b.lo; });
  gaps.resize(first + count);
  std::sort(gaps.begin() + static_cast<std::ptrdiff_t>(first), gaps.end(),
            [](const auto& a, const auto& b) { return a.lo < b.lo; });
}

}  // namespace

IdleGaps::IdleGaps(const DevicePlan& plan, std::uint32_t limit, std::uint32_t least) {
  std::size_t entries = 0;
  ForEachScript(plan, [&](const Script& script) {
    script_begins_.push_back(entries);
    entries += script.entries.size();
  });
  script_begins_.push_back(entries);
  above_ = {WholeGranules(plan.arena_bytes), limit};
  spans_.resize(entries);
  idle_ = FindGaps(plan, limit, least);

  around_.assign(entries, kNone);
  std::size_t script = 0;
  ForEachScript(plan, [&](const Script& one) { FindNeighbours(one, script_begins_[script++]); });
  varies_mostly_ = 2 * std::count(around_.begin(), around_.end(), kNone) < std::ssize(around_);
  SortBySize(plan);
}

IdleGaps::Lists IdleGaps::FindGaps(const DevicePlan& plan, std::uint32_t limit, std::uint32_t least) {
  Lists found;
  found.lists.resize(spans_.size());
  GapFinder finder(plan, limit);
  finder.Sweep([&](std::size_t request, const NextUses& uses, Position begin, Position end) {
    const Entry& entry = finder.entry(request);
    spans_[request] = {begin, end};
    const std::uint32_t most = WholeGranules(std::max(entry.max_bytes, entry.bytes));
    if (most < (IsVaryingEntry(entry) ? least / kGrowth : least)) return;
    // A smaller block than was seen may come: it then does without the smallest gaps.
    const std::uint32_t worth = std::max(WholeGranules(std::min(entry.min_bytes, entry.bytes)) / 2, least / 2);
    const std::size_t first = found.gaps.size();
    uses.ForEachIdle(end, [&](std::uint32_t lo, std::uint32_t hi) {
      if (hi - lo >= worth || hi == limit) found.gaps.push_back({lo, hi});
    });
    KeepLongest(found.gaps, first, kMostGaps);
    found.lists[request] = {first, static_cast<std::uint32_t>(found.gaps.size() - first)};
  });
  return InOrderOfUse(plan, found);
}

// The sweep went backwards. Those of entries that vary, which are looked at in every iteration, come first, so that
// what is looked at next mostly lies behind what was looked at last: caches are made for that.
IdleGaps::Lists IdleGaps::InOrderOfUse(const DevicePlan& plan, const Lists& lists) {
  Lists ordered;
  ordered.lists.resize(lists.lists.size());
  ordered.gaps.reserve(lists.gaps.size());
  const std::vector<const Entry*> entries = AllEntries(plan);
  for (const bool varies : {true, false}) {
    for (std::size_t at = 0; at < entries.size(); ++at) {
      if (IsVaryingEntry(*entries[at]) != varies) continue;
      const Window window = lists.Of(at);
      ordered.lists[at] = {ordered.gaps.size(), lists.lists[at].count};
      ordered.gaps.insert(ordered.gaps.end(), window.begin(), window.end());
    }
  }
  return ordered;
}

void IdleGaps::SortBySize(const DevicePlan& plan) {
  std::uint32_t at = 0;
  for (const Entry* entry : AllEntries(plan)) {
    const bool has_one_size = entry->entry_class != EntryClass::kDynamic;
    if (has_one_size && !idle_.IsEmpty(at)) by_size_.push_back({WholeGranules(entry->bytes), at});
    ++at;
  }
  std::sort(by_size_.begin(), by_size_.end());
}

std::size_t IdleGaps::LongestOfSize(std::uint32_t script, std::int32_t entry, std::uint32_t granules) const noexcept {
  const SizedIterator behind = FirstOfSize(script, entry, granules);
  std::size_t longest = kNone;
  const auto consider = [&](const Sized& found) {
    if (!IsNear(found, script, entry, granules)) return;
    if (longest == kNone || spans_[found.entry].end > spans_[longest].end) longest = found.entry;
  };
  if (behind != by_size_.end()) consider(*behind);
  if (behind != by_size_.begin()) consider(*std::prev(behind));
  return longest;
}

void IdleGaps::FindNeighbours(const Script& script, std::size_t begin) {
  const auto life = [&](std::size_t at) {
    const std::uint64_t positions = script.entries[at].expected_life;
    return positions == 0 ? kNever : positions;
  };
  const auto varies = [&](std::size_t at) { return IsVaryingEntry(script.entries[at]) && !idle_.IsEmpty(begin + at); };
  for (std::size_t at = 0; at < script.entries.size(); ++at) {
    std::size_t& longest = around_[begin + at];
    const std::size_t end = std::min(at + kNeighbourhood + 1, script.entries.size());
    for (std::size_t near = at - std::min(at, kNeighbourhood); near < end; ++near) {
      if (varies(near) && (longest == kNone || life(near) > life(longest - begin))) longest = begin + near;
    }
  }
}

}  // namespace stalloc
