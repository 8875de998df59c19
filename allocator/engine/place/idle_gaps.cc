#include "allocator/engine/place/idle_gaps.h"

#include <functional>
#include <utility>

#include "allocator/base/range_map.h"

namespace stalloc {
namespace {

using Gap = IdleGaps::Gap;
using Position = std::uint64_t;  // requests from the axis' begin, plus one

constexpr Position kInUse = 0;
constexpr Position kNever = IdleGaps::kForever;

// When each address is used next.
using NextUses = RangeMap<Position>;

// Goes back over the axis: requests of the prologue, then of three rounds of the cycle. Calls visit(entry's number,
// uses, begin, end) for each entry, those of the cycle in its second round: what is used next when, and until when the
// entry's block lives. A range in use is one that is used at once.
template <typename Visit>
void SweepBackwards(const DevicePlan& plan, const std::vector<const Entry*>& entries, Granules limit, Visit&& visit) {
  const std::size_t prologue = ScriptBegins(plan)[plan.prologue.size()];
  const std::size_t length = entries.size() - prologue;
  const Position size = prologue + 3 * length;
  const auto number_at = [&](Position at) { return at <= prologue ? at - 1 : prologue + (at - prologue - 1) % length; };
  const auto end_of = [&](Position at) {
    const std::uint64_t life = entries[number_at(at)]->expected_life;
    return life == 0 ? kNever : at + life;
  };
  // What stays for good takes its slot in the first round only, and has it ever after.
  const auto takes_slot = [&](Position at) {
    const Entry& entry = *entries[number_at(at)];
    return entry.slot != kNoSlot && (at <= prologue + length || entry.expected_life != 0);
  };
  std::vector<std::vector<std::size_t>> lasts(size + 1);  // by position: entries whose slots are in use up to there
  for (Position at = 1; at <= size; ++at) {
    const Position end = end_of(at);
    if (takes_slot(at) && end > at + 1) lasts[std::min(end - 1, size)].push_back(number_at(at));
  }

  NextUses uses(limit, kNever);
  for (const Entry& kept : plan.kept.entries) uses.Assign(PlaceOf(plan, kept), kInUse);
  for (Position at = size; at > 0; --at) {
    const std::size_t number = number_at(at);
    for (const std::size_t last : lasts[at]) uses.Assign(PlaceOf(plan, *entries[last]), kInUse);
    if (takes_slot(at)) uses.Assign(PlaceOf(plan, *entries[number]), at);
    if (at == number + 1 + (number < prologue ? 0 : length)) visit(number, uses, at, end_of(at));
  }
}

// Those that are worth something to a block of the entry that goes at `end`.
std::vector<Gap> GapsFor(const Entry& entry, const NextUses& uses, Position end, Granules limit, Granules least) {
  std::vector<Gap> gaps;
  const Granules most = WholeGranules(std::max(entry.max_bytes, entry.bytes));
  if (most < (IsVaryingEntry(entry) ? least / tuning::kTimesAsManyTokens : least)) return gaps;
  // A smaller block than was seen may come: it then does without the smallest gaps.
  const Granules worth = std::max(WholeGranules(std::min(entry.min_bytes, entry.bytes)) / 2, least / 2);
  uses.ForEachFrom(end, [&](Granules lo, Granules hi) {
    if (hi - lo >= worth || hi == limit) gaps.push_back({lo, hi});
  });
  if (gaps.size() <= tuning::kGapsOfEntry) return gaps;
  std::ranges::nth_element(gaps, gaps.begin() + tuning::kGapsOfEntry, std::greater(),
                           [](const Gap& gap) { return gap.hi - gap.lo; });
  gaps.resize(tuning::kGapsOfEntry);
  std::ranges::sort(gaps, {}, &Gap::lo);
  return gaps;
}

}  // namespace

IdleGaps::IdleGaps(const DevicePlan& plan, Granules limit, Granules least)
    : script_begins_(ScriptBegins(plan)), above_{WholeGranules(plan.arena_bytes), limit} {
  std::vector<const Entry*> entries;
  ForEachEntry(plan, [&](const Entry& entry) { entries.push_back(&entry); });
  spans_.resize(entries.size());
  lists_.resize(entries.size());
  around_.assign(entries.size(), kNone);

  std::vector<std::vector<Gap>> found(entries.size());
  const auto take = [&](std::size_t number, const NextUses& uses, Position begin, Position end) {
    spans_[number] = {begin, end};
    found[number] = GapsFor(*entries[number], uses, end, limit, least);
  };
  SweepBackwards(plan, entries, limit, take);
  // Those of entries that vary, which are looked at in every iteration, come first, so that what is looked at next
  // mostly lies after what was looked at last: caches are made for that.
  for (const bool varies : {true, false}) {
    for (std::size_t number = 0; number < entries.size(); ++number) {
      if (IsVaryingEntry(*entries[number]) != varies) continue;
      lists_[number] = {gaps_.size(), static_cast<std::uint32_t>(found[number].size())};
      gaps_.insert(gaps_.end(), found[number].begin(), found[number].end());
      if (entries[number]->entry_class == EntryClass::kDynamic || found[number].empty()) continue;
      by_size_.push_back(
          {WholeGranules(entries[number]->bytes), static_cast<std::uint32_t>(number), spans_[number].end});
    }
  }
  std::ranges::sort(by_size_);
  for (std::size_t script = 0; script + 1 < script_begins_.size(); ++script) {
    FindNeighbours(entries, script_begins_[script], script_begins_[script + 1]);
  }
}

// For a script. A life of 0, for good, is the longest there is.
void IdleGaps::FindNeighbours(const std::vector<const Entry*>& entries, std::size_t begin, std::size_t end) {
  const auto life = [&](std::size_t at) { return entries[at]->expected_life - 1; };
  for (std::size_t at = begin; at < end; ++at) {
    const std::size_t last = std::min(at + tuning::kNeighbourhood + 1, end);
    for (std::size_t near = at - std::min(at - begin, tuning::kNeighbourhood); near < last; ++near) {
      if (!IsVaryingEntry(*entries[near]) || lists_[near].count == 0) continue;
      if (around_[at] == kNone || life(near) > life(around_[at])) around_[at] = near;
    }
  }
}

std::vector<std::vector<GranuleRange>> LateRooms(const DevicePlan& plan, Granules limit) {
  std::vector<GranuleRange> used = PlacesThatStay(plan);  // their blocks may not have come yet
  const auto use = [&](const Entry& entry) {
    if (entry.slot != kNoSlot) used.push_back(PlaceOf(plan, entry));
  };
  for (const Entry& entry : plan.kept.entries) use(entry);
  std::vector<std::vector<GranuleRange>> ranges;
  std::size_t before = 0;  // share that was used so far
  for (const std::size_t share : tuning::kLateShares) {
    const std::size_t used_before = used.size();
    for (const Script& script : plan.cycle) {
      const auto end_of = [&](std::size_t part) { return script.entries.size() * part / tuning::kSharesOfIteration; };
      for (std::size_t at = end_of(before); at < end_of(share); ++at) use(script.entries[at]);
    }
    before = share;
    if (used.size() == used_before) continue;
    if (auto range = Outside(used, limit); !range.empty()) ranges.push_back(std::move(range));
  }
  std::ranges::reverse(ranges);
  return ranges;
}

// SlotUses ------------------------------------------------------------------------------------------------------------

SlotUses::SlotUses(const DevicePlan& plan, Bytes unit) : dues_(RoundUp(plan.arena_bytes, unit) / unit) {
  const std::vector<std::uint32_t> scripts = ScriptBegins(plan);
  cycle_ = scripts[plan.prologue.size()];
  end_ = scripts.back();
  std::uint32_t number = 0;
  ForEachEntry(plan, [&](const Entry& entry) {
    const Slot slot = entry.slot != kNoSlot ? plan.slots[entry.slot] : Slot{};
    for (Offset at = slot.offset / unit; at * unit < slot.offset + slot.capacity; ++at) dues_[at].push_back(number);
    ++number;
  });
}

std::uint64_t SlotUses::UntilDue(std::size_t part, std::uint64_t now) const noexcept {
  if (part >= dues_.size()) return kNever;
  const std::vector<std::uint32_t>& dues = dues_[part];
  const auto due = std::ranges::lower_bound(dues, now);
  if (due != dues.end()) return *due - now;
  const auto first = std::ranges::lower_bound(dues, cycle_);  // of the next round
  return first != dues.end() ? *first - cycle_ + (end_ - std::min(now, end_)) : kNever;
}

}  // namespace stalloc
