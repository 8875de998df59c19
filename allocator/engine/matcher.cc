#include "allocator/engine/matcher.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace stalloc {
namespace {

using namespace alignment;  // NOLINT: the costs only

constexpr std::int32_t kHopeless = -1'000'000;  // cells that no path has reached

// Having been ahead by d entries all the time: as many requests were extra, and matched by chance.
constexpr std::int32_t kBehindOpen = 10;
constexpr std::int32_t kBehindStep = 12;

}  // namespace

void Alignment::Start(const ScriptIndex& script, std::int32_t cursor) noexcept {
  base_ = std::clamp(cursor, 0, script.size()) - kCentre;
  for (std::int32_t cell = 0; cell < kWidth; ++cell) {
    const std::int32_t behind = kCentre - cell;
    score_[Index(cell)] = behind > 0 ? -kBehindOpen - kBehindStep * behind : kHopeless;
  }
  score_[Index(kCentre)] = 0;
  run_.fill(0);
  how_.fill(Last::kNothing);
  skipped_.fill(false);
  leapt_.fill(false);
  LeaveOutEntries(script);
  FindBest();
}

void Alignment::Step(const ScriptIndex& script, Granules granules) noexcept {
  TakeRequest(script, granules);
  LeaveOutEntries(script);
  FindBest();
  Recentre(script);
}

void Alignment::TakeRequest(const ScriptIndex& script, Granules granules) noexcept {
  const auto column = script.ColumnsFrom(base_ - 1);  // element `cell`: the entry that is consumed on the way to `cell`
  const std::int32_t worth = script.Worth(granules);
  const bool anchor = script.IsAnchorSize(granules);
  for (std::int32_t cell = kWidth - 1; cell > 0; --cell) {  // downwards: cell - 1 is still the old row
    const std::size_t at = Index(cell);
    const bool exact = column.size[cell] == granules;
    const bool near = granules >= column.weak_low[cell] && granules - column.weak_low[cell] <= column.weak_span[cell];
    const bool weak = near || (!anchor && column.weak_low[cell] != ScriptIndex::kNever);
    const std::int32_t gain = exact  ? worth
                              : near ? std::max(worth - column.blur[cell], kMinWeak)
                              : weak ? -kStretch
                                     : -kSubstitute;
    const std::int32_t taken = score_[at - 1] + gain;
    const std::int32_t extra = score_[at] - kInsert;
    const bool take = taken > extra;
    score_[at] = take ? taken : extra;
    how_[at] = !take ? Last::kNothing : exact ? Last::kExact : weak ? Last::kWeak : Last::kNothing;
    run_[at] = take && exact ? run_[at - 1] + 1 : take && weak ? run_[at - 1] : 0;
    if (take) leapt_[at] = leapt_[at - 1];
    skipped_[at] = false;
  }
  score_[0] -= kInsert;
  how_[0] = Last::kNothing;
  run_[0] = 0;
}

void Alignment::LeaveOutEntries(const ScriptIndex& script) noexcept {
  const auto column = script.ColumnsFrom(base_ - 1);
  for (std::int32_t cell = 1; cell < kWidth; ++cell) {
    const std::size_t at = Index(cell);
    const std::int32_t reached = score_[at - 1] - column.skip_cost[cell];
    if (reached <= score_[at]) continue;
    score_[at] = reached;
    how_[at] = Last::kNothing;
    const bool optional = column.skip_cost[cell] == kSkipOptional;
    run_[at] = optional ? run_[at - 1] : 0;
    leapt_[at] = !optional || leapt_[at - 1];
    skipped_[at] = true;
  }
}

void Alignment::FindBest() noexcept {
  const auto top = std::max_element(score_.begin(), score_.end());
  best_ = static_cast<std::int32_t>(top - score_.begin());
  const std::int32_t best_score = *top;
  std::int32_t next = kHopeless;
  for (std::int32_t cell = 0; cell < kWidth; ++cell) {
    const std::size_t at = Index(cell);
    score_[at] = std::max(score_[at] - best_score, kHopeless);
    if (cell != best_ && !skipped_[at]) next = std::max(next, score_[at]);
  }
  lead_ = -next;
}

void Alignment::Recentre(const ScriptIndex& script) noexcept {
  const std::int32_t wanted = best_ - kCentre;  // > 0: the band moves up, so cells move down
  if (wanted < kSlack && wanted > -kSlack) return;
  const std::int32_t shift = std::clamp(base_ + wanted, -kWidth, script.size()) - base_;  // stay inside the padding
  if (shift == 0) return;
  const auto move = [shift](auto& row, auto vacant) {
    if (shift > 0) {
      std::move(row.begin() + shift, row.end(), row.begin());
      std::fill(row.end() - shift, row.end(), vacant);
    } else {
      std::move_backward(row.begin(), row.end() + shift, row.end());
      std::fill(row.begin(), row.begin() - shift, vacant);
    }
  };
  move(score_, kHopeless);
  move(run_, 0);
  move(how_, Last::kNothing);
  move(skipped_, true);
  move(leapt_, false);
  base_ += shift;
  best_ -= shift;
}

bool Alignment::LeaptInDoubt() const noexcept { return leapt_[Index(best_)] && lead_ < kSureLeap; }

bool Alignment::Certain() const noexcept {
  if (last() != Last::kExact) return false;
  const std::int32_t run = run_[Index(best_)];
  return run >= kLongRun || (run >= kSureRun && lead_ >= kClearlyAhead);
}

// Matcher -------------------------------------------------------------------------------------------------------------

void Matcher::Follow(const ScriptIndex* script, std::int32_t cursor) noexcept {
  script_ = script;
  home_ = cursor;
  excursion_left_ = 0;
  away_ = 0;
  away_unknown_sizes_ = 0;
  GainSync(cursor);
  in_sync_ = script != nullptr;
  Expect(0, in_sync_ ? script->size() : 0);
}

void Matcher::GainSync(std::int32_t cursor) noexcept {
  cursor_ = cursor;
  sync_start_ = cursor;
  in_sync_ = true;
  doubtful_count_ = 0;
}

Matcher::Match Matcher::NextNotExact(Granules granules) noexcept {
  if (script_ == nullptr || granules == 0) return {Outcome::kUnknownSize, -1};
  return in_sync_ ? NextInSync(granules) : NextAligning(granules);
}

Matcher::Match Matcher::NextInSync(Granules granules) noexcept {
  doubtful_[doubtful_count_ % kReplay] = {granules, cursor_};
  ++doubtful_count_;
  if (script_->WeaklyMatches(cursor_, granules)) return {Outcome::kVarying, cursor_++};
  if (!script_->KnownSize(granules)) return {Outcome::kUnknownSize, -1};
  LoseSync();
  return Answer(granules);
}

// Starts to align where the last exact match left off, and takes the doubtful requests since then, this one last.
void Matcher::LoseSync() noexcept {
  ++times_lost_;
  const std::uint32_t oldest = doubtful_count_ - std::min(doubtful_count_, kReplay);
  const std::int32_t proven = doubtful_[oldest % kReplay].cursor;
  excursion_left_ = std::max(0, excursion_left_ - (cursor_ - sync_start_));
  if (excursion_left_ == 0) {
    home_ = proven;
    away_ = 0;
    away_unknown_sizes_ = 0;
  }
  in_sync_ = false;
  aligning_ = 0;
  explained_ = kRecent;
  disturbed_ = false;
  anchor_count_ = 0;
  alignment_.Start(*script_, proven);
  for (std::uint32_t i = oldest; i != doubtful_count_; ++i) {
    Remember(doubtful_[i % kReplay].granules);
    alignment_.Step(*script_, doubtful_[i % kReplay].granules);
  }
  cursor_ = alignment_.cursor();
}

Matcher::Match Matcher::NextAligning(Granules granules) noexcept {
  Remember(granules);
  alignment_.Step(*script_, granules);
  cursor_ = alignment_.cursor();
  ++aligning_;
  const Match match = Answer(granules);
  // A size that fits nowhere says nothing against this place.
  const bool explained = alignment_.last() != Alignment::Last::kNothing;
  if (match.outcome != Outcome::kUnknownSize) explained_ = explained_ << 1 | (explained ? 1u : 0u);
  const bool lost = aligning_ >= kPatience && std::popcount(explained_ & kRecent) <= kBad;
  disturbed_ = disturbed_ || lost;

  const bool certain = alignment_.Certain();
  if ((lost || (certain && disturbed_)) && script_->IsAnchorSize(granules) && GoToAnchors()) {
    return {Outcome::kMatched, cursor_ - 1};
  }
  if (certain) {
    GainSync(cursor_);
    if (disturbed_) excursion_left_ = kExcursion;
  }
  return match;
}

Matcher::Match Matcher::Answer(Granules granules) const noexcept {
  const Alignment::Last last = alignment_.last();
  if (last == Alignment::Last::kWeak) return {Outcome::kVarying, cursor_ - 1};
  if (last == Alignment::Last::kExact && !alignment_.LeaptInDoubt()) return {Outcome::kMatched, cursor_ - 1};
  return {script_->KnownSize(granules) ? Outcome::kUnmatched : Outcome::kUnknownSize, -1};
}

void Matcher::Remember(Granules granules) noexcept {
  ++away_;
  if (script_->IsAnchorSize(granules)) {
    anchors_[anchor_count_++ % kAnchorHistory] = granules;
  } else if (!script_->KnownSize(granules)) {
    ++away_unknown_sizes_;
  }
}

// How many of the latest anchors, newest first, agree with the script's up to `last_anchor`.
std::uint32_t Matcher::CommonHistory(std::uint32_t last_anchor) const noexcept {
  const std::uint32_t limit = std::min({anchor_count_, kAnchorHistory, last_anchor + 1});
  std::uint32_t common = 0;
  while (common < limit &&
         script_->AnchorSize(last_anchor - common) == anchors_[(anchor_count_ - 1 - common) % kAnchorHistory]) {
    ++common;
  }
  return common;
}

// Coming home is what most interludes end with. If the run went on with sizes that the script does not have, it is
// likelier to be where as many entries would have led: a micro-batch of another length, say.
Matcher::Place Matcher::Judge(std::uint32_t last_anchor, std::uint32_t common) const noexcept {
  const std::int32_t from = script_->AnchorPosition(last_anchor + 1 - common);
  const bool resized = 2 * away_unknown_sizes_ >= away_;
  const std::int32_t expected = resized ? home_ + static_cast<std::int32_t>(away_ - std::min(away_, common)) : home_;
  const bool home = std::abs(from - home_) <= kHomeSlack;
  const std::int32_t distance = from >= expected ? from - expected : script_->size() + expected - from;
  const std::int32_t merit = static_cast<std::int32_t>(common) + (home ? kHomeBonus : 0) - kFarther * FarAway(from);
  return {merit, distance, script_->AnchorPosition(last_anchor) + 1, home};
}

// Doublings beyond what is near, from wherever the run may have come to: home, so many entries behind it as there were
// requests, or the best hypothesis.
std::int32_t Matcher::FarAway(std::int32_t position) const noexcept {
  const auto to = [&](std::int32_t place) { return std::abs(position - place); };
  const std::int32_t nearest = std::min({to(home_), to(home_ + static_cast<std::int32_t>(away_)), to(cursor_)});
  return std::bit_width(static_cast<std::uint32_t>(nearest / kNear));
}

// Looks the latest anchors up, and goes on at the best of the places where they occur. False if they occur nowhere.
bool Matcher::GoToAnchors() noexcept {
  if (anchor_count_ < ScriptIndex::kGram) return false;
  std::uint32_t at = anchor_count_ - ScriptIndex::kGram;
  const std::uint64_t hash = ScriptIndex::HashGram([&] { return anchors_[at++ % kAnchorHistory]; });
  Place best;
  for (const ScriptIndex::Gram& gram : script_->FindGram(hash)) {
    const std::int32_t last = script_->AnchorPosition(gram.last_anchor);
    if (last < expected_begin_ || last >= expected_end_) continue;
    const std::uint32_t common = CommonHistory(gram.last_anchor);
    if (common < ScriptIndex::kGram) continue;  // a hash collision
    const Place place = Judge(gram.last_anchor, common);
    if (place.BetterThan(best)) best = place;
  }
  if (best.cursor < 0) return false;
  ++times_reanchored_;
  excursion_left_ = best.home ? 0 : kExcursion;
  GainSync(best.cursor);
  return true;
}

}  // namespace stalloc
