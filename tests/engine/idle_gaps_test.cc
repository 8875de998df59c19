#include "allocator/engine/place/idle_gaps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "proto/model/plan.h"

namespace stalloc {
namespace idle_gaps_test {

constexpr std::uint32_t kLimit = 64;

struct Use {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint32_t lo = 0;
  std::uint32_t hi = 0;
};

Entry EntryOf(std::uint32_t granules, std::uint64_t life) {
  Entry entry;
  entry.bytes = entry.min_bytes = entry.max_bytes = granules * kBlockAlignment;
  entry.expected_life = life;
  return entry;
}

// Random lives; slots for some entries wherever no other slot is used at the time, in any round.
class RandomPlan {
 public:
  explicit RandomPlan(std::uint64_t seed) : random_(seed) {
    const std::size_t prologue = Number(0, 8);
    length_ = Number(3, 20);
    plan_.prologue.resize(prologue > 0 ? 1 : 0);
    plan_.cycle.resize(2);
    for (std::size_t i = 0; i < prologue; ++i) Add(&plan_.prologue[0], i + 1, false);
    cycle_ = prologue;
    for (std::size_t i = 0; i < length_; ++i) Add(&plan_.cycle[i < length_ / 2 ? 0 : 1], prologue + i + 1, true);
  }

  [[nodiscard]] const DevicePlan& plan() const { return plan_; }
  [[nodiscard]] std::uint64_t length() const { return length_; }
  [[nodiscard]] std::size_t prologue() const { return cycle_; }

  // No slot has the granule at any time in [begin, end).
  [[nodiscard]] bool IsIdle(std::uint32_t granule, std::uint64_t begin, std::uint64_t end) const {
    return std::none_of(uses_.begin(), uses_.end(), [&](const Use& use) {
      return use.lo <= granule && granule < use.hi && use.begin < end && begin < use.end;
    });
  }

 private:
  static constexpr std::uint64_t kForever = ~std::uint64_t{0};

  std::size_t Number(std::size_t least, std::size_t most) {
    return std::uniform_int_distribution<std::size_t>(least, most)(random_);
  }

  void Add(Script* script, std::uint64_t position, bool cyclic) {
    const bool stays = Number(0, 9) == 0;
    Entry entry = EntryOf(static_cast<std::uint32_t>(Number(1, 8)), stays ? 0 : Number(1, length_));
    if (Number(0, 3) != 0) GiveSlot(&entry, position, cyclic);
    script->entries.push_back(entry);
  }

  void GiveSlot(Entry* entry, std::uint64_t position, bool cyclic) {
    const auto granules = static_cast<std::uint32_t>(entry->bytes / kBlockAlignment);
    const auto lo = static_cast<std::uint32_t>(Number(0, kLimit - 16));
    std::vector<Use> uses;
    for (std::uint64_t round = 0; round < (cyclic ? 3u : 1u); ++round) {
      const std::uint64_t begin = position + round * length_;
      uses.push_back({begin, entry->expected_life == 0 ? kForever : begin + entry->expected_life, lo, lo + granules});
      if (entry->expected_life == 0) break;
    }
    for (const Use& use : uses) {
      for (std::uint32_t granule = use.lo; granule < use.hi; ++granule) {
        if (!IsIdle(granule, use.begin, use.end)) return;
      }
    }
    entry->slot = static_cast<std::uint32_t>(plan_.slots.size());
    plan_.slots.push_back({lo * kBlockAlignment, entry->bytes});
    plan_.arena_bytes = std::max(plan_.arena_bytes, (lo + granules) * kBlockAlignment);
    uses_.insert(uses_.end(), uses.begin(), uses.end());
  }

  std::mt19937_64 random_;
  DevicePlan plan_;
  std::uint64_t length_ = 0;
  std::size_t cycle_ = 0;
  std::vector<Use> uses_;
};

// The maximal idle ranges, granule by granule.
std::vector<std::pair<std::uint32_t, std::uint32_t>> GapsOf(const RandomPlan& random, std::uint64_t begin,
                                                            std::uint64_t end) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> gaps;
  for (std::uint32_t granule = 0; granule < kLimit; ++granule) {
    if (!random.IsIdle(granule, begin, end)) continue;
    if (!gaps.empty() && gaps.back().second == granule) {
      ++gaps.back().second;
    } else {
      gaps.emplace_back(granule, granule + 1);
    }
  }
  return gaps;
}

TEST(IdleGapsTest, AgreesWithALookAtEveryGranule) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const RandomPlan random(seed);
    const IdleGaps gaps(random.plan(), kLimit, 1);
    std::uint64_t position = 1;
    std::uint32_t script = 0;
    for (const auto* scripts : {&random.plan().prologue, &random.plan().cycle}) {
      for (const Script& one : *scripts) {
        for (std::size_t i = 0; i < one.entries.size(); ++i, ++position) {
          const std::uint64_t begin = position + (scripts == &random.plan().cycle ? random.length() : 0);
          const std::uint64_t life = one.entries[i].expected_life;
          auto expected = GapsOf(random, begin, life == 0 ? ~std::uint64_t{0} : begin + life);
          const auto smallest = static_cast<std::uint32_t>(one.entries[i].bytes / kBlockAlignment / 2);
          std::erase_if(expected,
                        [&](const auto& gap) { return gap.second < kLimit && gap.second - gap.first < smallest; });
          std::vector<std::pair<std::uint32_t, std::uint32_t>> found;
          for (const IdleGaps::Gap& gap : gaps.Of(script, static_cast<std::int32_t>(i))) {
            found.emplace_back(gap.lo, gap.hi);
          }
          ASSERT_EQ(found, expected) << "seed " << seed << " script " << script << " entry " << i;
        }
        ++script;
      }
    }
  }
}

TEST(IdleGapsTest, SmallEntriesHaveNone) {
  DevicePlan plan;
  plan.cycle.emplace_back();
  plan.cycle[0].entries = {EntryOf(3, 1), EntryOf(4, 1)};
  const IdleGaps gaps(plan, kLimit, 4);
  EXPECT_TRUE(gaps.Of(0, 0).empty());
  ASSERT_EQ(gaps.Of(0, 1).size(), 1u);
  EXPECT_EQ(gaps.Of(0, 1)[0].lo, 0u);
  EXPECT_EQ(gaps.Of(0, 1)[0].hi, kLimit);
}

TEST(IdleGapsTest, AroundAnEntryTheLongestLivedOfThoseThatVaryCounts) {
  DevicePlan plan;
  plan.cycle.emplace_back();
  std::vector<Entry>& entries = plan.cycle[0].entries;
  for (int i = 0; i < 400; ++i) entries.push_back(EntryOf(1, 1));
  for (const auto& [at, life] : std::vector<std::pair<std::size_t, std::uint64_t>>{{10, 3}, {12, 5}, {14, 4}}) {
    entries[at].entry_class = EntryClass::kDynamic;
    entries[at].expected_life = life;
  }
  entries[11].expected_life = 50;  // does not vary
  entries[16].slot = 0;            // used four requests behind entry 12
  plan.slots.push_back({0, 8 * kBlockAlignment});
  const IdleGaps gaps(plan, kLimit, 1);
  ASSERT_EQ(gaps.Around(0, 11).size(), 1u);
  EXPECT_EQ(gaps.Around(0, 11)[0].lo, 8u);
  EXPECT_EQ(gaps.Around(0, 260).data(), gaps.Of(0, 12).data());
  EXPECT_EQ(gaps.Around(0, 300).data(), gaps.Above().data());
  EXPECT_EQ(gaps.Around(0, 400).data(), gaps.Above().data());
}

// Entry 1 lives over 2, which has a slot of a twentieth of the arena, and over 3, which fills it: 2's owner finds room
// elsewhere, as long as nothing else lives then.
// Beside each other in memory, or a search waits for it.
TEST(IdleGapsTest, GapsOfEntriesThatVaryFollowEachOther) {
  DevicePlan plan;
  plan.cycle.emplace_back();
  plan.arena_bytes = 16 * kBlockAlignment;
  plan.slots.push_back({4 * kBlockAlignment, 2 * kBlockAlignment});
  for (int i = 0; i < 12; ++i) {
    Entry entry = EntryOf(2, 1);
    if (i % 3 == 0) entry.slot = 0;
    if (i % 3 == 1) entry.entry_class = EntryClass::kDynamic;
    plan.cycle[0].entries.push_back(entry);
  }
  const IdleGaps gaps(plan, kLimit, 1);
  for (std::int32_t i = 1; i + 3 < 12; i += 3) {
    const IdleGaps::Window window = gaps.Of(0, i);
    ASSERT_FALSE(window.empty()) << i;
    EXPECT_EQ(window.data() + window.size(), gaps.Of(0, i + 3).data()) << i;
  }
}

}  // namespace idle_gaps_test
}  // namespace stalloc
