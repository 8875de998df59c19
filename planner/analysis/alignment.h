// Alignment: which request of one iteration is which request of another.
//
// Within a phase (between two marks that both iterations have):
//   1. equal beginnings and ends;
//   2. an edit script, where it explains most of the rest: iterations are nearly the same;
//   3. where few requests are left, the alignment of those that are most alike (similar_requests.h): the experts of one
//   layer, some of them without tokens;
//   4. else anchors: sizes whose subsequence is the same in both (offenders are dropped until it is). A model's static
//   tensors are such, in some of its layers even if not in all.
// What lies between the matches of 2 and 4 is aligned in the same way. So a varying request is paired with the one that
// takes its place, and becomes one dynamic request instead of two optional ones. The result is monotone. No step is
// quadratic in the number of requests of an iteration.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/analysis/edit_script.h"
#include "planner/analysis/lifetimes.h"
#include "proto/model/plan.h"

namespace stalloc::planner {

[[nodiscard]] constexpr RequestKey MakeKey(Bytes bytes, std::uint32_t stream) {
  return bytes / kBlockAlignment << 16 | (stream & 0xffff);
}
[[nodiscard]] constexpr Bytes KeyBytes(RequestKey key) { return (key >> 16) * kBlockAlignment; }
[[nodiscard]] constexpr std::uint32_t KeyStream(RequestKey key) { return static_cast<std::uint32_t>(key & 0xffff); }

// An iteration as the alignment sees it.
struct Sequence {
  std::vector<RequestKey> keys;
  std::vector<Phase> phases;
};

[[nodiscard]] Sequence MakeSequence(const DeviceTrace& device, std::uint32_t segment);
[[nodiscard]] Sequence MakeSequence(const Script& script);

class Alignment {
 public:
  // Identity over `size` requests.
  explicit Alignment(std::uint32_t size);
  // REQUIRES: matches ascend in both.
  Alignment(const Matches& matches, std::uint32_t left_size, std::uint32_t right_size);

  // The partner's position, or kNone.
  [[nodiscard]] std::uint32_t ToRight(std::uint32_t left) const { return to_right_[left]; }
  [[nodiscard]] std::uint32_t ToLeft(std::uint32_t right) const { return to_left_[right]; }
  // The least left position whose partner is at or after `right`; the left size if there is none. What is alive up to
  // `right` in one iteration is alive up to here in the other. REQUIRES: right <= right size.
  [[nodiscard]] std::uint32_t LeftBound(std::uint32_t right) const { return left_bound_[right]; }
  // One past the greatest left position whose partner is before `right`; 0 if there is none. O(distance to it).
  [[nodiscard]] std::uint32_t LeftReached(std::uint32_t right) const;

 private:
  std::vector<std::uint32_t> to_right_;
  std::vector<std::uint32_t> to_left_;
  std::vector<std::uint32_t> left_bound_;
};

[[nodiscard]] Alignment Align(const Sequence& left, const Sequence& right);
// Only the first `right_compared` requests of `right` take part.
[[nodiscard]] Alignment Align(const Sequence& left, const Sequence& right, std::uint32_t right_compared);

// The same for requests between two marks; positions are relative to the spans.
[[nodiscard]] Matches AlignRequests(std::span<const RequestKey> left, std::span<const RequestKey> right);

}  // namespace stalloc::planner
