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
enum End : std::uint8_t { kOnlyLeft, kOnlyRight, kPair };

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

  // For the whole run, from 0 to 1.
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

// Requests as columns of numbers, for loops that take several at once.
struct Requests {
  std::vector<int> key;  // its number; equal ones are equal requests
  std::vector<int> stream;
  std::vector<int> magnitude;  // 8 * log2 of its bytes, roughly
  std::vector<int> worth;      // of an equal partner
};

class KeyNumbers {
 public:
  int Of(RequestKey key) { return numbers_.try_emplace(key, static_cast<int>(numbers_.size())).first->second; }

 private:
  absl::flat_hash_map<RequestKey, int> numbers_;
};

Requests Measure(std::span<const RequestKey> keys, const Worths& worths, KeyNumbers* numbers) {
  Requests requests;
  for (const RequestKey key : keys) {
    requests.key.push_back(numbers->Of(key));
    requests.stream.push_back(static_cast<int>(KeyStream(key)));
    requests.magnitude.push_back(MagnitudeOf(KeyBytes(key)));
    requests.worth.push_back(worths.Of(key));
  }
  return requests;
}

class SimilarAligner {
 public:
  SimilarAligner(std::span<const RequestKey> left, std::span<const RequestKey> right)
      : left_size_(left.size()), width_(right.size() + 1), shift_(SimilarReach(left.size(), right.size()) - kReach) {
    const Worths worths(left, right);
    KeyNumbers numbers;
    left_ = Measure(left, worths, &numbers);
    right_ = Measure(right, worths, &numbers);
  }

  // Most alignments stay near the diagonal: one that does among the positions of a part of the reach is taken.
  Matches Align() {
    for (std::size_t reach = kLeastReach;; reach *= 2) {
      const bool is_last = reach >= kReach;
      reach_ = is_last ? kReach + shift_ : reach + shift_ / 4;
      row_ = std::min(width_, 2 * reach_ + 1);
      Fill();
      const auto [matches, stray] = Backtrack();
      if (is_last || row_ == width_ || stray + reach_ / 4 <= reach_) return matches;
    }
  }

 private:
  static constexpr std::size_t kReach = SimilarReach(0, 0);
  static constexpr std::size_t kLeastReach = kReach / 4;

  [[nodiscard]] std::size_t Middle(std::size_t i) const {
    return i * (width_ - 1) / std::max<std::size_t>(left_size_, 1);
  }
  // The columns of a row that count: those near the diagonal.
  [[nodiscard]] std::size_t First(std::size_t i) const {
    const std::size_t middle = Middle(i);
    return std::min(middle - std::min(middle, reach_), width_ - row_);
  }

  // Scores of a row, by column: of what ends in each way, the best of them, and its way. Those of no column that counts
  // are impossible.
  struct Row {
    std::vector<int> only_left;
    std::vector<int> only_right;
    std::vector<int> pair;
    std::vector<int> best;
    std::vector<int> end;  // of the best; an End

    void Assign(std::size_t width) {
      for (std::vector<int>* scores : {&only_left, &only_right, &pair, &best}) scores->assign(width, kImpossible);
      end.assign(width, kOnlyLeft);
    }
    void Forget(std::size_t column) {
      only_left[column] = only_right[column] = pair[column] = best[column] = kImpossible;
      end[column] = kOnlyLeft;
    }
  };

  void Fill() {
    steps_.resize((left_size_ + 1) * row_);
    above_.Assign(width_);
    here_.Assign(width_);
    for (std::size_t i = 0; i <= left_size_; ++i) {
      FillRow(i);
      std::swap(above_, here_);
    }
  }

  void FillRow(std::size_t i) {
    const std::size_t first = First(i);
    const std::size_t end = first + row_;
    // The values that an earlier row left next to this one's columns.
    const std::size_t next_end = i < left_size_ ? First(i + 1) + row_ : end;
    if (first > 0) here_.Forget(first - 1);
    for (std::size_t j = end; j < next_end; ++j) here_.Forget(j);
    if (i == 0) {
      here_.pair[0] = 0;
    } else {
      FillPairs(i, std::max<std::size_t>(first, 1), end);
      if (first == 0) here_.pair[0] = kImpossible;
      FillOnlyLeft(first, end);
    }
    FillOnlyRight(first, end);
    FillBest(first, end);
    FillSteps(&steps_[i * row_], first, end);
  }

  // Each of these loops but FillOnlyRight's takes several columns at once.
  void FillPairs(std::size_t i, std::size_t first, std::size_t end) {
    const int key = left_.key[i - 1];
    const int stream = left_.stream[i - 1];
    const int magnitude = left_.magnitude[i - 1];
    const int worth = left_.worth[i - 1];
    const int* const keys = right_.key.data();
    const int* const streams = right_.stream.data();
    const int* const magnitudes = right_.magnitude.data();
    const int* const best = above_.best.data();
    int* __restrict const pair = here_.pair.data();
    for (std::size_t j = first; j < end; ++j) {
      const int right_key = keys[j - 1];
      const int right_stream = streams[j - 1];
      const int distance = std::abs(magnitude - magnitudes[j - 1]);
      const int similar = std::max(kSameMagnitude - kPerEighthOctave * distance, kUnlike);
      const int unequal = stream == right_stream ? similar : kImpossible;
      const int likeness = key == right_key ? worth : unequal;
      pair[j] = std::max(best[j - 1] + likeness, kImpossible);
    }
  }

  void FillOnlyLeft(std::size_t first, std::size_t end) {
    const int* const best = above_.best.data();
    const int* const before = above_.only_left.data();
    int* __restrict const only_left = here_.only_left.data();
    for (std::size_t j = first; j < end; ++j) {
      only_left[j] = std::max(std::max(before[j] + kExtendGap, best[j] + kOpenGap), kImpossible);
    }
  }

  // A gap that goes on costs less than one that is opened after it, so the best that ends otherwise will do here.
  void FillOnlyRight(std::size_t first, std::size_t end) {
    static_assert(kOpenGap < kExtendGap);
    const int* const only_left = here_.only_left.data();
    const int* const pair = here_.pair.data();
    int* __restrict const only_right = here_.only_right.data();
    int score = kImpossible;
    for (std::size_t j = first; j < end; ++j) {
      only_right[j] = score;
      const int opened = std::max(std::max(only_left[j], pair[j]) + kOpenGap, kImpossible);
      score = std::max(score + kExtendGap, opened);
    }
  }

  void FillBest(std::size_t first, std::size_t end) {
    const int* const only_left = here_.only_left.data();
    const int* const only_right = here_.only_right.data();
    const int* const pair = here_.pair.data();
    int* __restrict const best = here_.best.data();
    int* __restrict const ends = here_.end.data();
    for (std::size_t j = first; j < end; ++j) {
      const int gap = std::max(only_left[j], only_right[j]);
      const int which = only_left[j] >= only_right[j] ? kOnlyLeft : kOnlyRight;
      best[j] = std::max(gap, pair[j]);
      ends[j] = pair[j] > gap ? kPair : which;
    }
  }

  // A step holds, in two bits for each end, with which end the prefixes before it end.
  void FillSteps(std::uint8_t* __restrict steps, std::size_t first, std::size_t end) {
    const int* const left_above = above_.only_left.data();
    const int* const best_above = above_.best.data();
    const int* const end_above = above_.end.data();
    const int* const right = here_.only_right.data();
    const int* const best = here_.best.data();
    const int* const ends = here_.end.data();
    const auto before_left_of = [=](std::size_t j) {
      const int end_of_best = end_above[j];
      return left_above[j] + kExtendGap >= best_above[j] + kOpenGap ? int{kOnlyLeft} : end_of_best;
    };
    // Nothing comes before the first column.
    if (first == 0) steps[0] = static_cast<std::uint8_t>(before_left_of(0) << (2 * kOnlyLeft));
    for (std::size_t j = std::max<std::size_t>(first, 1); j < end; ++j) {
      const int before_left = before_left_of(j);
      const int end_of_best = ends[j - 1];
      const int before_right = right[j - 1] + kExtendGap >= best[j - 1] + kOpenGap ? int{kOnlyRight} : end_of_best;
      steps[j - first] = static_cast<std::uint8_t>(before_left << (2 * kOnlyLeft) | before_right << (2 * kOnlyRight) |
                                                   end_above[j - 1] << (2 * kPair));
    }
  }

  // And how far from the diagonal the alignment goes.
  [[nodiscard]] std::pair<Matches, std::size_t> Backtrack() const {
    Matches matches;
    std::size_t stray = 0;
    std::size_t i = left_size_;
    std::size_t j = width_ - 1;
    auto end = static_cast<End>(above_.end.back());
    while (i > 0 || j > 0) {
      const std::size_t middle = Middle(i);
      stray = std::max(stray, middle > j ? middle - j : j - middle);
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
    return {std::move(matches), stray};
  }

  Requests left_;
  Requests right_;
  const std::size_t left_size_;
  const std::size_t width_;
  const std::size_t shift_;  // by which one side is longer
  std::size_t reach_ = 0;
  std::size_t row_ = 0;  // columns that count
  Row above_;
  Row here_;
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
