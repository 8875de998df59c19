#include "allocator/engine/fence_rooms.h"

namespace stalloc {

KeptPlaces KeptPlacesOf(const DevicePlan& plan, const std::vector<std::uint16_t>& slot_flags) {
  KeptPlaces kept;
  for (const Entry& entry : plan.kept.entries) {
    const LoadedScript::Place place = LoadedScript::PlaceOf(entry, plan.slots, slot_flags);
    if (place.granules > 0) kept.emplace_back(WholeGranules(entry.bytes), place);
  }
  return kept;
}

std::vector<std::vector<GranuleRange>> LateRooms(const DevicePlan& plan, Granules limit) {
  std::vector<GranuleRange> for_good;  // slots of blocks that stay: they may not have come yet
  const auto add = [&](const Entry& entry, std::vector<GranuleRange>* used) {
    if (entry.slot != kNoSlot) used->push_back(PlaceOf(plan, entry));
  };
  for (const Script& script : plan.prologue) {
    for (const Entry& entry : script.entries) {
      if (entry.entry_class == EntryClass::kPersistent) add(entry, &for_good);
    }
  }
  for (const Entry& entry : plan.kept.entries) add(entry, &for_good);
  std::vector<std::vector<GranuleRange>> rooms;
  for (std::size_t part = 2; part <= 64; part *= 2) {  // the first half of an iteration's requests, a quarter, ...
    std::vector<GranuleRange> used = for_good;
    for (const Script& script : plan.cycle) {
      for (std::size_t i = 0; i < script.entries.size() / part; ++i) add(script.entries[i], &used);
    }
    if (used.size() == for_good.size()) continue;
    rooms.push_back(Beside(std::move(used), limit));
    if (rooms.back().empty()) rooms.pop_back();
  }
  return rooms;
}

}  // namespace stalloc
