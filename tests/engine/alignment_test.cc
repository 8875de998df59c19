// The alignment's vector instructions do what one cell after the other does.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>

#include "allocator/engine/follow/matcher.h"
#include "allocator/engine/follow/script_index.h"
#include "allocator/engine/follow/tuning.h"

namespace stalloc {
namespace alignment_test {

using namespace tuning;  // NOLINT: numbers only

constexpr std::int32_t kHopeless = -1'000'000;

struct Cell {
  std::int32_t score = kHopeless;
  std::int32_t run = 0;
  Alignment::Last how = Alignment::Last::kNothing;
  bool skipped = false;
  bool leapt = false;
};

class PlainAlignment {
 public:
  PlainAlignment(const ScriptIndex& script, std::int32_t cursor) : script_(script) {
    base_ = std::clamp(cursor, 0, script.size()) - kBandCentre;
    for (std::int32_t i = 0; i < kBandCentre; ++i) At(i).score = -kBehindOpen - kBehindStep * (kBandCentre - i);
    At(kBandCentre).score = 0;
    LeaveOutEntries();
    FindBest();
  }
  void Step(Granules granules, std::int32_t end) {
    TakeRequest(granules);
    LeaveOutEntries();
    for (std::int32_t i = std::max(end + 1 - base_, 0); i < kBandWidth; ++i) At(i).score = kHopeless;
    FindBest();
    Recentre();
  }
  [[nodiscard]] std::int32_t cursor() const { return base_ + best_; }
  [[nodiscard]] Alignment::Last last() const { return Best().how; }
  [[nodiscard]] bool LeaptInDoubt() const { return Best().leapt && lead_ < kSureLeap; }
  [[nodiscard]] bool Certain() const {
    const std::int32_t run = last() == Alignment::Last::kExact ? Best().run : 0;
    return run >= kLongRun || (run >= kSureRun && lead_ >= kClearlyAhead);
  }

 private:
  Cell& At(std::int32_t cell) { return cells_[static_cast<std::size_t>(cell)]; }
  [[nodiscard]] const Cell& Best() const { return cells_[static_cast<std::size_t>(best_)]; }

  void TakeRequest(Granules granules) {
    const auto column = script_.ColumnsFrom(base_ - 1);
    const ScriptIndex::SizeInfo info = script_.InfoOf(granules);
    for (std::int32_t i = kBandWidth - 1; i >= 0; --i) {  // downwards: the cell before is still the old one
      Cell cell = At(i);
      cell.score -= kInsert;
      cell.run = 0;
      cell.how = Alignment::Last::kNothing;
      cell.skipped = false;
      if (i > 0) {
        const bool exact = column.size[i] == granules;
        const bool varies = column.weak_low[i] != ScriptIndex::kNever;
        const bool near = granules >= column.weak_low[i] && granules - column.weak_low[i] <= column.weak_span[i];
        const bool weak = near || (!info.anchor && varies);
        const std::int32_t gain = exact  ? info.worth
                                  : near ? std::max(info.worth - column.blur[i], kMinWeak)
                                  : weak ? -kStretch
                                         : -kSubstitute;
        const Cell& before = At(i - 1);
        if (before.score + gain > cell.score) {
          const std::int32_t run = exact ? before.run + 1 : weak ? before.run : 0;
          const auto how = exact ? Alignment::Last::kExact : weak ? Alignment::Last::kWeak : Alignment::Last::kNothing;
          cell = {before.score + gain, run, how, false, before.leapt};
        }
      }
      At(i) = cell;
    }
  }
  void LeaveOutEntries() {
    const std::int32_t* const costs = script_.SkipCostsFrom(base_);
    for (std::int32_t i = 1; i < kBandWidth; ++i) {
      const Cell& before = At(i - 1);
      const std::int32_t cost = costs[i] - costs[i - 1];
      if (before.score - cost <= At(i).score) continue;
      const bool optional = cost == kSkipOptional;
      At(i) = {before.score - cost, optional ? before.run : 0, Alignment::Last::kNothing, true,
               !optional || before.leapt};
    }
  }
  void FindBest() {
    const auto less = [](const Cell& a, const Cell& b) { return a.score < b.score; };
    best_ = static_cast<std::int32_t>(std::ranges::max_element(cells_, less) - cells_.begin());
    const std::int32_t top = Best().score;
    lead_ = -kHopeless;
    for (std::int32_t i = 0; i < kBandWidth; ++i) {
      At(i).score = std::max(At(i).score - top, kHopeless);
      if (i != best_ && !At(i).skipped) lead_ = std::min(lead_, -At(i).score);
    }
  }
  void Recentre() {
    const std::int32_t wanted = best_ - kBandCentre;
    if (wanted < kBandSlack && wanted > -kBandSlack) return;
    const std::int32_t shift = std::clamp(base_ + wanted, -kBandWidth, script_.size()) - base_;
    const std::array<Cell, kBandWidth> old = cells_;
    for (std::int32_t i = 0; i < kBandWidth; ++i) {
      const bool inside = i + shift >= 0 && i + shift < kBandWidth;
      At(i) = inside ? old[static_cast<std::size_t>(i + shift)] : Cell{.skipped = true};
    }
    base_ += shift;
    best_ -= shift;
  }

  const ScriptIndex& script_;
  std::array<Cell, kBandWidth> cells_;
  std::int32_t base_ = 0;
  std::int32_t best_ = 0;
  std::int32_t lead_ = 0;
};

Script RandomScript(std::mt19937& random) {
  Script script;
  const std::uint32_t sizes = 3 + random() % 40;
  for (std::uint32_t i = 0, count = 200 + random() % 800; i < count; ++i) {
    Entry entry;
    entry.bytes = entry.min_bytes = entry.max_bytes = kBlockAlignment * (1 + (random() % sizes) * (random() % sizes));
    entry.entry_class = random() % 4 == 0   ? EntryClass::kDynamic
                        : random() % 4 == 0 ? EntryClass::kOptional
                                            : EntryClass::kStatic;
    if (entry.entry_class == EntryClass::kDynamic) entry.max_bytes *= 2;
    script.entries.push_back(entry);
  }
  return script;
}

// A run that follows the script, but for so many requests of a hundred.
TEST(AlignmentTest, EachCellIsAsIfItWereAlone) {
  std::mt19937 random(17);
  int certain = 0;
  int in_doubt = 0;
  for (int round = 0; round < 100; ++round) {
    const Script script = RandomScript(random);
    const ScriptIndex index(script);
    std::size_t at = random() % script.entries.size();
    const auto start = static_cast<std::int32_t>(at + random() % 20) - 8;
    Alignment alignment;
    alignment.Start(index, start);
    PlainAlignment plain(index, start);
    const std::int32_t end = random() % 2 == 0 ? index.size() : start + static_cast<std::int32_t>(random() % 300);
    const std::uint32_t noise = random() % 60;
    for (int request = 0; request < 300; ++request) {
      const std::uint32_t what = random() % 100;
      if (what < noise / 3) at += random() % 12;
      if (what >= noise / 3 && what < noise / 2) at = random();
      const Entry& entry = script.entries[at % script.entries.size()];
      const bool resized = entry.entry_class == EntryClass::kDynamic || (what >= noise / 2 && what < noise);
      const Granules granules = ToGranules(entry.bytes + (resized ? kBlockAlignment * (random() % 3000) : 0));
      ++at;
      alignment.Step(index, granules, end);
      plain.Step(granules, end);
      ASSERT_EQ(alignment.cursor(), plain.cursor()) << round << " " << request;
      ASSERT_EQ(alignment.last(), plain.last()) << round << " " << request;
      ASSERT_EQ(alignment.LeaptInDoubt(), plain.LeaptInDoubt()) << round << " " << request;
      ASSERT_EQ(alignment.Certain(), plain.Certain()) << round << " " << request;
      certain += alignment.Certain() ? 1 : 0;
      in_doubt += alignment.LeaptInDoubt() ? 1 : 0;
    }
  }
  EXPECT_GT(certain, 1000);
  EXPECT_GT(in_doubt, 1000);
}

}  // namespace alignment_test
}  // namespace stalloc
