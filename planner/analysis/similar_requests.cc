#include "planner/analysis/similar_requests.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "planner/analysis/alignment.h"
#include "planner/analysis/anchors.h"

namespace stalloc::planner {
namespace {

// A gap costs more than sizes that are equal by chance can bring: the experts of a layer look alike, and pairing each
// with the next one must not pay.
constexpr int kEqual = 128;
constexpr int kEqualSmall = 48;  // too common to mean much
constexpr double kPerBit = 64;   // of rarity, where the size keeps step
constexpr int kSameMagnitude = 96;
constexpr int kPerEighthOctave = 4;  // less for each eighth of a factor of two between the sizes
constexpr int kUnlike = -400;
constexpr int kOpenGap = -800;
constexpr int kExtendGap = -8;
constexpr int kImpossible = -(1 << 28);

// What the best alignment of two prefixes ends with. Of equal ones the first: what has no partner comes last.
enum End : std::uint8_t { kOnlyLeft, kOnlyRight, kPair, kEnds };

struct Request {
  RequestKey key = 0;
  int magnitude = 0;  // 8 * log2 of its bytes, roughly
  int worth = 0;      // of an equal partner
};

int MagnitudeOf(Bytes bytes) {
  const int octave = std::bit_width(bytes);
  const auto fraction = static_cast<int>(octave > 4 ? (bytes >> (octave - 4)) & 7 : 0);
  return 8 * octave + fraction;
}

// What equal sizes are worth: the more, the rarer they are, where they keep step: as many on both sides, and each of
// them less than half of their distance from where the other side's is. Sizes that vary are rare, too, but do not.
class Worths {
 public:
  Worths(std::span<const RequestKey> left, std::span<const RequestKey> right) {
    absl::flat_hash_map<RequestKey, Places> places;
    for (std::size_t i = 0; i < left.size(); ++i) places[left[i]].left.push_back(Share(i, left.size()));
    for (std::size_t i = 0; i < right.size(); ++i) places[right[i]].right.push_back(Share(i, right.size()));
    const std::size_t requests = std::min(left.size(), right.size());
    for (const auto& [key, of_key] : places) {
      if (KeyBytes(key) < kAnchorBytes || !of_key.KeepStep()) continue;
      const double bits = std::log2(static_cast<double>(requests) / static_cast<double>(of_key.left.size()));
      worths_[key] = std::max(kEqual, static_cast<int>(kPerBit * bits));
    }
  }

  [[nodiscard]] int Of(RequestKey key) const {
    const auto found = worths_.find(key);
    return found != worths_.end() ? found->second : KeyBytes(key) >= kAnchorBytes ? kEqual : kEqualSmall;
  }

 private:
  static double Share(std::size_t position, std::size_t size) {
    return static_cast<double>(position) / static_cast<double>(size);
  }

  // Of the whole run, from 0 to 1.
  struct Places {
    std::vector<double> left;
    std::vector<double> right;
    [[nodiscard]] bool KeepStep() const {
      constexpr std::size_t kFew = 4;
      if (left.size() != right.size() || left.size() < kFew) return false;
      const double most = 0.5 / static_cast<double>(left.size());
      return std::equal(left.begin(), left.end(), right.begin(),
                        [most](double l, double r) { return std::abs(l - r) <= most; });
    }
  };

  absl::flat_hash_map<RequestKey, int> worths_;
};

std::vector<Request> Measure(std::span<const RequestKey> keys, const Worths& worths) {
  std::vector<Request> requests;
  requests.reserve(keys.size());
  for (const RequestKey key : keys) {
    requests.push_back({key, MagnitudeOf(KeyBytes(key)), worths.Of(key)});
  }
  return requests;
}

int Likeness(const Request& left, const Request& right) {
  if (left.key == right.key) {
    return left.worth;
  }
  if (KeyStream(left.key) != KeyStream(right.key)) {
    return kImpossible;
  }
  const int distance = std::abs(left.magnitude - right.magnitude);
  return std::max(kSameMagnitude - kPerEighthOctave * distance, kUnlike);
}

class SimilarAligner {
 public:
  SimilarAligner(std::span<const RequestKey> left, std::span<const RequestKey> right, const Worths& worths)
      : left_(Measure(left, worths)),
        right_(Measure(right, worths)),
        width_(right.size() + 1),
        reach_(SimilarReach(left.size(), right.size())),
        row_(std::min(width_, 2 * reach_ + 1)) {}

  Matches Align() {
    steps_.resize((left_.size() + 1) * row_);
    above_.assign(width_, kNowhere);
    here_.assign(width_, kNowhere);
    for (std::size_t i = 0; i <= left_.size(); ++i) {
      FillRow(i);
      std::swap(above_, here_);
    }
    return Backtrack(BestEnd(above_.back()).first);
  }

 private:
  using Scores = std::array<int, kEnds>;
  static constexpr Scores kNowhere = {kImpossible, kImpossible, kImpossible};

  // The columns of a row that count: those near the diagonal.
  [[nodiscard]] std::size_t First(std::size_t i) const {
    const std::size_t middle = i * (width_ - 1) / std::max<std::size_t>(left_.size(), 1);
    return std::min(middle - std::min(middle, reach_), width_ - row_);
  }

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
    const std::size_t first = First(i);
    // What an earlier row left beside this one's columns.
    const std::size_t next_end = i < left_.size() ? First(i + 1) + row_ : first + row_;
    if (first > 0) here_[first - 1] = kNowhere;
    std::fill(here_.begin() + static_cast<std::ptrdiff_t>(first + row_),
              here_.begin() + static_cast<std::ptrdiff_t>(next_end), kNowhere);
    for (std::size_t j = first; j < first + row_; ++j) {
      Scores& scores = here_[j];
      scores = kNowhere;
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
      steps_[i * row_ + j - first] = step;
    }
  }

  Matches Backtrack(End end) const {
    Matches matches;
    std::size_t i = left_.size();
    std::size_t j = right_.size();
    while (i > 0 || j > 0) {
      const std::uint8_t step = steps_[i * row_ + j - First(i)];
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
  std::size_t reach_;
  std::size_t row_;  // columns that count
  std::vector<Scores> above_;
  std::vector<Scores> here_;
  std::vector<std::uint8_t> steps_;
};

}  // namespace

Matches AlignSimilar(std::span<const RequestKey> left, std::span<const RequestKey> right) {
  if (left.empty() || right.empty()) {
    return {};
  }
  return SimilarAligner(left, right, Worths(left, right)).Align();
}

}  // namespace stalloc::planner
