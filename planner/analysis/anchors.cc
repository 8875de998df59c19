#include "planner/analysis/anchors.h"

#include <cstddef>

#include "absl/container/flat_hash_map.h"
#include "planner/analysis/alignment.h"

namespace stalloc::planner {
namespace {

struct KeyState {
  std::int64_t left = 0;
  std::int64_t right = 0;
  bool anchor = false;
};

// The keys of one sequence, numbered.
struct Numbered {
  std::vector<std::uint32_t> left;
  std::vector<std::uint32_t> right;
  std::vector<KeyState> states;
  std::vector<RequestKey> keys;
};

Numbered Number(std::span<const RequestKey> left, std::span<const RequestKey> right) {
  Numbered result;
  absl::flat_hash_map<RequestKey, std::uint32_t> numbers;
  const auto number = [&](RequestKey key) {
    const auto [found, added] = numbers.try_emplace(key, static_cast<std::uint32_t>(result.keys.size()));
    if (added) {
      result.keys.push_back(key);
      result.states.emplace_back();
    }
    return found->second;
  };
  for (const RequestKey key : left) {
    result.left.push_back(number(key));
    ++result.states[result.left.back()].left;
  }
  for (const RequestKey key : right) {
    result.right.push_back(number(key));
    ++result.states[result.right.back()].right;
  }
  for (std::size_t i = 0; i < result.keys.size(); ++i) {
    result.states[i].anchor =
        result.states[i].left == result.states[i].right && KeyBytes(result.keys[i]) >= kAnchorBytes;
  }
  return result;
}

// Sizes that vary occur equally often by chance, and then seldom.
std::pair<std::int64_t, Bytes> Weight(const Numbered& numbered, std::uint32_t number) {
  return {numbered.states[number].left, KeyBytes(numbered.keys[number])};
}

void DropOffenders(Numbered& numbered) {
  auto& states = numbered.states;
  std::size_t i = 0;
  std::size_t j = 0;
  const auto skip = [&](const std::vector<std::uint32_t>& sequence, std::size_t& position) {
    while (position < sequence.size() && !states[sequence[position]].anchor) ++position;
  };
  while (true) {
    skip(numbered.left, i);
    skip(numbered.right, j);
    if (i == numbered.left.size() || j == numbered.right.size()) {
      break;  // both, since every anchor occurs equally often on both sides
    }
    const std::uint32_t left = numbered.left[i];
    const std::uint32_t right = numbered.right[j];
    if (left == right) {
      ++i;
      ++j;
      continue;
    }
    const auto left_weight = Weight(numbered, left);
    const auto right_weight = Weight(numbered, right);
    states[left].anchor = left_weight > right_weight;
    states[right].anchor = right_weight > left_weight;
  }
}

}  // namespace

Matches FindAnchors(std::span<const RequestKey> left, std::span<const RequestKey> right) {
  Numbered numbered = Number(left, right);
  DropOffenders(numbered);
  Matches matches;
  std::size_t j = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (!numbered.states[numbered.left[i]].anchor) continue;
    while (!numbered.states[numbered.right[j]].anchor) ++j;
    matches.emplace_back(static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(j++));
  }
  return matches;
}

}  // namespace stalloc::planner
