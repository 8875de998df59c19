// OrdinalTable: elements by ordinal that come while other threads look, and then stay.
//
// A thread that has found an element is seen by All, and so is one that was handed a part of it: from then on All has
// it, and Only is no other one. Thread-safe; one thread at a time calls Add. Owns nothing. No heap memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <span>

namespace stalloc {

template <typename Element, std::size_t kMost>
class OrdinalTable {
 public:
  // Null if there is none, or `ordinal` is out of range.
  [[nodiscard]] Element* Find(std::ptrdiff_t ordinal) const noexcept {
    const auto at = static_cast<std::size_t>(ordinal);
    return at < kMost ? by_ordinal_[at].load(std::memory_order_acquire) : nullptr;
  }
  // In the order in which they came.
  [[nodiscard]] std::span<Element* const> All() const noexcept {
    return {in_order_.data(), count_.load(std::memory_order_acquire)};
  }
  // The one that there is; null if there are none or several.
  [[nodiscard]] Element* Only() const noexcept {
    const std::span<Element* const> all = All();
    return all.size() == 1 ? all.front() : nullptr;
  }

  // REQUIRES: below kMost, and not there yet.
  void Add(std::size_t ordinal, Element* element) noexcept {
    const std::size_t count = count_.load(std::memory_order_relaxed);
    in_order_[count] = element;
    count_.store(count + 1, std::memory_order_release);
    by_ordinal_[ordinal].store(element, std::memory_order_release);  // last: who finds it here finds it everywhere
  }

 private:
  std::array<Element*, kMost> in_order_{};  // up to count_ they never change
  std::atomic<std::size_t> count_{0};
  std::array<std::atomic<Element*>, kMost> by_ordinal_{};
};

}  // namespace stalloc
