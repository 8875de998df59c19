// Departure: whether a run asks for other things than its plan has. It does where half or more of its last large
// requests are none of the plan's entries: a batch or a length that was not traced, a micro-batch more.
//
// One request that the plan does not know is kept out of the way of those that it knows: it goes above all slots. Where
// there are more of the former than of the latter, most slots wait for owners that will not come: a run on a static
// plan of shorter sequences held 1.41 x what was live, and 1.01 x since such requests take what is idle.
//
// Pure.
#pragma once

#include <bit>
#include <cstdint>

namespace stalloc {

class Departure {
 public:
  // The next large request: whether the plan has an entry for it.
  void Note(bool has_entry) noexcept { without_entry_ = without_entry_ << 1 | (has_entry ? 0u : 1u); }
  // Another request that has an entry would change nothing.
  [[nodiscard]] bool IsFarOff() const noexcept { return without_entry_ == 0; }
  [[nodiscard]] bool IsOn() const noexcept { return std::popcount(without_entry_ & kRecent) >= kMany; }

 private:
  static constexpr std::uint32_t kRecent = 0xffff;  // the last 16 ...
  static constexpr int kMany = 8;                   // ... of which so many have none

  std::uint32_t without_entry_ = 0;  // one bit a request, the last one lowest
};

}  // namespace stalloc
