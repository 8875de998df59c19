// Resemblance: does this run still look like its plan? Judged once an iteration, from counts.
//
// A plan of another model, batch size or framework version serves little and holds its whole arena meanwhile. It is
// given up when the first iteration after init hits less than a tenth, or three iterations in a row hit less than half,
// of the requests over 512 B that the plan meant to serve. Requests that it leaves to upstream on purpose, fenced and
// captured ones do not count, and iterations with next to no such requests say nothing. Where much varies, what hits is
// counted against the plan itself, too: less than an eighth of its slots in an iteration that requested half as much.
//
// Unless the arena does the run's work all the same: another batch or length of the same model, for good, finds space
// between its slots. Where that is so for seven of eight requests, and no more is held than the run needs or would hold
// without the plan, nobody gains by giving up. What a plan holds is judged by plan_fit.h as well. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stalloc {

class Resemblance {
 public:
  // Requests over 512 B since the start.
  struct Totals {
    std::uint64_t expected = 0;  // those that the plan was to serve
    std::uint64_t hits = 0;
    std::uint64_t requests = 0;   // all of them
    std::uint64_t elsewhere = 0;  // for which the arena had no space, nor the plan another place
  };
  enum class Verdict : std::uint8_t { kResembles, kServedAnyway, kGiveUp };

  // `planned`: requests of an iteration over 512 B that have slots; 0: not known.
  explicit Resemblance(std::uint64_t planned = 0) : planned_(planned) {}

  // At each iteration's begin. `last()` has the figures where the run does not resemble its plan. `fills`: it needs
  // about what it holds, or would hold as much without the plan.
  [[nodiscard]] Verdict OnIteration(const Totals& totals, bool fills) noexcept {
    const Totals before = totals_;
    totals_ = totals;
    if (boundaries_++ == 0) return Verdict::kResembles;  // what came before was init
    Totals iteration{totals.expected - before.expected, totals.hits - before.hits, totals.requests - before.requests,
                     totals.elsewhere - before.elsewhere};
    const bool idle_slots = iteration.hits * 8 < planned_ && iteration.requests * 2 >= planned_;
    if (idle_slots) iteration.expected = std::max(iteration.expected, planned_);
    if (iteration.expected < kFewRequests) return Verdict::kResembles;
    last_ = iteration;
    const bool first = judged_++ == 0;
    poor_ = iteration.hits * 2 < iteration.expected ? poor_ + 1 : 0;
    const bool unlike = poor_ >= kPoorIterations || (first && iteration.hits * 10 < iteration.expected);
    if (!unlike) return Verdict::kResembles;
    return fills && iteration.elsewhere * 8 <= iteration.requests ? Verdict::kServedAnyway : Verdict::kGiveUp;
  }

  [[nodiscard]] const Totals& last() const noexcept { return last_; }
  // The last iteration that said something was not as planned.
  [[nodiscard]] bool poor() const noexcept { return poor_ > 0; }
  // It was, nearly all of it.
  [[nodiscard]] bool full() const noexcept { return planned_ > 0 && last_.hits * 8 >= planned_ * 7; }

 private:
  static constexpr std::uint64_t kFewRequests = 16;
  static constexpr int kPoorIterations = 3;

  const std::uint64_t planned_;
  Totals totals_;
  Totals last_;
  std::uint64_t boundaries_ = 0;
  std::uint64_t judged_ = 0;
  int poor_ = 0;
};

}  // namespace stalloc
