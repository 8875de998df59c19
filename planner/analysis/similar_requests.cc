#include "planner/analysis/similar_requests.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "planner/analysis/alignment.h"
#include "planner/analysis/anchors.h"

namespace stalloc::planner {
namespace {

// A gap costs more than sizes that are equal by chance can bring: the experts of a layer look alike, and pairing each
// with the next one must not pay.
constexpr int kEqual = 128;
constexpr int kEqualSmall = 48;  // too common to mean much
constexpr int kSameMagnitude = 96;
constexpr int kPerEighthOctave = 6;  // less for each eighth of a factor of two between the sizes
constexpr int kUnlike = -400;
constexpr int kOpenGap = -800;
constexpr int kExtendGap = -8;
constexpr int kImpossible = -(1 << 28);

// What the best alignment of two prefixes ends with. Of equal ones the first: what has no partner comes last.
enum End : std::uint8_t { kOnlyLeft, kOnlyRight, kPair, kEnds };

struct Request {
  RequestKey key = 0;
  int magnitude = 0;  // 8 * log2 of its bytes, roughly
};

std::vector<Request> Measure(std::span<const RequestKey> keys) {
  std::vector<Request> requests;
  requests.reserve(keys.size());
  for (const RequestKey key : keys) {
    const Bytes bytes = KeyBytes(key);
    const int octave = std::bit_width(bytes);
    const auto fraction = static_cast<int>(octave > 4 ? (bytes >> (octave - 4)) & 7 : 0);
    requests.push_back({key, 8 * octave + fraction});
  }
  return requests;
}

int Likeness(const Request& left, const Request& right) {
  if (left.key == right.key) {
    return KeyBytes(left.key) >= kAnchorBytes ? kEqual : kEqualSmall;
  }
  if (KeyStream(left.key) != KeyStream(right.key)) {
    return kImpossible;
  }
  const int distance = std::abs(left.magnitude - right.magnitude);
  return std::max(kSameMagnitude - kPerEighthOctave * distance, kUnlike);
}

class SimilarAligner {
 public:
  SimilarAligner(std::span<const RequestKey> left, std::span<const RequestKey> right)
      : left_(Measure(left)), right_(Measure(right)), width_(right.size() + 1) {}

  Matches Align() {
    steps_.resize((left_.size() + 1) * width_);
    above_.resize(width_);
    here_.resize(width_);
    for (std::size_t i = 0; i <= left_.size(); ++i) {
      FillRow(i);
      std::swap(above_, here_);
    }
    return Backtrack(BestEnd(above_.back()).first);
  }

 private:
  using Scores = std::array<int, kEnds>;

  static std::pair<End, int> BestEnd(const Scores& scores) {
    const auto best = std::max_element(scores.begin(), scores.end());
    return {static_cast<End>(best - scores.begin()), *best};
  }

  // The best score of a gap that goes on from `before`, and whether it was open already.
  static std::pair<int, End> Extend(const Scores& before, End gap) {
    const auto [end, score] = BestEnd(before);
    const int opened = score + kOpenGap;
    const int extended = before[gap] + kExtendGap;
    return extended >= opened ? std::pair(extended, gap) : std::pair(opened, end);
  }

  // A step holds, in two bits for each end, with which end the prefixes before it end.
  void FillRow(std::size_t i) {
    for (std::size_t j = 0; j < width_; ++j) {
      Scores& scores = here_[j];
      scores.fill(kImpossible);
      std::uint8_t step = 0;
      if (i == 0 && j == 0) {
        scores[kPair] = 0;
      }
      if (i > 0 && j > 0) {
        const auto [end, score] = BestEnd(above_[j - 1]);
        scores[kPair] = std::max(score + Likeness(left_[i - 1], right_[j - 1]), kImpossible);
        step |= static_cast<std::uint8_t>(end << (2 * kPair));
      }
      if (i > 0) {
        const auto [score, end] = Extend(above_[j], kOnlyLeft);
        scores[kOnlyLeft] = std::max(score, kImpossible);
        step |= static_cast<std::uint8_t>(end << (2 * kOnlyLeft));
      }
      if (j > 0) {
        const auto [score, end] = Extend(here_[j - 1], kOnlyRight);
        scores[kOnlyRight] = std::max(score, kImpossible);
        step |= static_cast<std::uint8_t>(end << (2 * kOnlyRight));
      }
      steps_[i * width_ + j] = step;
    }
  }

  Matches Backtrack(End end) const {
    Matches matches;
    std::size_t i = left_.size();
    std::size_t j = right_.size();
    while (i > 0 || j > 0) {
      const std::uint8_t step = steps_[i * width_ + j];
      const auto before = static_cast<End>(step >> (2 * end) & 3);
      if (end == kPair) {
        matches.emplace_back(static_cast<std::uint32_t>(i - 1), static_cast<std::uint32_t>(j - 1));
      }
      i -= end != kOnlyRight;
      j -= end != kOnlyLeft;
      end = before;
    }
    std::reverse(matches.begin(), matches.end());
    return matches;
  }

  std::vector<Request> left_;
  std::vector<Request> right_;
  std::size_t width_;
  std::vector<Scores> above_;
  std::vector<Scores> here_;
  std::vector<std::uint8_t> steps_;
};

}  // namespace

Matches AlignSimilar(std::span<const RequestKey> left, std::span<const RequestKey> right) {
  if (left.empty() || right.empty()) {
    return {};
  }
  return SimilarAligner(left, right).Align();
}

}  // namespace stalloc::planner
