// SleepTags: the names that a program gives to what it allocates in a region, for sleep and wake; of the whole process.
//
// A tag is a number; a name has one for blocks whose bytes are kept and one for those that a sleep drops. Each thread
// has a present tag, which its requests carry. 0: none. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stalloc {

class SleepTags {
 public:
  // No block has it: what a thread requests then is not of the arena.
  static constexpr unsigned kOutside = ~0u;
  // Made at the first call. nullopt where there are too many.
  [[nodiscard]] static std::optional<unsigned> Number(const std::string& name, bool kept);
  struct Tag {
    std::string name;
    bool kept = true;
  };
  // By number; that of 0 is the empty name, kept.
  [[nodiscard]] static std::vector<Tag> All();

  // The calling thread's; the one before. REQUIRES: Number gave it, it is 0 or kOutside.
  static unsigned Enter(unsigned tag) noexcept;
  [[nodiscard]] static unsigned Present() noexcept { return any_.load(std::memory_order_relaxed) ? PresentHere() : 0; }

 private:
  static unsigned PresentHere() noexcept;
  inline static std::atomic<bool> any_{false};  // somebody has entered a region
};

}  // namespace stalloc
