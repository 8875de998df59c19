// TextTable: numbers for texts that a trace repeats (names of tensors). Numbers ascend from 0 in the order in which the
// texts came; the writer takes new ones for the file. Cold path: locks, and takes memory for a new text. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace stalloc {

class TextTable {
 public:
  [[nodiscard]] std::uint32_t Number(std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (const auto known = numbers_.find(text); known != numbers_.end()) return known->second;
    const auto number = static_cast<std::uint32_t>(texts_.size());
    numbers_.emplace(texts_.emplace_back(text), number);
    return number;
  }

  // Appends the texts from number `from` on; returns how many there are now.
  [[nodiscard]] std::size_t CopyFrom(std::size_t from, std::vector<std::string>* out) const {
    const std::lock_guard lock(mutex_);
    out->insert(out->end(), texts_.begin() + static_cast<std::ptrdiff_t>(from), texts_.end());
    return texts_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::deque<std::string> texts_;  // whose elements never move: the keys below point into them
  std::unordered_map<std::string_view, std::uint32_t> numbers_;
};

}  // namespace stalloc
