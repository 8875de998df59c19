// Sums by key, and which are largest. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "proto/model/plan.h"

namespace stalloc::planner {

// The `most` keys with most bytes; of equals the lower key.
template <typename Key>
std::vector<Key> LargestKeys(const std::map<Key, Bytes>& sums, std::size_t most) {
  std::vector<std::pair<Bytes, Key>> order;
  for (const auto& [key, bytes] : sums) order.push_back({bytes, key});
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Key> keys;
  for (std::size_t i = 0; i < std::min(most, order.size()); ++i) keys.push_back(order[i].second);
  return keys;
}

}  // namespace stalloc::planner
