#include "allocator/engine/passed_places.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <utility>

#include "allocator/engine/granules.h"
#include "allocator/engine/varying_entry.h"

namespace stalloc {
namespace {

constexpr std::int32_t kWord = 64;

bool Varies(const Script& script) { return std::any_of(script.entries.begin(), script.entries.end(), IsVaryingEntry); }

// For so many requests a place must be kept to be better than the entry's own. One without a slot is content with a
// little less than it is expected to need.
std::uint64_t LifeWanted(const Entry& entry) {
  return entry.slot != kNoSlot ? 2 * entry.expected_life : entry.expected_life - entry.expected_life / 8;
}

}  // namespace

PassedPlaces::PassedPlaces(const DevicePlan& plan, std::uint32_t least) {
  std::size_t most = 0;
  for (const std::vector<Script>* scripts : {&plan.prologue, &plan.cycle}) {
    for (const Script& script : *scripts) {
      scripts_.push_back(Varies(script) ? Of(script, plan.slots, least) : OfScript{});
      most = std::max(most, scripts_.back().kept.size());
    }
  }
  in_use_.resize(most / kWord + 1);
}

PassedPlaces::OfScript PassedPlaces::Of(const Script& script, const std::vector<Slot>& slots, std::uint32_t least) {
  OfScript of{{}, std::vector<Link>(script.entries.size()), {}};
  std::map<std::uint32_t, std::vector<std::size_t>> alike;
  for (std::size_t at = 0; at < script.entries.size(); ++at) {
    const Entry& entry = script.entries[at];
    if (entry.entry_class == EntryClass::kDynamic || ToGranule(entry.bytes) < least) continue;
    alike[ToGranule(entry.bytes)].push_back(at);
  }
  for (const auto& [granules, positions] : alike) Keep(script, positions, of);
  for (std::size_t kept = 0; kept < of.kept.size(); ++kept) {
    const Slot& slot = slots[script.entries[At(of.kept[kept].entry)].slot];
    of.places.push_back({ToGranule(slot.offset), static_cast<std::uint32_t>(kept)});
  }
  std::sort(of.places.begin(), of.places.end(), [](const Place& a, const Place& b) { return a.granule < b.granule; });
  return of;
}

void PassedPlaces::Keep(const Script& script, const std::vector<std::size_t>& alike, OfScript& of) {
  const auto begin = static_cast<std::ptrdiff_t>(of.kept.size());
  for (const std::size_t at : alike) {
    const Entry& entry = script.entries[at];
    if (entry.expected_life != 0) of.links[at].until = at + LifeWanted(entry);
  }
  std::uint64_t soonest = kForever;  // of those that are later
  for (auto number = alike.rbegin(); number != alike.rend(); ++number) {
    const std::size_t at = *number;
    const Entry& entry = script.entries[at];
    if (entry.slot != kNoSlot) {
      const std::size_t from = at - std::min<std::size_t>(at, entry.kept_before);
      const std::uint64_t end = entry.expected_life == 0 ? kForever : at + entry.expected_life;
      std::uint64_t wanted = soonest;
      for (auto before = number + 1; before != alike.rend() && *before > from; ++before) {
        wanted = std::min(wanted, of.links[*before].until);
      }
      of.links[at].counts = wanted != kForever && wanted <= end;
      if (of.links[at].counts) {
        of.kept.push_back(
            {ToGranule(entry.bytes), static_cast<std::int32_t>(from), static_cast<std::int32_t>(at), end});
      }
    }
    soonest = std::min(soonest, of.links[at].until);
  }
  const auto from = [](const Kept& kept) { return std::pair(kept.from, kept.entry); };
  std::ranges::sort(of.kept.begin() + begin, of.kept.end(), {}, from);
  auto next = of.kept.begin() + begin;
  for (const std::size_t at : alike) {
    while (next != of.kept.end() && next->from < static_cast<std::int32_t>(at)) ++next;
    const auto before = static_cast<std::int32_t>(next - of.kept.begin()) - 1;
    if (before >= begin) of.links[at].before = before;
  }
}

void PassedPlaces::Follow(std::uint32_t script, std::uint64_t iterations) noexcept {
  if (script == script_ && iterations == iterations_) return;  // another of its phases
  script_ = script;
  iterations_ = iterations;
  now_ = script < scripts_.size() && !scripts_[script].kept.empty() ? &scripts_[script] : nullptr;
  std::fill(in_use_.begin(), in_use_.end(), 0);
}

// Places of several entries may begin at one granule, and are in use together.
void PassedPlaces::Set(std::uint32_t granule, bool in_use) noexcept {
  auto place = std::lower_bound(now_->places.begin(), now_->places.end(), granule,
                                [](const Place& one, std::uint32_t at) { return one.granule < at; });
  for (; place != now_->places.end() && place->granule == granule; ++place) {
    const std::uint64_t bit = std::uint64_t{1} << (place->kept % kWord);
    std::uint64_t& word = in_use_[place->kept / kWord];
    word = in_use ? word | bit : word & ~bit;
  }
}

std::int32_t PassedPlaces::LastIdle(std::int32_t kept) const noexcept {
  if (kept < 0) return kNone;
  std::uint64_t wanted = ~std::uint64_t{0} >> (kWord - 1 - kept % kWord);  // of the word: those up to `kept`
  for (std::int32_t word = kept / kWord; word >= 0; --word) {
    const std::uint64_t idle = ~in_use_[At(word)] & wanted;
    if (idle != 0) return word * kWord + kWord - 1 - std::countl_zero(idle);
    wanted = ~std::uint64_t{0};
  }
  return kNone;
}

std::int32_t PassedPlaces::LastBefore(std::int32_t entry, std::uint32_t granules) const noexcept {
  const auto behind = std::lower_bound(now_->kept.begin(), now_->kept.end(), std::pair(granules, entry),
                                       [](const Kept& kept, const std::pair<std::uint32_t, std::int32_t>& wanted) {
                                         return std::pair(kept.granules, kept.from) < wanted;
                                       });
  const bool found = behind != now_->kept.begin() && std::prev(behind)->granules == granules;
  return found ? static_cast<std::int32_t>(behind - now_->kept.begin()) - 1 : kNone;
}

}  // namespace stalloc
