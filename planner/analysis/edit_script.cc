#include "planner/analysis/edit_script.h"

#include <algorithm>
#include <cstddef>

namespace stalloc::planner {
namespace {

// Furthest-reaching paths. After d edits diagonal k (= x - y, in [-d, d], of d's parity) reaches x = At(d, k).
template <typename Equal>
class EditGraph {
 public:
  EditGraph(std::size_t left, std::size_t right, const Equal& equal)
      : equal_(equal), n_(static_cast<int>(left)), m_(static_cast<int>(right)) {}

  std::optional<Matches> Search(std::uint32_t max_edits) {
    const int limit = std::min<int>(static_cast<int>(max_edits), n_ + m_);
    for (int edits = 0; edits <= limit; ++edits) {
      rows_.emplace_back(static_cast<std::size_t>(edits) + 1);
      for (int diagonal = -edits; diagonal <= edits; diagonal += 2) {
        const int x = Slide(Start(edits, diagonal), diagonal);
        Reach(edits, diagonal) = x;
        if (x >= n_ && x - diagonal >= m_) return Backtrack(edits, diagonal);
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
    if (edits == 0) return 0;
    return CameDown(edits, diagonal) ? Reach(edits - 1, diagonal + 1) : Reach(edits - 1, diagonal - 1) + 1;
  }

  int Slide(int x, int diagonal) const {
    while (x < n_ && x - diagonal < m_ && x - diagonal >= 0 &&
           equal_(static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(x - diagonal))) {
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
      if (edits > 0) diagonal += CameDown(edits, diagonal) ? 1 : -1;
    }
    std::reverse(matches.begin(), matches.end());
    return matches;
  }

  const Equal& equal_;
  int n_;
  int m_;
  std::vector<std::vector<int>> rows_;
};

template <typename Equal>
std::optional<Matches> Search(std::size_t left, std::size_t right, const Equal& equal, std::uint32_t max_edits) {
  const std::size_t difference = left > right ? left - right : right - left;
  if (difference > max_edits) return std::nullopt;
  return EditGraph(left, right, equal).Search(max_edits);
}

}  // namespace

std::optional<Matches> LongestCommonSubsequence(std::span<const RequestKey> left, std::span<const RequestKey> right,
                                                std::uint32_t max_edits) {
  const auto equal = [&](std::uint32_t x, std::uint32_t y) { return left[x] == right[y]; };
  return Search(left.size(), right.size(), equal, max_edits);
}

std::optional<Matches> LongestCommonSubsequence(std::uint32_t left, std::uint32_t right,
                                                absl::FunctionRef<bool(std::uint32_t, std::uint32_t)> equal,
                                                std::uint32_t max_edits) {
  return Search(left, right, equal, max_edits);
}

}  // namespace stalloc::planner
