#include "allocator/engine/follow/matcher.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace stalloc {
namespace {

using namespace tuning;  // NOLINT: numbers only

// For cells that no path has reached: no other is so far below the best, since a path that falls after by kMaxWorth +
// kInsert a request has left the band long before.
constexpr std::int16_t kHopeless = -16'000;
constexpr std::int16_t kOutside = 2 * kHopeless;  // below the band

constexpr auto kNothing = static_cast<std::int16_t>(Alignment::Last::kNothing);
constexpr auto kWeak = static_cast<std::int16_t>(Alignment::Last::kWeak);
constexpr auto kExact = static_cast<std::int16_t>(Alignment::Last::kExact);

// For each cell the one before it.
template <std::size_t kCells>
std::array<std::int16_t, kCells> Before(const std::array<std::int16_t, kCells>& row, std::int16_t first) noexcept {
  std::array<std::int16_t, kCells> before;
  before[0] = first;
  std::copy(row.begin(), row.end() - 1, before.begin() + 1);
  return before;
}

// Each becomes the greatest of those up to it. The halves side by side: neither waits for the other's maximum.
template <std::size_t kCells>
void RunningMaximum(std::array<std::int16_t, kCells>& row) noexcept {
  constexpr std::size_t kHalf = kCells / 2;
  std::int16_t low = row[0];
  std::int16_t high = row[kHalf];
  for (std::size_t at = 0; at < kHalf; ++at) {
    row[at] = low = std::max(low, row[at]);
    row[at + kHalf] = high = std::max(high, row[at + kHalf]);
  }
  for (std::size_t at = kHalf; at < kCells; ++at) row[at] = row[at] < low ? low : row[at];
}

}  // namespace

// Loops over cells are without branches, one thing each, so that compilers make vector instructions of them: of two
// kinds where the loader can choose the one that the processor has. Sanitizers are not ready when it does.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define STALLOC_WIDE [[gnu::target_clones("avx2", "default")]]
#else
#define STALLOC_WIDE
#endif

void Alignment::Start(const ScriptIndex& script, std::int32_t cursor) noexcept {
  base_ = std::clamp(cursor, 0, script.size()) - kBandCentre;
  for (std::int32_t cell = 0; cell < kWidth; ++cell) {
    const std::int32_t after = kBandCentre - cell;
    score_[Index(cell)] = static_cast<Cell>(after > 0 ? -kBehindOpen - kBehindStep * after : kHopeless);
  }
  score_[Index(kBandCentre)] = 0;
  run_.fill(0);
  how_.fill(kNothing);
  skipped_.fill(0);
  leapt_.fill(0);
  LeaveOutEntries(script);
  FindBest();
}

void Alignment::Step(const ScriptIndex& script, Granules granules, std::int32_t end) noexcept {
  TakeRequest(script, granules);
  LeaveOutEntries(script);
  EndAt(end);
  FindBest();
  Recentre(script);
}

STALLOC_WIDE void Alignment::TakeRequest(const ScriptIndex& script, Granules granules) noexcept {
  const auto column = script.ColumnsFrom(base_ - 1);  // element `cell`: the entry that is consumed on the way to `cell`
  const ScriptIndex::SizeInfo info = script.InfoOf(granules);
  const auto worth = static_cast<Cell>(info.worth);
  const Cell may_be_far = info.anchor ? 0 : -1;
  Row exact;
  Row near;
  for (std::size_t cell = 0; cell < exact.size(); ++cell) {
    exact[cell] = column.size[cell] == granules ? -1 : 0;
    near[cell] = granules - column.weak_low[cell] <= column.weak_span[cell] ? -1 : 0;  // wraps below
  }
  Row gain;
  Row how;
  for (std::size_t cell = 0; cell < gain.size(); ++cell) {
    const auto sharp = static_cast<Cell>(worth - column.blur[cell]);
    const Cell as_near = sharp > kMinWeak ? sharp : kMinWeak;
    const Cell far = column.blur[cell] >= 0 ? may_be_far : 0;
    const Cell as_far = far != 0 ? -kStretch : -kSubstitute;
    const Cell not_exact = near[cell] != 0 ? as_near : as_far;
    gain[cell] = exact[cell] != 0 ? worth : not_exact;
    const Cell weak = (near[cell] | far) & kWeak;
    how[cell] = exact[cell] != 0 ? kExact : weak;
  }
  const Row score = Before(score_, kOutside);
  const Row run = Before(run_, 0);
  const Row leapt = Before(leapt_, 0);
  for (std::size_t cell = 0; cell < gain.size(); ++cell) {
    const auto taken = static_cast<Cell>(score[cell] + gain[cell]);
    const auto extra = static_cast<Cell>(score_[cell] - kInsert);
    const Cell take = taken > extra ? -1 : 0;
    score_[cell] = (taken & take) | (extra & ~take);
    leapt_[cell] = (leapt[cell] & take) | (leapt_[cell] & ~take);
    how_[cell] = how[cell] & take;
  }
  for (std::size_t cell = 0; cell < run.size(); ++cell) {
    const Cell longer = run[cell] < kLongRun ? run[cell] + 1 : run[cell];
    const Cell matched = how_[cell] == kExact ? longer : run[cell];
    run_[cell] = how_[cell] == kNothing ? 0 : matched;
  }
}

STALLOC_WIDE void Alignment::LeaveOutEntries(const ScriptIndex& script) noexcept {
  const std::int32_t* const costs = script.SkipCostsFrom(base_);
  Row cost;  // of leaving out all entries on the way from cell 0
  Row reached;
  for (std::size_t cell = 0; cell < cost.size(); ++cell) {
    cost[cell] = static_cast<Cell>(costs[cell] - costs[0]);
    reached[cell] = static_cast<Cell>(score_[cell] + cost[cell]);
  }
  RunningMaximum(reached);
  const Row last_cost = Before(cost, 0);
  Row passed_on;  // -1: an optional entry was left out, which changes nothing of what is known of the way
  Cell any_passed_on = 0;
  for (std::size_t cell = 0; cell < cost.size(); ++cell) {
    const auto score = static_cast<Cell>(reached[cell] - cost[cell]);
    const Cell skipped = score > score_[cell] ? -1 : 0;
    const Cell optional = cost[cell] - last_cost[cell] == kSkipOptional ? -1 : 0;
    score_[cell] = score;
    skipped_[cell] = skipped;
    how_[cell] &= ~skipped;
    run_[cell] &= ~skipped;
    leapt_[cell] |= skipped;
    passed_on[cell] = optional & skipped;
    any_passed_on |= passed_on[cell];
  }
  if (any_passed_on == 0) return;
  for (std::size_t cell = 1; cell < cost.size(); ++cell) {
    if (passed_on[cell] == 0) continue;
    run_[cell] = run_[cell - 1];
    leapt_[cell] = leapt_[cell - 1];
  }
}

// No way leads past `end`.
void Alignment::EndAt(std::int32_t end) noexcept {
  const std::int32_t first = std::clamp(end + 1 - base_, 0, kWidth);
  std::fill(score_.begin() + first, score_.end(), kHopeless);
}

STALLOC_WIDE void Alignment::FindBest() noexcept {
  Cell top = kHopeless;
  for (const Cell score : score_) top = std::max(top, score);
  Cell first = kWidth;
  for (Cell cell = 0; cell < kWidth; ++cell) {
    const Cell at = score_[Index(cell)] == top ? cell : Cell{kWidth};
    first = std::min(first, at);
  }
  best_ = first;
  Cell next = kHopeless;
  for (Cell cell = 0; cell < kWidth; ++cell) {
    const Cell score = std::max<Cell>(static_cast<Cell>(score_[Index(cell)] - top), kHopeless);
    score_[Index(cell)] = score;
    const bool counts = (skipped_[Index(cell)] == 0) & (cell != first);
    const Cell of_request = counts ? score : kHopeless;
    next = std::max(next, of_request);
  }
  lead_ = -next;
}

void Alignment::Recentre(const ScriptIndex& script) noexcept {
  const std::int32_t wanted = best_ - kBandCentre;  // > 0: the band moves up, so cells move down
  if (wanted < kBandSlack && wanted > -kBandSlack) return;
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
  move(run_, Cell{0});
  move(how_, kNothing);
  move(skipped_, Cell{-1});
  move(leapt_, Cell{0});
  base_ += shift;
  best_ -= shift;
}

bool Alignment::LeaptInDoubt() const noexcept { return leapt_[Index(best_)] != 0 && lead_ < kSureLeap; }

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
  if (doubtful_count_ == 0) aligned_from_ = aligned_ = 0;
  doubtful_[doubtful_count_ % kDoubtful] = {granules, cursor_};
  ++doubtful_count_;
  if (doubtful_count_ > kNotAligned && doubtful_count_ <= kDoubtful) AlignDoubtful(doubtful_count_ - kNotAligned);
  if (script_->WeaklyMatches(cursor_, granules)) return {Outcome::kVarying, cursor_++};
  if (!script_->KnownSize(granules)) return {Outcome::kUnknownSize, -1};
  LoseSync();
  return Answer(granules);
}

// Up to this one. From where the last exact match left off, or as far back as is remembered.
void Matcher::AlignDoubtful(std::uint32_t end) noexcept {
  const std::uint32_t oldest = doubtful_count_ - std::min(doubtful_count_, kDoubtful);
  if (aligned_ == aligned_from_ || aligned_from_ != oldest) {
    aligned_from_ = aligned_ = oldest;
    alignment_.Start(*script_, doubtful_[oldest % kDoubtful].cursor);
  }
  for (; aligned_ != end; ++aligned_) Align(doubtful_[aligned_ % kDoubtful].granules);
}

// Before the mark that comes next, unless the run is past it already.
void Matcher::Align(Granules granules) noexcept {
  alignment_.Step(*script_, granules, cursor_ <= expected_end_ ? expected_end_ : script_->size());
}

// The one that was lost with comes last. Long rows of doubtful requests are aligned as they come, so that this one has
// not to wait for all of them.
void Matcher::LoseSync() noexcept {
  ++times_lost_;
  AlignDoubtful(doubtful_count_);
  excursion_left_ = std::max(0, excursion_left_ - (cursor_ - sync_start_));
  if (excursion_left_ == 0) {
    home_ = doubtful_[aligned_from_ % kDoubtful].cursor;
    away_ = 0;
  }
  in_sync_ = false;
  aligning_ = 0;
  explained_ = kJudged;
  explained_count_ = 0;
  disturbed_ = false;
  anchor_count_ = 0;
  LeaveHome();
  for (std::uint32_t i = aligned_from_; i != doubtful_count_; ++i) Remember(doubtful_[i % kDoubtful].granules);
  cursor_ = alignment_.cursor();
}

Matcher::Match Matcher::NextAligning(Granules granules) noexcept {
  Remember(granules);
  Align(granules);
  cursor_ = alignment_.cursor();
  ++aligning_;
  const bool explained = alignment_.last() != Alignment::Last::kNothing;
  explained_count_ += explained ? 1 : 0;
  if (GoHome()) return {Outcome::kMatched, cursor_ - 1};
  const Match match = Answer(granules);
  // A size that fits nowhere says nothing against this place.
  if (match.outcome != Outcome::kUnknownSize) explained_ = explained_ << 1 | (explained ? 1u : 0u);
  const bool lost = aligning_ >= kPatience && std::popcount(explained_ & kJudged) <= kFewExplained;
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

void Matcher::LeaveHome() noexcept {
  after_home_ = home_;
  way_home_worth_ = 0;
}

void Matcher::Remember(Granules granules) noexcept {
  ++away_;
  if (script_->SizeAt(after_home_) != granules) LeaveHome();
  if (script_->SizeAt(after_home_) == granules) {
    ++after_home_;
    way_home_worth_ += script_->InfoOf(granules).worth;
  }
  if (script_->IsAnchorSize(granules)) anchors_[anchor_count_++ % kLastAnchors] = granules;
}

// Most interludes end where they began. What they request the alignment explains by chance at best.
bool Matcher::GoHome() noexcept {
  const bool is_interlude = away_ >= kPatience && 2 * explained_count_ < aligning_;
  const bool is_expected = expected_begin_ < after_home_ && after_home_ <= expected_end_;
  if (!is_interlude || !is_expected || way_home_worth_ < kWayHome) return false;
  ++times_reanchored_;
  excursion_left_ = 0;
  GainSync(after_home_);
  return true;
}

// How many of the latest anchors, newest first, agree with the script's up to `last_anchor`.
std::uint32_t Matcher::CommonHistory(std::uint32_t last_anchor) const noexcept {
  const std::uint32_t limit = std::min({anchor_count_, kLastAnchors, last_anchor + 1});
  std::uint32_t common = 0;
  while (common < limit &&
         script_->AnchorSize(last_anchor - common) == anchors_[(anchor_count_ - 1 - common) % kLastAnchors]) {
    ++common;
  }
  return common;
}

// Coming home is what most interludes end with.
Matcher::Place Matcher::Judge(std::uint32_t last_anchor, std::uint32_t common) const noexcept {
  const std::int32_t from = script_->AnchorPosition(last_anchor + 1 - common);
  const bool home = std::abs(from - home_) <= kHomeSlack;
  const std::int32_t distance = from >= home_ ? from - home_ : script_->size() + home_ - from;
  const std::int32_t merit =
      static_cast<std::int32_t>(common) + (home ? kHomeBonus : 0) - kFartherPlace * FarAway(from);
  return {merit, -distance, script_->AnchorPosition(last_anchor) + 1, home};
}

// Doublings beyond what is near, from wherever the run may have come to: home, so many entries after it as there were
// requests, or the best hypothesis.
std::int32_t Matcher::FarAway(std::int32_t position) const noexcept {
  const auto to = [&](std::int32_t place) { return std::abs(position - place); };
  const std::int32_t nearest = std::min({to(home_), to(home_ + static_cast<std::int32_t>(away_)), to(cursor_)});
  return std::bit_width(static_cast<std::uint32_t>(nearest / kNearPlace));
}

// Looks the latest anchors up, and goes on at the best of the places where they occur. False if they occur nowhere.
bool Matcher::GoToAnchors() noexcept {
  if (anchor_count_ < kAnchorsOfPlace) return false;
  std::uint32_t at = anchor_count_ - kAnchorsOfPlace;
  const std::uint64_t hash = ScriptIndex::HashGram([&] { return anchors_[at++ % kLastAnchors]; });
  Place best;
  for (const ScriptIndex::Gram& gram : script_->FindGram(hash)) {
    const std::int32_t last = script_->AnchorPosition(gram.last_anchor);
    if (last < expected_begin_ || last >= expected_end_) continue;
    const std::uint32_t common = CommonHistory(gram.last_anchor);
    if (common < kAnchorsOfPlace) continue;  // a hash collision
    best = std::max(best, Judge(gram.last_anchor, common));
  }
  if (best.cursor < 0) return false;
  ++times_reanchored_;
  excursion_left_ = best.home ? 0 : kExcursion;
  GainSync(best.cursor);
  return true;
}

}  // namespace stalloc
