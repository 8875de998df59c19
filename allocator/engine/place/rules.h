// Rules: what the engine does to hold less or to move less, beyond what keeps data safe. Each can be left out, so that
// `bench/replay --without` shows what it is worth; CONTRIBUTING.md says when one stays.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace stalloc {

enum class Rule : std::uint8_t {
  kInTheWay,    // details.md, In the way of slots
  kKeptPlaces,  // details.md, Fences
  kLateRooms,   // idle_gaps.h
  kLentSlots,   // unplanned_requests.cc, FindLentSlot
  kCount
};
inline constexpr auto kRuleNames =
    std::to_array<const char*>({"in-the-way", "kept-places", "late-rooms", "lent-slots"});
static_assert(kRuleNames.size() == static_cast<std::size_t>(Rule::kCount));

// All of them, but those that were left out.
class Rules {
 public:
  void LeaveOut(Rule rule) noexcept { without_[static_cast<std::size_t>(rule)] = true; }
  [[nodiscard]] bool Have(Rule rule) const noexcept { return !without_[static_cast<std::size_t>(rule)]; }

 private:
  std::array<bool, kRuleNames.size()> without_{};
};

}  // namespace stalloc
