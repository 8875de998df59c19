#include "allocator/engine/alignment.h"

#include <algorithm>

#include "allocator/engine/alignment_costs.h"

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

}  // namespace stalloc
