#include "allocator/engine/matcher.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace stalloc {

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
  switch (alignment_.last()) {
    case Alignment::Last::kExact:
      if (alignment_.LeaptInDoubt()) break;
      return {Outcome::kMatched, cursor_ - 1};
    case Alignment::Last::kWeak:
      return {Outcome::kVarying, cursor_ - 1};
    case Alignment::Last::kNothing:
      break;
  }
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
