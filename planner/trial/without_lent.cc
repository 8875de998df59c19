#include "planner/trial/without_lent.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace stalloc::planner {
namespace {

bool IsLentEntry(const Entry& entry) { return entry.lent_slot != kNoSlot; }

// How many entries are left before each, along the prologue and then round the cycle.
class EntriesLeft {
 public:
  explicit EntriesLeft(const DevicePlan& plan) {
    for (const Script& script : plan.prologue) Add(script);
    cycle_begin_ = before_.size() - 1;
    for (const Script& script : plan.cycle) Add(script);
  }

  [[nodiscard]] std::uint64_t Before(std::uint64_t position) const {
    const std::uint64_t length = before_.size() - 1 - cycle_begin_;
    if (position <= cycle_begin_ || length == 0) return before_[std::min<std::uint64_t>(position, before_.size() - 1)];
    const std::uint64_t rounds = (position - cycle_begin_) / length;
    return before_[cycle_begin_ + (position - cycle_begin_) % length] +
           rounds * (before_.back() - before_[cycle_begin_]);
  }

 private:
  void Add(const Script& script) {
    for (const Entry& entry : script.entries) before_.push_back(before_.back() + (IsLentEntry(entry) ? 0 : 1));
  }

  std::vector<std::uint64_t> before_{0};
  std::size_t cycle_begin_ = 0;
};

// `begin`: the position of the script's first entry.
void RemoveLent(const EntriesLeft& left, std::uint64_t begin, Script* script) {
  for (Phase& phase : script->phases) {
    phase.first_entry = static_cast<std::uint32_t>(left.Before(begin + phase.first_entry) - left.Before(begin));
  }
  for (std::size_t i = 0; i < script->entries.size(); ++i) {
    std::uint64_t& life = script->entries[i].expected_life;
    const std::uint64_t at = begin + i;
    if (life != 0) life = std::max<std::uint64_t>(1, left.Before(at + life) - left.Before(at));
  }
  std::erase_if(script->entries, IsLentEntry);
}

}  // namespace

DevicePlan WithoutLent(const DevicePlan& plan) {
  const EntriesLeft left(plan);
  DevicePlan rest = plan;
  std::uint64_t begin = 0;
  for (std::vector<Script>* scripts : {&rest.prologue, &rest.cycle}) {
    for (Script& script : *scripts) {
      const std::size_t entries = script.entries.size();
      RemoveLent(left, begin, &script);
      begin += entries;
    }
  }
  rest.lent_pools.clear();
  rest.lent_slots.clear();
  return rest;
}

}  // namespace stalloc::planner
