#include "planner/analysis/edit_script.h"

#include <algorithm>
#include <cstddef>

namespace stalloc::planner {
namespace {

// Furthest-reaching paths. After d edits diagonal k (= x - y, in [-d, d], of d's parity) reaches x = At(d, k).
class EditGraph {
 public:
  EditGraph(std::span<const RequestKey> left, std::span<const RequestKey> right)
      : left_(left), right_(right), n_(static_cast<int>(left.size())), m_(static_cast<int>(right.size())) {}

  std::optional<Matches> Search(std::uint32_t max_edits) {
    const int limit = static_cast<int>(std::min<std::uint64_t>(max_edits, left_.size() + right_.size()));
    for (int edits = 0; edits <= limit; ++edits) {
      rows_.emplace_back(static_cast<std::size_t>(edits) + 1);
      for (int diagonal = -edits; diagonal <= edits; diagonal += 2) {
        const int x = Slide(Start(edits, diagonal), diagonal);
        Reach(edits, diagonal) = x;
        if (x >= n_ && x - diagonal >= m_) {
          return Backtrack(edits, diagonal);
        }
      }
    }
    return std::nullopt;
  }

 private:
  int& Reach(int edits, int diagonal) {
    return rows_[static_cast<std::size_t>(edits)][static_cast<std::size_t>((diagonal + edits) / 2)];
  }

  // The step before (edits, diagonal) came down from diagonal + 1 (an insertion) rather than right from diagonal - 1.
  bool CameDown(int edits, int diagonal) {
    return diagonal == -edits || (diagonal != edits && Reach(edits - 1, diagonal - 1) < Reach(edits - 1, diagonal + 1));
  }

  int Start(int edits, int diagonal) {
    if (edits == 0) {
      return 0;
    }
    return CameDown(edits, diagonal) ? Reach(edits - 1, diagonal + 1) : Reach(edits - 1, diagonal - 1) + 1;
  }

  int Slide(int x, int diagonal) const {
    while (x < n_ && x - diagonal < m_ && x - diagonal >= 0 &&
           left_[static_cast<std::size_t>(x)] == right_[static_cast<std::size_t>(x - diagonal)]) {
      ++x;
    }
    return x;
  }

  Matches Backtrack(int edits, int diagonal) {
    Matches matches;
    for (; edits >= 0; --edits) {
      const int start = Start(edits, diagonal);
      for (int x = Reach(edits, diagonal); x > start; --x) {
        matches.emplace_back(static_cast<std::uint32_t>(x - 1), static_cast<std::uint32_t>(x - 1 - diagonal));
      }
      if (edits > 0) {
        diagonal += CameDown(edits, diagonal) ? 1 : -1;
      }
    }
    std::reverse(matches.begin(), matches.end());
    return matches;
  }

  std::span<const RequestKey> left_;
  std::span<const RequestKey> right_;
  int n_;
  int m_;
  std::vector<std::vector<int>> rows_;
};

}  // namespace

std::optional<Matches> LongestCommonSubsequence(std::span<const RequestKey> left, std::span<const RequestKey> right,
                                                std::uint32_t max_edits) {
  const std::size_t difference = left.size() > right.size() ? left.size() - right.size() : right.size() - left.size();
  if (difference > max_edits) {
    return std::nullopt;
  }
  return EditGraph(left, right).Search(max_edits);
}

}  // namespace stalloc::planner
